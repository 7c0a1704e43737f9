"""The measurement of the history, at a small size: what it makes up, asks and says."""

import json
import time
from dataclasses import replace

from loadtest.history.measure import Amount, measure, report

NOW_MS = 1_800_000_000_000
TINY = Amount(
    stays=3000, rooms=20, partitions=8, lookups=6, written=3, restarts=1, cold=2, waiting=50,
    events=400, rounds=1, others=(), periods=("91d",),
)  # fmt: skip


def test_everything_is_measured_and_told(tmp_path):
    """Real servers, a few rows: look-ups take one partition, and the report says what was found."""
    began_ms = 1000 * time.time()
    result = measure(replace(TINY, home=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert (result.loaded.stays, result.problems()) == (3000, [])
    assert len({plan.lookup for title, plan in result.explained if title == "hot"}) == 3
    assert set(map(len, result.warm.values())) == {6}
    assert set(map(len, result.cold.values())) == {2}
    assert result.reports[0].stays >= result.samples[0].stays
    for runs in result.recorded.values():
        assert [run.events for run in runs] == [400]
        assert all(0 < run.seconds < time.time() - began_ms / 1000 for run in runs)
    text = report(result).write(tmp_path)
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
