"""What an installation may lack: `pip install "waitroom[EXTRA]"`."""

from importlib import import_module

from sidecar.kit.errors import ConfigError

#: What is imported first of each extra.
_MODULES = {"sql": "sqlalchemy", "memory": "fakeredis"}


def require(extra: str, *, setting: str) -> None:
    """Raises ConfigError, naming the setting that needs the extra, where it is not installed."""
    try:
        import_module(_MODULES[extra])
    except ModuleNotFoundError:
        how = f'pip install "waitroom[{extra}]"'
        problem = f"{setting}: {_MODULES[extra]} is not installed; install it: {how}"
        raise ConfigError([problem]) from None
