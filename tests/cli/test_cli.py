"""The commands, run as their user runs them, against a running site."""

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
import urllib.request

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.visitors.visitor_number import visitor_number
from tests.support.processes import CLEAN, WAITROOM, Process, run_command, wait_until
from tests.support.site import Site


def run(*arguments, **environment) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, env={**CLEAN, **environment})


@pytest.fixture(scope="module")
def site():
    with Site(
        rooms={name: {"total_active_users": 2} for name in ("bar", "shop")}, replicas=2
    ) as site:
        yield site


@pytest.fixture
def rooms(site):
    """Runs `waitroom rooms …` at the first replica, in this process."""
    config = str(site.folder / "replica-0.toml")
    return lambda *words, **options: CliRunner().invoke(
        main, ["rooms", "--config", config, *words], **options
    )


def test_rooms_are_listed(site, rooms):
    """The list has a line for each room, with its counts."""
    for _ in range(3):
        site.arrive("shop")
    done = rooms("list")
    assert done.exit_code == 0
    assert re.search(r"^shop\tat cap\t1\t2\t2\t", done.stdout, re.MULTILINE), done.stdout
    # The watch has the same word.
    assert re.search(r" shop +at cap +1 +2 +2 ", rooms("watch", "--times", "1").stdout)


def test_a_change_is_seen_by_the_other_replica_within_two_seconds(site, rooms):
    """A change through one replica is in force at the other; null takes it back."""
    done = rooms("set", "shop", "message=Soon", "new_users_per_minute=7")
    assert (done.exit_code, done.stdout) == (0, 'message = "Soon"\nnew_users_per_minute = 7\n')
    began = time.monotonic()
    status = f"{site.edges[1]}/_waitroom/shop/status"

    def seen() -> bool:
        with urllib.request.urlopen(status, timeout=5) as reply:
            return json.load(reply)["message"] == "Soon"

    wait_until(seen, "the change at the other replica", 5)
    assert time.monotonic() - began < 2.5
    rooms("set", "shop", "message=null", "new_users_per_minute=null")
    assert site.room()["changed"] == {}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("set", "shop", "total_active_users=-1"),
            2,
            r"^Error: total_active_users: must be at least 0 \(got -1\)\nNothing was changed.$",
        ),
        (("set", "shop", "capacity=1"), 2, "^Error: capacity: unknown setting"),
        (
            ("set", "shop", "total_active_user=5"),
            2,
            r"^Error: total_active_user: unknown setting; did you mean total_active_users\?\n",
        ),
        (("set", "shop", "nothing"), 2, "write SETTING=VALUE"),
        (("release", "shop", "x"), 2, "visitor: a visitor's id"),
        (("release", "shop", "a" * 22), 1, "neither inside nor waiting"),
        (("move", "shop", "oooo-ooo1", "head"), 1, "no visitor here has the number 0000-0001"),
    ],
)
def test_a_mistake_is_named(rooms, words, code, said):
    """A mistake is named; the exit code is 1, or 2 for a wrong value."""
    done = rooms(*words)
    assert done.exit_code == code
    assert re.search(said, done.stderr), done.stderr


def test_reset_asks_first(rooms):
    """A reset without a yes changes nothing."""
    assert rooms("reset", "shop", input="n\n").exit_code == 1
    assert "removed" in rooms("reset", "shop", input="y\n").stdout


def test_pause_drain_and_resume(site, rooms):
    """Each says what the room does now; resume takes back what the others changed."""
    assert rooms("pause", "shop").stdout.startswith("shop is paused: ")
    assert site.room()["changed"] == {"queue_all": True}
    assert rooms("drain", "shop").stdout.startswith("shop is draining: ")
    assert site.room()["changed"] == {"max_waiting": 0}
    assert re.match("shop is (running|at cap): ", rooms("resume", "shop").stdout)
    assert site.room()["changed"] == {}


def test_a_message_in_several_languages(site, rooms):
    """With an end. Resume says that the message is still shown, or takes it away."""
    said = rooms("message", "shop", "Back at 9", "--in", "de=Weiter um 9", "--for", "15m").stdout
    message = json.loads(said.partition(" = ")[2])
    assert message.items() >= {"text": "Back at 9", "de": "Weiter um 9"}.items()
    assert 0 < message["until"] / 1000 - time.time() <= 900
    assert site.room()["settings"]["message"] == message
    rooms("pause", "shop")
    said = rooms("resume", "shop").stdout
    assert 'The message "Back at 9" is still shown; take it away: waitroom rooms message' in said
    rooms("message", "shop", "Soon")
    assert site.room()["settings"]["message"] == "Soon"
    rooms("pause", "shop")
    assert "still shown" not in rooms("resume", "shop", "--clear-message").stdout
    assert site.room()["changed"] == {}
    assert "say either a text or --clear" in rooms("message", "shop").stderr
    assert "write LANGUAGE=TEXT" in rooms("message", "shop", "--in", "de").stderr
    assert rooms("message", "shop", "--clear").stdout == "message = null\n"


