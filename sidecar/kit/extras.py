"""Checks that an optional dependency (`pip install "waitroom[EXTRA]"`) is installed."""

from importlib import import_module

from sidecar.kit.errors import InputError

#: A module of each extra. The extra is installed if the module can be imported.
_MODULES = {"sql": "sqlalchemy", "memory": "fakeredis"}


def require(extra: str, *, setting: str) -> None:
    """Raise InputError if the extra is not installed. It names `setting`, which needs the extra."""
    try:
        import_module(_MODULES[extra])
    except ModuleNotFoundError:
        how = f'pip install "waitroom[{extra}]"'
        problem = f"{setting}: {_MODULES[extra]} is not installed; install it: {how}"
        raise InputError([problem]) from None
