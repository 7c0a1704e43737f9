"""The measurement of an opening, at a small size: everybody stands where the lot says, and the
report says what was found."""

import json

from loadtest.opening import NAME, Amount, measure_opening, report
from loadtest.rounds import Rounds

TINY = Amount(visitors=400, latecomers=40, replicas=2, rounds=2)


async def test_an_opening_is_measured_and_told(tmp_path):
    """A real server, few visitors: all are told, as many as fit are called, others are behind."""
    round_ = await measure_opening(TINY)
    assert round_.problems == []
    assert round_.called == 8
    assert 0 < round_.first_s <= round_.answered_s
    assert {"beat.lua", "enter.lua"} <= round_.before.keys()
    assert {"beat.lua", "enter.lua", "snapshot.lua"} <= round_.after.keys()
    longest = max(ms for name, held in round_.after.items() if ".lua" in name for ms in held)
    assert round_.longest_ms == longest
    rounds = Rounds(2)
    for [name] in rounds.turns([NAME]):
        rounds.add(name, round_)
    text = report(rounds, TINY).write(tmp_path)
    for part in ("400 in the pre-queue", "| beat.lua |", "all visitors answered"):
        assert part in text
    told = json.loads((tmp_path / "data/opening.json").read_text())
    assert told["figures"]["rounds"][0]["after"]["beat.lua"] == round_.after["beat.lua"]
