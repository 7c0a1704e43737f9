"""waitroom --version: this program, Python, and the Redis that the settings name."""

from __future__ import annotations

import platform

import click

from sidecar import __version__
from sidecar.kit.errors import ConfigError, StoreError
from sidecar.kit.redis.one_server import ask_server
from sidecar.settings import load


def show(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Print it and end. Redis is left out where no settings name one that answers in a second."""
    if not value or context.resilient_parsing:
        return
    click.echo(f"waitroom {__version__}, Python {platform.python_version()}")
    if said := _redis():
        click.echo(said)
    context.exit()


def _redis() -> str:
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
