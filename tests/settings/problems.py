"""Loads invalid settings, and returns the problems that are reported."""

import pytest

from sidecar.kit.errors import InputError
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load

SECRET = "s" * 32
GOOD = {"WAITROOM_SECRET_KEYS": SECRET, "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "5"}


def problems(path: str | None = None, **environ: str) -> list[str]:
    """Load the settings file at `path` and the variables `environ`. Return the problems, and fail
    if there are none."""
    with pytest.raises(InputError) as caught:
        load(path, environ)
    return caught.value.problems


def room_problems(**values: object) -> list[str]:
    """Return the problems of these settings of a room. Fail if there are none."""
    with pytest.raises(InputError) as caught:
        RoomSettings(total_active_users=1).with_overrides(values)
    return caught.value.problems
