"""Problems that invalid settings report."""

import pytest

from sidecar.kit.errors import InputError
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load

SECRET = "s" * 32
GOOD = {"WAITROOM_SECRET_KEYS": SECRET, "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "5"}


def problems(path: str | None = None, **environ: str) -> list[str]:
    """Return the problems of the settings file at `path` and the environment. Fail if there are
    none."""
    with pytest.raises(InputError) as caught:
        load(path, environ)
    return caught.value.problems


def room_problems(**values: object) -> list[str]:
    """Return the problems of a room's settings. Fail if there are none."""
    with pytest.raises(InputError) as caught:
        RoomSettings(total_active_users=1).changed(values)
    return caught.value.problems
