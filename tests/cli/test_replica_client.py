"""Commands that ask a replica need its address and a token, and no configuration."""

import json
import os
import subprocess

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.visitors.visitor_number import visitor_number
from tests.support.http_server import serve
from tests.support.processes import WAITROOM

TOKEN = "0123456789abcdef"
pytestmark = pytest.mark.usefixtures("elsewhere")


def run(*words: str, **environment: str):
    return CliRunner().invoke(main, words, env=environment)


READS = [("rooms", "list"), ("leases", "list"), ("limits", "list"), ("jobs", "list"),
         ("targets", "list"), ("rooms", "events", "shop"), ("rooms", "export", "shop")]  # fmt: skip


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_url_and_a_token_are_enough(url, tmp_path, words):
    """Address and token come from variables, or from options before or after the command."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    group, *rest = words
    for done in (
        run(*words, WAITROOM_URL=url, WAITROOM_TOKEN=TOKEN),
        run(*words, WAITROOM_URL=f"{url}/", WAITROOM_TOKEN_FILE=str(file)),
        run(group, "--url", url, "--token-file", str(file), *rest),
        run(*words, "--url", url, "--token-file", str(file)),
        run(group, "--url", "http://127.0.0.1:1", *rest, "--url", url, WAITROOM_TOKEN=TOKEN),
    ):
        assert (done.exit_code, done.exception) == (0, None), done.output


def test_a_configuration_is_the_fallback(url, tmp_path):
    """Of the settings file only ops_listen and the tokens count; it may be wrong otherwise."""
    file = tmp_path / "waitroom.toml"
    file.write_text(f'ops_listen = "{url.removeprefix("http://")}"\nadmin_token = "{TOKEN}"\n'
                    "nonsense = 1\n[rooms.shop]\n")  # fmt: skip
    assert run("rooms", "list").exit_code == 0
    assert run("rooms", "list", WAITROOM_SECRET_KEYS_FILE="/nowhere").exit_code == 0
    other = file.rename(tmp_path / "other.toml")
    assert run("rooms", "list", "--config", str(other)).exit_code == 0
    assert run("rooms", "-c", str(other), "list").exit_code == 0
    assert run("healthcheck", "-c", str(other)).stdout == "ready\n"
    other.write_text(f'ops_listen = "127.0.0.1:1"\nadmin_token = "{TOKEN}"\n')
    assert run("rooms", "list", "-c", str(other), "--url", url).exit_code == 0
    assert run("rooms", "list", WAITROOM_URL=url, WAITROOM_ADMIN_TOKEN=TOKEN).exit_code == 0
    other.write_text('service_token = "wrong-and-never-sent"\nops_listen = "nothing"\n')
    assert run("rooms", "list", "-c", str(other), "--url", url, WAITROOM_TOKEN=TOKEN).exit_code == 0


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (("rooms", "list"), {}, "no token: give --token-file FILE or set WAITROOM_TOKEN; "),
        (("rooms", "list", "-c", "none.toml"), {}, "none.toml: cannot be read"),
        (("rooms", "list", "--token-file", "none"), {}, "--token-file: none cannot be read"),
        (("rooms", "list", "--url", "ftp://x"), {}, "--url: write http://HOST:PORT or unix:"),
        (
            ("rooms", "list"),
            {"WAITROOM_URL": "http://x?y", "WAITROOM_TOKEN": "x"},
            "WAITROOM_URL: write http://HOST",
        ),
        (("rooms", "list"), {"WAITROOM_TOKEN": "a\nb"}, "WAITROOM_TOKEN: a token is one line"),
        (("rooms", "list"), {"WAITROOM_TOKEN_FILE": "/"}, "WAITROOM_TOKEN_FILE: / cannot be"),
        (
            ("jobs", "list"),
            {"WAITROOM_OPS_LISTEN": "x", "WAITROOM_TOKEN": "x"},
            "ops_listen: write host:port",
        ),
    ],
)
def test_what_is_missing_is_named(words, environment, said):
    """The missing value is named, and no other: no room or secret is needed."""
    done = run(*words, **environment)
    is_of_the_settings = "none.toml" in words or "WAITROOM_OPS_LISTEN" in environment
    assert (done.exit_code, done.stdout) == (1 if is_of_the_settings else 2, "")
    assert said in done.stderr
    assert "secret_keys" not in done.stderr
    assert "rooms:" not in done.stderr


def test_an_id_may_look_like_an_option(url):
    """A visitor's id and a holder's name may begin with a hyphen and contain a c."""
    given = {"WAITROOM_URL": url, "WAITROOM_TOKEN": TOKEN}
    id_ = "-abcdefghijklmnopqrst_"
    assert run("rooms", "find", "shop", id_, **given).stdout == (
        f"{id_} ({visitor_number(id_)}) is unknown\n"
    )
    for name in ("-cabin", "-abc", "-"):
        for words in (("-c", "none.toml", name), (name, "-c", "none.toml"), ("--", name)):
            done = run("leases", "release", "seat", "17", *words, **given)
            assert done.stdout == f"{name} neither held 17 nor waited\n"
    done = run("leases", "release", "seat", "17", "--", "-c", **given)
    assert done.stdout == "-c neither held 17 nor waited\n"


@pytest.mark.parametrize(
    "words",
    [("leases", "show", "seat", "17"), ("leases", "release", "seat", "17"),
     ("limits", "set", "slots", "3"), ("rooms", "find", "shop", "a" * 22)],
    ids=" ".join,
)  # fmt: skip
def test_the_settings_file_has_its_short_option_everywhere(words):
    """Also where an argument may begin with a hyphen; the help lists it."""
    done = run(*words, "-c", "none.toml")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "none.toml: cannot be read" in done.stderr
    assert "-c, --config FILE" in run(*words[:2], "--help").stdout


@pytest.mark.parametrize(
    "words",
    [READS[0], READS[-1], ("page",), ("check-config",), ("rooms", "--help"), ("report", "shop")],
    ids=" ".join,
)  # fmt: skip
def test_nothing_is_said_when_nobody_reads(url, words, tmp_path):
    """A closed pipe (`| head`) causes no traceback and no error."""
    (tmp_path / "waitroom.toml").write_text(
        f'ops_listen = "{url.removeprefix("http://")}"\nadmin_token = "{TOKEN}"\n'
        f'secret_keys = ["{"k" * 32}"]\nhistory = "sqlite:///h.db"\n'
        "rooms.shop.total_active_users = 1\n"
    )
    if words[0] == "report":
        assert run("migrate").exit_code == 0
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as nobody:
        done = subprocess.run(
            [WAITROOM, *words], stdout=nobody, stderr=subprocess.PIPE, text=True, check=False,
            cwd=tmp_path, timeout=30,
            env={n: text for n, text in os.environ.items() if n != "PYTHONUNBUFFERED"},
        )  # fmt: skip
    assert done.stderr.strip() in {"", "shop: 0 place(s) and 0 session(s) exported"}


@pytest.fixture(params=["text/html", "application/json", "redirect"])
def another(request):
    """A server that is no replica's ops listener: a site, an API, one that leads elsewhere."""

    text = json.dumps({"error": "none"}) if "json" in request.param else "<h1>Shop</h1>"
    status = 302 if request.param == "redirect" else 404
    with serve(lambda _: (status, text.encode(), {"Location": "/"})) as url:
        yield url


def test_what_is_no_replica_is_named(another):
    """An address that is not an ops listener, such as the site's, is named as such."""
    done = run("rooms", "list", "--url", another, WAITROOM_TOKEN=TOKEN)
    assert (done.exit_code, "not as a replica's ops listener does" in done.stderr) == (1, True)


def test_whoever_reads_no_file_hears_so():
    """A command that needs settings says that there are none."""
    done = run("check-config")
    assert done.exit_code == 1
    assert done.stderr.startswith("there is no waitroom.toml in this folder or in /etc/waitroom")
