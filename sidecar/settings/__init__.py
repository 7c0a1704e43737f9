"""The settings: a TOML file, WAITROOM_* variables over it, and what may stand in them."""

from sidecar.settings.environment import ENV_PREFIX
from sidecar.settings.load import DEFAULT_FILE, SYSTEM_FILE, find_file, load, read_values
from sidecar.settings.model import (
    DEFAULT_OPS_LISTEN,
    DEMO_SECRET,
    MIN_ADMIN_TOKEN_LENGTH,
    MIN_SECRET_LENGTH,
    RESERVED_NAMES,
    Settings,
)

__all__ = [
    "DEFAULT_FILE",
    "DEFAULT_OPS_LISTEN",
    "DEMO_SECRET",
    "ENV_PREFIX",
    "MIN_ADMIN_TOKEN_LENGTH",
    "MIN_SECRET_LENGTH",
    "RESERVED_NAMES",
    "SYSTEM_FILE",
    "Settings",
    "find_file",
    "load",
    "read_values",
]
