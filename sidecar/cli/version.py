"""waitroom --version: print the versions of this program, Python, and Redis."""

import os
import platform

import click

from sidecar import __version__
from sidecar.settings.file import find_file


def show() -> None:
    """Print the versions. Redis is left out if no settings name it or the settings are wrong."""
    click.echo(f"waitroom {__version__}, Python {platform.python_version()}")
    if find_file(None) or os.environ.keys() & {"WAITROOM_STORE", "WAITROOM_STORE_FILE"}:
        click.echo(_format_redis_version(), nl=False)


def _format_redis_version() -> str:
    from sidecar.kit.errors import InputError, StoreError  # noqa: PLC0415
    from sidecar.settings.load import load  # noqa: PLC0415
    from sidecar.storage.redis.one_server import ask_server  # noqa: PLC0415

    try:
        server = ask_server(load(None).store, lambda client: client.info("server"))
    except InputError:
        return ""
    except StoreError as error:
        return f"Redis does not answer: {error}\n"
    if server is None:
        return ""
    name = "Valkey" if "valkey_version" in server else "Redis"
    return f"{name} {server.get('valkey_version', server['redis_version'])}\n"
