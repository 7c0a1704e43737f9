"""What the tests with a real nginx share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", params=[False, True], ids=["kept", "stamps"])
def stamps(request: pytest.FixtureRequest) -> bool:
    """Whoever is inside passes by what nginx keeps of them, or by what they bring themselves."""
    return bool(request.param)
