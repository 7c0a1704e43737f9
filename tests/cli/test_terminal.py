"""What commands show at a terminal and nowhere else: the live view of rooms, and progress bars."""

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.terminal import COLOUR, CONTROLS, Terminal
from tests.support.processes import WAITROOM, run_command, wait_until
from tests.support.site import Site, answers

CTRL_C = "\x03"
WAITING = 7


@pytest.fixture(scope="module")
def site():
    rooms = {"shop": {"total_active_users": 0}, "autumn": {"total_active_users": 5}}
    with Site(rooms=rooms) as site:
        for _ in range(WAITING):
            site.arrive("shop")
        site.admin("PATCH", "/rooms/autumn", {"message": "[bold]Soon"})
        yield site


@pytest.fixture
def command(site):
    """`waitroom rooms WORDS…` at the replica."""
    config = str(site.folder / "replica-0.toml")
    return lambda *words: [WAITROOM, "rooms", "--config", config, *words]


@pytest.mark.parametrize("columns", [30, 80, 160])
def test_watch_is_as_wide_as_the_terminal(command, columns):
    """At each width the rooms are sorted, and each line is as wide as the terminal."""
    with Terminal(command("watch", "--every", "0.2"), columns=columns) as terminal:
        lines = terminal.wait_for(r"shop +cap 0")
    rooms = [line.split()[0] for line in lines if line.split()[1:2] in (["running"], ["cap"])]
    assert rooms == ["autumn", "shop"]
    assert {len(line) for line in lines} == {columns}
    text = "\n".join(lines)
    assert "0/5" in text
    assert f" {WAITING} " in text
    assert ("gave up" in text) is (columns == 160)


def test_watch_draws_what_was_seen(command, site):
    """The view has rates, a curve of the queue, and the operators' log in words."""
    with Terminal(command("watch", "--every", "0.2"), columns=120) as terminal:
        terminal.wait_for(r'message: none → "\[bold\]Soon"')
        site.admin("PATCH", "/rooms/autumn", {"total_active_users": 4})
        lines = terminal.wait_for("total_active_users: 5 → 4")
        assert not any("{" in line for line in lines)
        [shop] = [line for line in lines if line.startswith("shop")]
        assert "█████" in shop
        # After some looks no rate is unknown any more.
        assert shop.split()[-3:] == ["0", "0", "0"]


@pytest.mark.parametrize("code", [0, 128 + signal.SIGTERM])
def test_watch_gives_the_terminal_back(command, code):
    """Ctrl-C ends it, which is no error, and so does SIGTERM; the last figures stay, below what was
    there."""
    with Terminal(command("watch")) as terminal:
        terminal.wait_for("shop +cap 0")
        terminal.terminate() if code else terminal.press(CTRL_C)
        assert terminal.end() == code
        view, _, after = terminal.text.partition("\x1b[?1049l")
    assert "\x1b[?25h" in view + after
    assert "shop" in after
    assert "Traceback" not in after


def test_watch_without_colours(command):
    """NO_COLOR turns colours off."""
    for environment, has_colours in (({"NO_COLOR": "1"}, False), ({}, True)):
        with Terminal(command("watch", "--times", "2"), environment=environment) as terminal:
            assert terminal.end() == 0
            assert bool(COLOUR.search(terminal.text)) is has_colours


def test_watch_outlives_the_replica(command, site):
    """Without a replica the view keeps the last figures, says since when, and recovers."""
    [replica] = site.replicas
    with Terminal(command("watch", "--every", "0.2")) as terminal:
        terminal.wait_for("shop +cap 0")
        replica.stop()
        lines = terminal.wait_for(r"No figures since \d\d:\d\d:\d\d \(\d+ s\): no replica answers")
        assert any(line.startswith("shop") for line in lines)
        replica.start()
        wait_until(lambda: answers(f"{site.ops[0]}/readyz"), "the replica", of=replica)
        wait_until(lambda: not has_complaint(terminal), "figures")
        terminal.press(CTRL_C)
        assert terminal.end() == 0


def has_complaint(terminal: Terminal) -> bool:
    return any("No figures" in line for line in terminal.wait_for("shop +cap 0"))


def piped(*command: str) -> subprocess.CompletedProcess[str]:
    done = run_command(*command[1:])
    assert done.returncode == 0
    return done


def test_watch_into_a_pipe(command):
    """A pipe gets lines, or JSON objects, without control characters."""
    assert not CONTROLS.search(piped(*command("watch", "--times", "1")).stdout)
    done = piped(*command("watch", "shop", "--every", "0.2", "--times", "2", "--json"))
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(look["room"], look["waiting"]) for look in looks] == [("shop", WAITING)] * 2
    assert looks[0]["at"] < looks[1]["at"]


def test_a_bar_is_on_the_terminal_and_not_in_the_file(command, tmp_path):
    """The bar is on the terminal, not in the exported file, and gone at the end."""
    path = tmp_path / "shop.jsonl"
    with path.open("wb") as file, Terminal(command("export", "shop"), stdout=file) as terminal:
        assert terminal.end() == 0
    assert "exporting shop" in terminal.text
    assert CONTROLS.sub("", terminal.text).splitlines()[-1].endswith("0 session(s) exported")
    assert [*map(json.loads, path.read_text().splitlines())][-1]["end"]["lines"] > 1
    with Terminal(command("import", "shop", "-i", str(path))) as terminal:
        assert terminal.end() == 0
    assert "importing shop" in terminal.text


def test_no_bar_where_the_data_go_to_the_terminal(command):
    """No bar is drawn while data are printed to the same terminal."""
    with Terminal(command("export", "shop")) as terminal:
        assert terminal.end() == 0
    assert '{"format":"waitroom-room/1"' in terminal.text
    assert "exporting" not in terminal.text


def test_no_bar_in_a_pipe(command):
    """No bar is drawn in a pipe."""
    assert piped(*command("export", "shop")).stderr == (
        f"shop: {WAITING} place(s) and 0 session(s) exported\n"
    )


COUNT = """
from sidecar.kit import progress
progress._UPDATE_INTERVAL_S = 0
with progress.progress("counting", total=%s) as advance:
    for _ in range(2):
        input()
        advance(250)
    input()
"""


@pytest.mark.parametrize(("total", "shown"), [(1000, " 50%"), (None, " 500")])
def test_a_bar_says_how_far_it_is(total, shown):
    """A bar shows a share if the total is known, else a count."""
    with Terminal([sys.executable, "-c", COUNT % total]) as terminal:
        terminal.press("\n\n")
        wait_until(lambda: terminal.read() and shown in terminal.text, shown)
        terminal.press("\n")
        assert terminal.end() == 0