def test_watch_prints_a_line_a_look(rooms):
    """Each look prints a line for each room; a rate is known from the second look on."""
    done = rooms("watch", "--every", "0.2", "--times", "2")
    head, _, first, _, second = done.stdout.splitlines()
    assert head.split() == ["time", "room", "state", "waiting", "inside", "cap", "in/min", "wait"]
    assert re.search(r"\d shop +(running|at cap) +\d+ +\d+ +2 ", first)
    assert re.search(r" 2 +0  \w", second), second
    assert "no room is named 'nope'" in rooms("watch", "nope", "--times", "2").stderr


def test_find_says_where_a_visitor_is(site, rooms, changed):
    """A visitor is found by id or number; an unknown id is reported as such."""
    # Nobody waits, and there is a slot: else, on a slow machine, somebody called has the last one.
    site.admin("POST", "/rooms/shop/reset")
    changed(total_active_users=100)
    site.arrive("shop")
    visitor = site.admin("GET", "/rooms/shop/sessions")["sessions"][-1]["visitor"]
    said = rooms("find", "shop", visitor).stdout
    number = visitor_number(visitor)
    assert re.match(rf"{visitor} \({number}\) is inside until \d{{4}}-", said), said
    typed = number.replace("-", "").lower()
    assert rooms("find", "shop", typed).stdout == said
    assert rooms("release", "shop", typed).stdout == f"{visitor} released\n"
    number = visitor_number("b" * 22)
    assert rooms("find", "shop", "b" * 22).stdout == f"{'b' * 22} ({number}) is unknown\n"


@pytest.fixture
def changed(site):
    """Changes settings of `shop`, and takes that back."""
    names = set()

    def change(**settings):
        names.update(settings)
        site.admin("PATCH", "/rooms/shop", settings)

    yield change
    site.admin("POST", "/rooms/shop/reset")
    change(**dict.fromkeys(names))


@pytest.fixture
def three(site, changed):
    """Ids of three who wait in two lines, of which nobody is let in."""
    site.admin("POST", "/rooms/shop/reset")
    changed(
        total_active_users=0,
        class_header=True,
        lines=[{"name": "fast"}, {"name": "ordinary"}],
        classes={"vip": {"line": "fast"}},
    )
    return [site.arrive("shop", class_name) for class_name in ("vip", "", "")]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("words", [("list",), ("watch", "--times", "1")])
def test_each_line_has_a_line(rooms, words):
    """The list and the watch show each sub-queue with its length and wait."""
    said = rooms(*words).stdout
    told = re.findall(r"^.*  (fast|ordinary)\s+(\d+)\s+unknown$", said, re.MULTILINE)
    assert (said.count("\n"), told) == (5, [("fast", "1"), ("ordinary", "2")]), said


def test_somebody_is_moved(rooms, three):
    """A visitor is moved to the head, to a place, back, and to a class; the log says why."""
    last = three[2]

    def move(*words) -> str:
        done = rooms("move", "shop", last, *words)
        assert done.exit_code == 0, done.output
        return done.stdout.removeprefix(f"{last} is at position ").strip()

    assert move("head", "--why", "ticket 4711, paid twice") == "1"
    assert move("2") == "2"
    assert move("head") == "1"
    found = rooms("find", "shop", last).stdout
    number = visitor_number(last)
    assert found == f"{last} ({number}) is waiting in sub-queue ordinary at position 1\n"
    assert move("back") == "2"
    assert move("--class", "vip", "--why", "press") == "2"
    assert move("--no-class") == "2"
    said = [" ".join(row.split("\t")[2:]) for row in rooms("log", "shop").stdout.splitlines()]
    assert said[1:7] == [
        f"grade {last} 2 to 2: no class",
        f"grade {last} 2 to 2: class vip: press",
        f"back {last} 1 to 2",
        f"move {last} 2 to 1",
        f"move {last} 1 to 2",
        f"move {last} 2 to 1: ticket 4711, paid twice",
    ]


