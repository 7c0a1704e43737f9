"""`waitroom grant`, run as its user runs it."""

import time
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from sidecar.cli import main
from sidecar.visitors.grants import Grant, Grants, find_grant
from tests.support.processes import CLEAN, forget_settings, run_command

SECRET, GRANT_KEY = "s" * 32, "g" * 32
GOOD = {
    "WAITROOM_SECRET_KEYS": SECRET,
    "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "5",
    "WAITROOM_ROOMS__SHOP__CLASSES": '{"vip": {"head_start": "5m"}, "partner": {"priority": 1}}',
    "WAITROOM_ROOMS__PLAIN__TOTAL_ACTIVE_USERS": "5",
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs it in this process, which takes a fiftieth of the time."""
    monkeypatch.chdir(tmp_path)
    forget_settings(monkeypatch)

    def run(*words: str, **environment: str) -> Result:
        return CliRunner(env={**GOOD, **environment}).invoke(main, ["grant", *words])

    return run


def read(text: str, *, key: str = SECRET, room: str = "shop") -> Grant:
    return Grants(room, [key]).read(text, int(time.time() * 1000))


def test_a_grant(tmp_path):
    """By default a grant holds for a day, for every bearer."""
    began = time.time()
    done = run_command("grant", "shop", "vip", cwd=tmp_path, env={**CLEAN, **GOOD})
    assert (done.returncode, done.stderr) == (0, "")
    grant = read(done.stdout.removesuffix("\n"))
    assert (grant.class_name, grant.id) == ("vip", "")
    assert began + 86_400 <= grant.expires_s <= time.time() + 86_401


def test_links_for_one_visitor_each(run):
    """--count and --url make links, each with a grant beside the page's own parameters."""
    page = "https://shop.example/sale?a=b#top"
    done = run("shop", "partner", "--once", "--count", "3", "--expires", "2h", "--url", page,
               WAITROOM_GRANT_KEYS=f"{'o' * 32},{GRANT_KEY}")  # fmt: skip
    assert (done.exit_code, done.stderr) == (0, "")
    links = done.stdout.splitlines()
    for link in links:
        parts = urlsplit(link)
        assert link.startswith("https://shop.example/sale?a=b&waitroom_grant=")
        assert (parts.fragment, parse_qs(parts.query)["a"]) == ("top", ["b"])
        assert read(find_grant(link), key=GRANT_KEY).class_name == "partner"
    assert len({read(find_grant(link), key=GRANT_KEY).id for link in links} - {""}) == 3


def test_an_id_of_ones_own(run):
    """A grant has the id that was given; a link may be to a site's root."""
    done = run("shop", "vip", "--id", "order-17", "--url", "http://shop.example")
    assert done.stdout.startswith("http://shop.example/?waitroom_grant=vip.")
    assert read(find_grant(done.stdout.strip())).id == "order-17"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hall", "vip"), "no room and no target is named 'hall'"),
        (("shop", "gold"), "no class of shop is named 'gold'; the settings name vip, partner"),
        (("plain", "vip"), "one that was set at run time: POST /admin/rooms/plain/"),
        (("shop", "vip", "--expires", "soon"), "write a number of seconds, or text such as"),
        (("shop", "vip", "--expires", "367d"), "a grant ends after now, and within 366 days"),
        (("shop", "vip", "--expires", "0"), "a grant ends after now, and within 366 days"),
        (("shop", "vip", "--id", "a.b"), "id: letters, digits, - and _, 64 at most"),
        (("shop", "vip", "--id", ""), "everybody could use the grant"),
        (("shop", "vip", "--id", "a", "--once"), "an id is for one visitor already"),
        (("shop", "vip", "--count", "2"), "all would be the same; say --once too"),
        (("shop", "vip", "--url", "shop.example"), "write a whole address, such as https://"),
        (("shop", "vip", "--url", "https://[::1"), "write a whole address, such as https://"),
    ],
)  # fmt: skip
def test_what_is_refused(run, words, said):
    """A refusal says why and prints no grant."""
    done = run(*words)
    assert done.exit_code in {1, 2}
    assert isinstance(done.exception, SystemExit)
    assert said in done.stderr
    assert done.stdout == ""


SHARED = {
    "WAITROOM_TARGETS__SHOP__URL": "https://shop.example/",
    "WAITROOM_TARGETS__SHOP__CLASSES": '{"vip": {"priority": 1}, "paid": {"priority": 2}}',
}


def test_a_room_and_a_target_of_one_name(run):
    """--kind tells a room from a target of the same name; a grant is for one of them."""
    asked = run("shop", "vip", **SHARED)
    assert (asked.exit_code, "--kind" in asked.stderr) == (2, True)
    for kind in ("room", "target"):
        text = run("shop", "vip", "--kind", kind, **SHARED).stdout.strip()
        now_ms = int(time.time() * 1000)
        assert Grants("shop", [SECRET], kind).read(text, now_ms).class_name == "vip"
    assert run("shop", "paid", "--kind", "room", **SHARED).exit_code == 2
    assert "no target is named 'shop'" in run("shop", "vip", "--kind", "target").stderr
