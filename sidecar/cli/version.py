"""waitroom --version: this program, Python, and the Redis that the settings name."""

from __future__ import annotations

import os
import platform

import click

from sidecar import __version__
from sidecar.settings.file import find_file

_VARIABLES = ("WAITROOM_STORE", "WAITROOM_STORE_FILE")


def show() -> None:
    """Redis is left out where the settings name none, and where they cannot be read."""
    click.echo(f"waitroom {__version__}, Python {platform.python_version()}")
    if (find_file(None) or any(name in os.environ for name in _VARIABLES)) and (said := _redis()):
        click.echo(said)


def _redis() -> str:
    from sidecar.kit.errors import ConfigError, StoreError  # noqa: PLC0415
    from sidecar.settings.load import load  # noqa: PLC0415
    from sidecar.storage.redis.one_server import ask_server  # noqa: PLC0415

    try:
        server = ask_server(load(None).store, lambda client: client.info("server"))
    except ConfigError:
        return ""
    except StoreError as error:
        return f"Redis does not answer: {error}"
    if server is None:
        return ""
    name = "Valkey" if "valkey_version" in server else "Redis"
    return f"{name} {server.get('valkey_version', server['redis_version'])}"