def test_the_log_is_of_all_rooms(rooms):
    """Without a room, the log of all rooms has a column with the room; latest first."""
    for name in ("bar", "shop"):
        assert rooms("pause", name).exit_code == rooms("resume", name).exit_code == 0
    rows = [row.split("\t") for row in rooms("log").stdout.splitlines()]
    assert rows[0] == ["at", "room", "by", "what", "visitor", "detail"]
    assert [row[1] for row in rows[1:5]] == ["shop", "shop", "bar", "bar"]
    assert [row[0] for row in rows[1:]] == sorted((row[0] for row in rows[1:]), reverse=True)
    assert json.loads(rooms("log", "--json").stdout)["log"][0]["room"] == "shop"
    of_one = [row.split("\t") for row in rooms("log", "bar").stdout.splitlines()]
    assert of_one[:2] == [["at", "by", "what", "visitor", "detail"], [rows[3][0], *rows[3][2:]]]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "say either head, back, a position"),
        (("head", "--class", "vip"), 2, "say either head, back, a position"),
        (("tail",), 2, "tail: say head, back or a whole number"),
        (("0",), 2, "position: a whole number from 1 on"),
        (("1", "--why", "x" * 201), 2, "why: text of 200 characters at most"),
        (("--class", "vip"), 1, "The classes of shop: it has none"),
        (("head",), 1, "is not waiting"),
    ],
)
def test_a_move_that_is_none(rooms, words, status, said):
    """A wrong move is named as such; an id may begin with a hyphen."""
    done = rooms("move", "shop", "-" + "a" * 21, *words)
    assert (done.exit_code, said in done.stderr) == (status, True), done.output


@pytest.mark.parametrize("words", [("list",), ("watch", "--times", "1")])
def test_a_room_that_is_not_open_says_so(rooms, changed, words):
    """A room before or in a pre-queue shows that, with the event's name."""
    now = int(time.time() * 1000)
    event = {"name": "autumn", "opens_at": now + 3_600_000}
    changed(events=[{**event, "prequeue_from": now + 60_000}])
    said = rooms(*words).stdout
    assert re.search(r"^.*shop\s+closed\s.*  next: autumn\n\Z", said, re.MULTILINE), said
    changed(events=[{**event, "prequeue_from": now - 60_000}])
    said = rooms(*words).stdout
    assert re.search(r"^.*shop\s+pre-queue\s.*  autumn\n\Z", said, re.MULTILINE), said


def test_healthcheck_ends_in_time():
    """The timeout holds for the whole response, even if bytes keep coming."""
    over = threading.Event()

    def answer() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
            while not over.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        try:
            done = run("healthcheck", "--url", url, "--timeout", "0.5")
        finally:
            over.set()
            # The thread must end even if the command did not connect in time.
            socket.create_connection(server.getsockname()).close()
            thread.join()
    assert (done.returncode, done.stderr) == (3, "not ready: no answer within 0.5 s\n")


@pytest.mark.parametrize("setting", ["edge_listen", "ops_listen"])
def test_serve_says_plainly_that_an_address_is_taken(site, tmp_path, setting):
    """An address in use is named with its setting and what to do, without a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = (site.folder / "replica-0.toml").read_text()
        listens = {name: f"unix:{tmp_path}/{name}" for name in ("edge_listen", "ops_listen")}
        for name, value in {**listens, setting: address}.items():
            text = re.sub(f'{name} = ".*"', f'{name} = "{value}"', text)
        file = tmp_path / "waitroom.toml"
        file.write_text(text)
        done = run("serve", "--config", str(file))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"{setting}: cannot listen on {address}: another program has taken it. Stop that program, "
        "or set another port"
    )
    assert "Traceback" not in done.stderr


def test_serve_says_plainly_that_the_page_is_missing(site, tmp_path):
    """A missing page is named with its folder, without a traceback."""
    file = site.folder / "replica-0.toml"
    done = run("serve", "--config", str(file), WAITROOM_STATIC_DIR=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"static_dir: there is no waiting.html in {tmp_path}"


def test_page_says_what_it_cannot_make(tmp_path):
    done = run("page", str(tmp_path / "none.html"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path}/none.html" in done.stderr
    file = tmp_path / "waiting.html"
    file.write_text("<p>\n" + "x" * 3_001)
    done = run("page", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert "line 2 is longer than 3,000 bytes: break it" in done.stderr


def test_serve_on_unix_sockets_and_in_memory(tmp_path):
    """A replica runs on unix sockets, in memory, and replaces a killed one's socket."""
    file = tmp_path / "waitroom.toml"
    edge, ops = tmp_path / "edge.sock", tmp_path / "ops.sock"
    file.write_text(
        f'edge_listen = "unix:{edge}"\nops_listen = "unix:{ops}"\n'
        'admin_token = "0123456789abcdef"\n[rooms.shop]\ntotal_active_users = 1\n'
    )
    environment = {"WAITROOM_SECRET_KEYS": "k" * 32}
    command = [WAITROOM, "serve", "--config", str(file)]
    process = Process(command, log=tmp_path / "log", env={**CLEAN, **environment})

    def ready() -> bool:
        return run("healthcheck", "--config", str(file), **environment).returncode == 0

    with process:
        wait_until(ready, "the replica")
        assert edge.stat().st_mode & 0o777 == 0o660
        process.kill()
        process.start()
        wait_until(ready, "the replica, again")
        assert "shop" in run("rooms", "--config", str(file), "list", **environment).stdout
        assert process.stop() == 0
    assert "Traceback" not in process.output
