"""The measurement of an opening, at a small size: everybody stands where the lot says, and the
report says what was found."""

import json
from dataclasses import replace

from loadtest import machine
from loadtest.opening import report
from loadtest.opening.measure import Amount, measure

TINY = Amount(visitors=400, latecomers=40, replicas=2, rounds=2)


async def test_an_opening_is_measured_and_told(tmp_path):
    """A real server, few visitors: all are told, as many as fit are called, others are behind."""
    round_ = await measure(TINY)
    assert round_.problems == []
    assert round_.called == 8
    assert 0 < round_.first_s <= round_.answered_s
    assert {"beat.lua", "enter.lua"} <= round_.before.keys()
    assert {"beat.lua", "enter.lua", "snapshot.lua"} <= round_.after.keys()
    longest = max(ms for name, held in round_.after.items() if ".lua" in name for ms in held)
    assert report.longest([round_]) == [longest]
    text = report.write([round_, round_], TINY, machine.describe(), tmp_path)
    for part in ("400 in the pre-queue", "| beat.lua |", "all visitors answered"):
        assert part in text
    told = json.loads((tmp_path / "opening.json").read_text())
    assert told["rounds"][0]["after"]["beat.lua"]["runs"] == len(round_.after["beat.lua"])


async def test_what_holds_redis_too_long_is_a_problem():
    """The median of the rounds counts: one may be the machine's."""
    good = replace(await measure(replace(TINY, visitors=50)), after={"beat.lua": [1.0, 2.0]})
    bad = replace(good, after={"beat.lua": [1.0], "sweep.lua": [report.GOAL_MS + 0.1]})
    assert report.problems([good, bad, good]) == []
    assert len(report.problems([bad, good, bad])) == 1
    assert report.problems([replace(good, problems=["lost"])]) == ["lost"]
