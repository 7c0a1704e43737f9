"""Commands mark a setting that was changed at run time, and say how to take the change back."""

import json
import re
import shlex

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from tests.support.processes import wait_until

CONFIG = """
[rooms.shop]
total_active_users = 300
exempt_addresses = ["10.0.0.0/8"]
footer = [{{ text = "Help", address = "/help" }}]

[rooms.tickets]
total_active_users = 50
"""
BACK = "waitroom rooms set shop total_active_users=null"


@pytest.fixture
def run(tmp_path, start_replica, monkeypatch):
    """Start a replica, and return a function that runs a command in its settings file's folder."""
    with start_replica(tmp_path, CONFIG) as file:
        monkeypatch.chdir(file.parent)
        yield lambda *words: CliRunner().invoke(main, words)


def test_a_change_at_run_time_is_marked_until_it_is_taken_back(run, tmp_path):
    """`rooms list` and `check-config` name both values. The command that they print works."""
    assert run("check-config").output.count("changed") == 0
    run("rooms", "set", "shop", "total_active_users=1", "message=Back soon. Sorry")
    listed = run("rooms", "list")
    assert [row.split("\t")[4] for row in listed.stdout.splitlines()] == [
        "cap",
        "1, file: 300",
        "50",
    ]
    for said in (listed.stderr, run("check-config").output):
        assert (
            f"shop: total_active_users: 1, file: 300 (changed at run time; take it back: {BACK})"
            in said
        )
        assert 'shop: message: "Back soon. Sorry", file: not set' in said
        assert "tickets:" not in said
    assert run(*shlex.split(BACK)[1:]).exit_code == 0
    assert "total_active_users" not in run("check-config").output
    assert run("rooms", "list").stdout.splitlines()[1].split("\t")[4] == "300"


def test_a_hold_is_shown_with_its_end_and_reason(run):
    assert run("rooms", "hold", "shop", "90", "--why", "new database").output.startswith(
        "shop is paused: 0 waiting"
    )
    shown = run("rooms", "list").stderr
    assert re.search(
        r'shop: hold: \{"until": "20[0-9T:.+-]+", "why": "new database"\}, file', shown
    )
    assert run("rooms", "resume", "shop").output.startswith("shop is running")
    assert "hold" not in run("rooms", "list").stderr


def test_an_adaptive_room_shows_its_ceiling_and_learns_anew(run):
    """`rooms list` and `watch` have the cap in force, and `rooms log` has who let it begin anew."""
    run("rooms", "set", "shop", 'adaptive={"mode": "on", "p90": 1, "min": 7}')

    def is_shown(cap):
        return run("rooms", "list").stdout.splitlines()[1].split("\t")[4] == cap

    wait_until(lambda: is_shown("7 (of 300) no signal"), "the first tick", timeout_s=20)
    row = run("rooms", "watch", "shop", "--times", "1").stdout.splitlines()[1].split()
    assert row[4:6] == ["0", "7"]
    assert run("rooms", "reset-learned", "shop").stdout == "shop learns its site anew\n"
    assert "\treset-learned\t" in run("rooms", "log", "shop").stdout
    run("rooms", "set", "shop", 'adaptive={"p90": 1}')
    wait_until(lambda: is_shown("300 no signal"), "advice only", timeout_s=20)


def test_what_the_replica_has_not_read_is_named(run, tmp_path):
    """A changed file is not in force before a reload, and CI without secrets asks no replica."""
    file = tmp_path / "waitroom.toml"
    file.write_text(file.read_text().replace("= 300", '= 400\nsession_duration = "10m"'))
    with file.open("a") as out:
        out.write("[rooms.sale]\ntotal_active_users = 1\n")
    run("rooms", "set", "shop", "total_active_users=1")
    warnings = json.loads(run("check-config", "--json").stdout)["warnings"]
    assert any("total_active_users: 1, file: 400" in each for each in warnings)
    assert "the replica does not have the new room(s) sale: restart it" in warnings
    assert [each for each in warnings if "has not read" in each] == [
        "shop: the replica has not read the new session_duration: reload it"
    ]
    assert "shop: " not in run("check-config", "--no-secrets").output
