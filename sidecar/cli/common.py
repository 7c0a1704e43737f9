"""What the commands share: the settings, and a replica's ops listener."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import sys
from typing import TYPE_CHECKING, Any

import click

from sidecar.base.errors import ConfigError
from sidecar.base.settings import load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientResponse

    from sidecar.base.settings import Settings

CONFIG = click.option(
    "--config", "-c", "path", default=None, metavar="FILE",
    help="Settings; waitroom.toml when it exists. WAITROOM_* variables override it.",
)  # fmt: skip


class RefusedError(click.ClickException):
    """A replica answered, but not as was wished."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        lines = [document.get("title", ""), document.get("detail", "")]
        lines += document.get("errors", [])
        super().__init__("\n".join(line for line in lines if line))
        self.status = status


def call(
    settings: Settings, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> Any:
    return asyncio.run(ask(settings, method, path, body, timeout_s=timeout_s))


async def ask(
    settings: Settings, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> Any:
    """The document that the ops listener answers. Raises ClickException with what it answered."""
    async with asking(settings, method, path, body, timeout_s=timeout_s) as reply:
        return await reply.json(content_type=None)


@contextlib.asynccontextmanager
async def asking(
    settings: Settings, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> AsyncIterator[ClientResponse]:
    """Asks the ops listener, with the admin token or else the service token. Raises RefusedError
    with what it answered, ClickException when nothing answers."""
    import aiohttp  # noqa: PLC0415 - the other commands start faster without

    listen = settings.ops_listen
    connector: aiohttp.BaseConnector = aiohttp.TCPConnector()
    host = listen
    if listen.startswith("unix:"):
        connector, host = aiohttp.UnixConnector(listen.removeprefix("unix:")), "localhost"
    if host.startswith("0.0.0.0:"):
        host = "127.0.0.1:" + host.rpartition(":")[2]
    headers = {
        "Authorization": f"Bearer {settings.admin_token or settings.service_token}",
        "X-Waitroom-Operator": f"{_user()} (command line)",
    }
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(method, f"http://{host}{path}", json=body, headers=headers) as reply,
        ):
            if reply.status >= 400:
                raise RefusedError(reply.status, await reply.json(content_type=None))
            yield reply
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise click.ClickException(
            f"no replica answers at {listen}: {error or type(error).__name__}; "
            "is it running, and is ops_listen the same?"
        ) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "somebody"


def load_settings(path: str | None) -> Settings:
    try:
        return load(path)
    except ConfigError as error:
        fail(error.problems)
        raise  # never reached


def fail(problems: list[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1)
