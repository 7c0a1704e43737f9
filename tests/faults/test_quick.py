"""The quick subset of fault scenarios, with the same verdicts."""

import pytest

from tests.faults.scenarios_replicas import all_down, kill_one, reload_nginx
from tests.faults.scenarios_store import emptied, evicted, stopped
from tests.faults.world import QUICK


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        kill_one,
        emptied,
        pytest.param(evicted, marks=pytest.mark.full),
        pytest.param(stopped, marks=pytest.mark.full),
        pytest.param(all_down, marks=pytest.mark.full),
        pytest.param(reload_nginx, marks=pytest.mark.full),
    ],
)
async def test_what_must_hold_holds(scenario):
    row = await scenario(QUICK)
    assert row.held, (row.broken, row.notes)
