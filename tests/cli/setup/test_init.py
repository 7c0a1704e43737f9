"""waitroom init: what it writes, and that its own words lead to a room."""

import json
import os
import re
import shutil
import stat
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.settings.load import load
from tests.support.processes import Process, free_port, wait_until
from tests.support.redis_servers import RedisServer
from tests.support.site import make_folder

WAITROOM = str(Path(sys.executable).parent / "waitroom")
SECRETS = ("secret_keys", "admin_token")


def run(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def init(into: Path, *words: object) -> str:
    return run(
        "init", "--site", "www.shop.example", "--users", 5, "--system", "debian",
        "--redis", "redis://127.0.0.1:1/0", "--into", into, *words,
    )  # fmt: skip


def content(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*") if file.is_file()
    }  # fmt: skip


def test_the_settings_are_right(tmp_path):
    """The settings load as written, with new secrets and a room named after the site."""
    init(tmp_path)
    settings = load(str(tmp_path / "etc/waitroom/waitroom.toml"), {})
    assert settings.rooms["shop"].total_active_users == 5
    assert settings.store == "redis://127.0.0.1:1/0"
    assert settings.secret_keys[0] != settings.admin_token
    assert min(len(settings.secret_keys[0]), len(settings.admin_token)) == 64


def test_secrets_are_nobody_elses(tmp_path):
    """Secrets have mode 0600 in a folder of 0700; so has nginx's key."""
    init(tmp_path)
    folder = tmp_path / "etc/waitroom/secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [folder / name for name in SECRETS] + [tmp_path / "etc/nginx/waitroom-stamp.conf"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_password_of_redis_is_a_secret(tmp_path):
    """An address with a password is in a secret file that the settings name."""
    store = "redis://:pass%22word@127.0.0.1:1/0"
    init(tmp_path, "--system", "plain", "--redis", store)
    toml = tmp_path / "etc/waitroom/waitroom.toml"
    assert "pass" not in toml.read_text()
    assert stat.S_IMODE((tmp_path / "etc/waitroom/secrets/store").stat().st_mode) == 0o600
    assert load(str(toml), {}).store == store
    # There is no systemd on a plain system.
    assert not (tmp_path / "etc/systemd").exists()


def test_settings_that_stay_say_where_redis_is(tmp_path):
    """A second init with a password leaves no address behind that the units would prefer."""
    init(tmp_path)
    init(tmp_path, "--redis", "redis://:pass@127.0.0.1:1/0")
    assert not list(tmp_path.rglob("store*"))


@pytest.mark.parametrize("name", ["static", "now", "internal"])
def test_no_room_has_a_name_that_is_taken(tmp_path, name):
    """The room of static.shop.example has another name, and --room static is refused."""
    options = ["--users", "1", "--system", "plain", "--into", str(tmp_path)]
    run("init", "--site", f"{name}.shop.example", *options)
    assert list(load(str(tmp_path / "etc/waitroom/waitroom.toml"), {}).rooms) == ["site"]
    done = CliRunner().invoke(main, ["init", "--site", "a.example", "--room", name, *options])
    assert (done.exit_code, "is taken" in done.output) == (2, True)


def test_for_docker(tmp_path):
    """What is added to a compose.yaml names the files where they are, and the user who may read
    them."""
    into = tmp_path / "deep" / "waitroom"
    init(into, "--system", "docker")
    service = yaml.safe_load((into / "compose.waitroom.yaml").read_text())["services"]
    for mount in service["nginx"]["volumes"] + service["waitroom"]["volumes"]:
        assert Path(mount.split(":")[0]).exists(), mount
    assert service["waitroom"]["user"] == f"{os.getuid()}:{os.getgid()}"


def test_nothing_is_overwritten(tmp_path):
    """A second run changes no file."""
    init(tmp_path)
    toml = tmp_path / "etc/waitroom/waitroom.toml"
    toml.write_text(toml.read_text().replace("= 5", "= 7"))
    before = content(tmp_path)
    said = init(tmp_path, "--room", "other")
    assert f"kept     {toml}" in said
    assert content(tmp_path) == before


def test_nginx_has_the_key_of_the_secret_that_was_there(tmp_path):
    """A missing nginx key is made from the existing secret."""
    init(tmp_path)
    stamp = tmp_path / "etc/nginx/waitroom-stamp.conf"
    before = stamp.read_bytes()
    stamp.unlink()
    init(tmp_path)
    assert stamp.read_bytes() == before


def test_a_dry_run_writes_nothing(tmp_path):
    said = init(tmp_path, "--dry-run")
    assert f"new      {tmp_path}/etc/waitroom/waitroom.toml" in said
    assert content(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--site", "no host/name"], "is no host name"),
        (["--redis", "mysql://x"], "write redis://"),
        (["--room", "Über"], "a name has lower-case letters"),
        (["--users", "-1"], "-1 is not in the range"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, words, wrong):
    """A wrong value exits 2 and writes nothing."""
    options = ["--site", "a.example", "--users", "1", "--into", str(tmp_path), *words]
    done = CliRunner().invoke(main, ["init", *options])
    assert done.exit_code == 2
    assert wrong in done.output
    assert content(tmp_path) == {}


def test_a_new_version_leaves_what_was_edited(tmp_path):
    """update-files replaces unedited files, and writes beside edited ones."""
    init(tmp_path)
    nginx = tmp_path / "etc/nginx/waitroom"
    old, edited = nginx / "proxy.conf", nginx / "static/waiting.css"
    shipped = {file: file.read_bytes() for file in (old, edited)}
    # As a version before wrote it: another text, and that text's digest in the list.
    manifest = tmp_path / "etc/waitroom/files.json"
    old.write_text("# an older version\n")
    listed = json.loads(manifest.read_text())
    listed["etc/nginx/waitroom/proxy.conf"] = sha256(old.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(listed))
    edited.write_text("body { color: red }\n")
    settings = (nginx / "settings.conf").read_bytes()
    said = run("update-files", "--system", "debian", "--into", tmp_path)
    assert old.read_bytes() == shipped[old]
    assert edited.read_text() == "body { color: red }\n"
    assert edited.with_name("waiting.css.new").read_bytes() == shipped[edited]
    assert (nginx / "settings.conf").read_bytes() == settings
    assert f"kept     {edited}" in said
    # What lies beside it may have been edited, too.
    new = edited.with_name("waiting.css.new")
    new.write_text("merged by hand\n")
    run("update-files", "--system", "debian", "--into", tmp_path)
    assert new.read_text() == "merged by hand\n"


def test_a_damaged_list_is_said(tmp_path):
    init(tmp_path)
    (tmp_path / "etc/waitroom/files.json").write_text("{")
    options = ["--system", "debian", "--into", str(tmp_path)]
    done = CliRunner().invoke(main, ["update-files", *options])
    assert (done.exit_code, "files.json is damaged" in done.output) == (1, True)


NGINX = """
daemon off; pid nginx.pid; error_log stderr warn; worker_processes 1;
events {{}}
http {{
    access_log off;
    include conf.d/*.conf;
    server {{
        listen 127.0.0.1:{port};
        {server}
        location / {{
            {location}
            root {www};
        }}
    }}
}}
"""


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_its_own_words_lead_to_a_room():
    """The files as they are written, and the lines that it says to add: one visitor is inside, the
    next one waits, and the doctor finds nothing wrong."""
    edge, ops, port = free_port(), free_port(), free_port()
    with RedisServer() as redis, ExitStack() as stack:
        root = make_folder(stack)
        store = f"redis://127.0.0.1:{redis.port}/0"
        said = init(
            root, "--site", f"127.0.0.1:{port}", "--users", 1, "--system", "plain", "--redis", store
        )
        assert "does not answer" not in said
        etc = root / "etc"
        # What stands for the machine's own places and ports.
        settings = etc / "nginx/waitroom/settings.conf"
        text = settings.read_text().replace("/etc/nginx/", f"{etc}/nginx/")
        text = text.replace("/run/waitroom-verdicts", str(root / "cache"))
        settings.write_text(text.replace("127.0.0.1:8400", f"127.0.0.1:{edge}"))
        location = re.findall(
            r"^ +(set \$waitroom_room .*?;|include waitroom/l.*?;)", said, re.MULTILINE
        )
        assert len(location) == 2
        (root / "index.html").write_text("the site")
        conf = NGINX.format(
            port=port,
            www=root,
            server="include waitroom/server.conf;",
            location="\n".join(location),
        )
        (etc / "nginx/nginx.conf").write_text(conf)
        listen = {
            "WAITROOM_EDGE_LISTEN": f"127.0.0.1:{edge}", "WAITROOM_OPS_LISTEN": f"127.0.0.1:{ops}",
        }  # fmt: skip
        toml = str(etc / "waitroom/waitroom.toml")
        replica = Process(
            [WAITROOM, "serve", "--config", toml], log=root / "replica.log",
            env={**os.environ, **listen},
        )  # fmt: skip
        stack.enter_context(replica)
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        folder = str(etc / "nginx")
        stack.enter_context(
            Process([nginx, "-p", folder, "-c", f"{folder}/nginx.conf"], log=root / "nginx.log")
        )
        url = f"http://127.0.0.1:{port}/"
        wait_until(lambda: status(f"http://127.0.0.1:{ops}/readyz") == 200, "the replica")
        wait_until(lambda: status(f"{url}_waitroom/static/waiting.js") == 200, "nginx")
        assert [status(url), status(url)] == [200, 503]
        # I expect the doctor to find the site in the settings.
        doctor = run("doctor", "--config", toml, "--ops-port", ops, "--edge-port", edge)
        assert doctor.endswith("Everything is right.\n")
