"""The benchmark: one real run of a few seconds."""

import shutil

import pytest

from loadtest.bench.runs import Load, measure
from loadtest.bench.systems import visit
from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS


class Wrong:
    """Waitroom, asked for something else than it serves."""

    def __init__(self, system, load):
        self._system, self._load = system, load

    def __getattr__(self, name):
        return getattr(self._system, name)

    def prepare(self, _workload):
        return self._load


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_seconds_of_waitroom():
    from loadtest.bench.systems import in_memory
    from loadtest.bench.waitroom import Waitroom

    with in_memory(), Waitroom() as system:
        kept_s = VERDICT_TTL_MS // 1000  # so long until the replicas are surely asked again
        inside = measure(system, "admitted", warm_s=1, seconds=kept_s)
        wrong = Wrong(system, Load([visit("/nowhere", "site")]))
        flood = measure(wrong, "rush", warm_s=0, seconds=1)
        folder = system.site.folder
    assert inside.problems == []
    assert inside.totals.requests > 100
    assert inside.cpu["nginx"] > 0
    assert inside.cpu["replicas"] > 0
    assert (inside.inside, inside.cap) == (2000, 2000)
    assert any("status above 399" in problem for problem in flood.problems)
    assert any("site was due, status 404 was served" in problem for problem in flood.problems)
    assert not folder.exists()
