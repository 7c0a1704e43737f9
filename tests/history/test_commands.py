"""The commands waitroom migrate, report and history."""

import asyncio
import json
import time

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.visitors.visitor_number import visitor_number
from tests.support.databases import Sqlite
from tests.support.visitors import queue


@pytest.fixture
def waitroom(tmp_path):
    """Return a function that runs a command with a room and a history, by default in SQLite."""

    def run(*words, history=None):
        history = Sqlite(tmp_path).url if history is None else history
        config = tmp_path / "waitroom.toml"
        config.write_text(
            f'secret_keys = ["{"k" * 32}"]\nhistory = "{history}"\n'
            "[rooms.shop]\ntotal_active_users = 1\n"
        )
        return CliRunner().invoke(main, [*words[:1], "--config", str(config), *words[1:]])

    return run


async def test_a_report_can_be_read(waitroom, record, tmp_path):
    """The commands print reports, stays and operators' actions as text, JSON and CSV."""

    async def ask(*words):
        return (await asyncio.to_thread(waitroom, *words)).stdout

    it = await record(Sqlite(tmp_path).url, name="shop", total_active_users=0)
    it.turn.now_ms = time.time_ns() // 1_000_000 - 60_000  # the command has no other clock
    tickets = await queue(it.room.store, 3)
    it.turn.forward(1)
    await it.room.store.leave(tickets[0].visitor)
    await it.room.store.configure({"message": "soon"}, by="night shift")
    await it.record()
    text = await ask("report", "shop")
    assert "Stays that began                     3" in text
    assert "gave up waiting                    1  33.3% of those who queued" in text
    assert "Did not enter                        3" in text
    assert "all were called in order" in text
    assert "Wait estimates              none" in text
    assert json.loads(await ask("report", "shop", "--format", "json"))["waiting"] == 2
    assert (await ask("report", "shop", "--format", "csv")).count("\n") == 2
    header, *lines = (await ask("history", "stays", "shop", "--from", "1h")).splitlines()
    assert header.startswith("visitor,queue_order,")
    assert {line.partition(",")[0] for line in lines} == {ticket.visitor for ticket in tickets}
    assert 'night shift\tchange\t\tmessage: "soon"' in await ask("history", "changes", "shop")
    told = json.loads(await ask("history", "visitor", "shop", tickets[2].visitor))
    number = visitor_number(tickets[2].visitor)
    assert json.loads(await ask("history", "visitor", "shop", number.lower())) == told
    assert told["places"][0]["position"] == 3
    assert told["places"][-1]["position"] == 2


def test_a_report_has_the_local_time(waitroom, monkeypatch):
    """The period of a report is in the time of this machine, to the second, with its zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ-5:30")
        time.tzset()
        assert waitroom("migrate").exit_code == 0
        times = "--from", "2026-11-27T18:00Z", "--to", "2026-11-27T19:30:05.123Z"
        head, *_ = waitroom("report", "shop", *times).stdout.splitlines()
    time.tzset()
    assert head == "shop, 2026-11-27 23:30:00 to 2026-11-28 01:00:05 XYZ"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("report", "nope"), 1, "no room is named 'nope'; there are shop"),
        (("report", "shop", "--from", "soon"), 2, "--from: write a time such as"),
        (("history", "visitor", "shop", "x"), 2, "that is no visitor's id"),
        (("history", "visitor", "shop", "a" * 22), 1, "nothing was recorded of"),
    ],
)
def test_a_mistake_is_named(waitroom, words, code, said):
    """The command exits with 1, or with 2 for wrong use, and names the mistake."""
    done = waitroom(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ("", "history: names no database; set it"),
        ("sqlite:////nowhere/at/all.db", "history: /nowhere/at is no folder"),
        ("mariadb://root:hidden@127.0.0.1:1/x", "the history's database"),
        ("oracle://x", "history: write sqlite:///path, mysql://"),
    ],
)
def test_a_database_that_cannot_be_used_is_named(waitroom, history, said):
    """The message does not have the password."""
    done = waitroom("migrate", history=history)
    assert done.exit_code == (3 if "127.0.0.1" in history else 1)
    assert said in done.stderr
    assert "hidden" not in done.stderr
    assert isinstance(done.exception, SystemExit)
