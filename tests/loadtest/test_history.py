"""The measurement of the history, at a small size: what it makes up, asks and says."""

import json
import time
from dataclasses import asdict, replace

import pytest

from loadtest import machine
from loadtest.history import report
from loadtest.history.lookups import open_history
from loadtest.history.measure import Amount, measure
from loadtest.history.stays import DAY_MS, DAYS, events_of, make_stays, sizes
from sidecar.history.model import StreamEvent
from sidecar.history.stays import apply_event, compute_positions
from sidecar.history.store.tables import entries
from sidecar.storage.sql import database as sql

NOW_MS = 1_800_000_000_000
TINY = Amount(
    stays=3000, rooms=20, partitions=8, lookups=6, written=3, restarts=1, cold=2, waiting=50,
    events=400, rounds=1, databases=("mariadb",), periods=("91d",),
)  # fmt: skip


def test_rooms_are_of_very_different_sizes():
    """A tenth of ten million stays is the largest's, and all have some."""
    rooms = sizes(10_000_000, 1000)
    assert sum(size.stays for size in rooms) == 10_000_000
    assert 900_000 < rooms[0].stays < 1_200_000
    assert 1000 < rooms[-1].stays < 2000
    assert [size.stays for size in rooms] == sorted((s.stays for s in rooms), reverse=True)


@pytest.fixture(scope="module")
def stays():
    return list(make_stays(sizes(20_000, 1)[0], NOW_MS))


def test_stays_are_those_of_a_real_line(stays):
    """Each is the result of its events; the place of each is that of those ahead of it; some
    wait and some are inside now; the same each time."""
    assert len(stays) == 20_000
    assert len({entry.visitor for entry in stays}) == 20_000
    assert stays == list(make_stays(sizes(20_000, 1)[0], NOW_MS))
    for entry in stays[::50]:
        folded = None
        for seq, (ms, kind, visitor, why, more) in enumerate(events_of(entry)):
            folded = apply_event(
                folded, StreamEvent(ms, seq, kind, visitor, why, ms, json.loads(more))
            )
        assert folded == entry
    ahead = []
    for i, entry in enumerate(stays):
        if entry.queued_ms is not None:
            if i >= 15_000 and i % 50 == 0:
                assert compute_positions(entry, ahead)[0][1] == entry.first_position
            ahead.append((entry.queued_ms, entry.called_ms or entry.ended_ms))
    states = {entry.state for entry in stays}
    assert {"waiting", "inside", "ended"} <= states
    assert min(entry.joined_ms for entry in stays) > NOW_MS - (DAYS + 1) * DAY_MS
    assert max(entry.changed_ms for entry in stays) <= NOW_MS


async def test_those_ahead_are_found_however_long_they_wait(stays, tmp_path):
    """The look-up of a place reads few of the others, and finds all who stood ahead; where a line
    takes days, all but a tenth of them."""
    fast = stays[-800:]
    slow = [slowed(entry, fast[0].joined_ms) for entry in fast]
    async with open_history(f"sqlite:///{tmp_path}/history.db") as history:
        await history.migrate()
        async with sql.begin(history._engine) as connection:
            for room, line in (("fast", fast), ("slow", slow)):
                await connection.execute(
                    entries.insert(), [{"room": room, **asdict(entry)} for entry in line]
                )
        for room, line, missed in (("fast", fast, 0), ("slow", slow, 0.1)):
            longest = 0
            for i in range(0, len(line), 11):
                stood = [(e.queued_ms, e.called_ms or e.ended_ms) for e in line[:i] if e.queued_ms]
                ahead = await history.find_waits_ahead(room, line[i], limit=10_000)
                if line[i].queued_ms is not None:
                    told, found = (
                        compute_positions(line[i], stood),
                        compute_positions(line[i], ahead),
                    )
                    assert (1 - missed) * told[0][1] <= found[0][1] <= told[0][1]
                    assert missed or found == told
                    longest = max(longest, told[-1][0] - told[0][0])
            assert (longest > DAY_MS) == (room == "slow")


def slowed(entry, start_ms):
    """As if the line had taken sixty times as long."""
    times = {name: at for name, at in asdict(entry).items() if name.endswith("_ms") and at}
    return replace(entry, **{n: start_ms + 60 * (at - start_ms) for n, at in times.items()})


def test_everything_is_measured_and_told(tmp_path):
    """Real servers, a few rows: look-ups take one partition, and the report says what was found."""
    began_ms = 1000 * time.time()
    result = measure(replace(TINY, home=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert (result.loaded.stays, result.problems()) == (3000, [])
    assert len({plan.lookup for title, plan in result.explained if title == "hot"}) == 3
    assert {len(values) for rooms in result.warm.values() for values in rooms.values()} == {6}
    assert {len(values) for rooms in result.cold.values() for values in rooms.values()} == {2}
    assert result.reports[0].stays >= result.samples[0].stays
    for runs in result.recorded.values():
        assert [run.events for run in runs] == [400]
        assert all(0 < run.seconds < time.time() - began_ms / 1000 for run in runs)
    text = report.report(result).write(tmp_path, machine.describe())
    for part in (
        "3,000 stays",
        "| history (events) | hot | p",
        "| MariaDB |",
        "bytes of the store",
    ):
        assert part in text
    assert (
        json.loads((tmp_path / "data/history.json").read_text())["figures"]["live"]["number"] == 6
    )
