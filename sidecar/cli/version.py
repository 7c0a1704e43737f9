"""waitroom --version: this program, Python, and the Redis that the settings name."""

from __future__ import annotations

import platform

import click
import redis

from sidecar import __version__
from sidecar.kit.errors import ConfigError
from sidecar.settings import load

_PLAIN = ("redis://", "rediss://", "unix://")


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
        store = load(None).store
    except ConfigError:
        return ""
    if not store.startswith(_PLAIN):
        return ""
    try:
        with redis.Redis.from_url(store, socket_connect_timeout=1, socket_timeout=1) as client:
            server = client.info("server")
    except redis.RedisError as error:
        return f"Redis does not answer: {error}"
    name = "Valkey" if "valkey_version" in server else "Redis"
    return f"{name} {server.get('valkey_version', server['redis_version'])}"
