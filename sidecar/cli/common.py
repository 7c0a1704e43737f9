"""What the commands share: the settings, and a replica's ops listener."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sidecar.kit.errors import ConfigError
from sidecar.settings import DEFAULT_FILE, load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientResponse

    from sidecar.cli.connection import Connection
    from sidecar.settings import Settings

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
    connection: Connection, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> Any:
    return asyncio.run(ask(connection, method, path, body, timeout_s=timeout_s))


async def ask(
    connection: Connection, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> Any:
    """The document that the ops listener answers. Raises ClickException with what it answered."""
    async with asking(connection, method, path, body, timeout_s=timeout_s) as reply:
        return await _document(reply, connection.address())


@contextlib.asynccontextmanager
async def asking(
    connection: Connection, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> AsyncIterator[ClientResponse]:
    """Asks the ops listener. Raises RefusedError with what it answered, ClickException when
    nothing answers, or no replica does."""
    import aiohttp  # noqa: PLC0415 - the other commands start faster without

    address = connection.address()
    connector: aiohttp.BaseConnector = aiohttp.TCPConnector()
    base = address
    if address.startswith("unix:"):
        connector, base = aiohttp.UnixConnector(address.removeprefix("unix:")), "http://localhost"
    headers, source = {"X-Waitroom-Operator": f"{_user()} (command line)"}, ""
    if path.startswith(("/admin/", "/v1/")):
        token, source = connection.token()
        headers["Authorization"] = f"Bearer {token}"
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(
                method, f"{base}{path}", json=body, headers=headers, allow_redirects=False
            ) as reply,
        ):
            if reply.status >= 300:
                raise _refused(reply, await _document(reply, address), source)
            yield reply
    except BrokenPipeError:  # of our own output: whoever read it has gone
        raise
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise click.ClickException(
            f"no replica answers at {address}: {_reason(error)}; "
            "is it running, and is this its ops_listen (--url, WAITROOM_URL)?"
        ) from None


async def _document(reply: ClientResponse, address: str) -> dict[str, Any]:
    """Raises ClickException for what no replica answers."""
    try:
        document = await reply.json(content_type=None)
    except ValueError:
        document = None
    if not isinstance(document, dict) or (reply.status >= 300 and "title" not in document):
        raise click.ClickException(
            f"{address} answers, but not as a replica's ops listener does (HTTP {reply.status}): "
            "--url or WAITROOM_URL is the address that ops_listen names, such as "
            "http://127.0.0.1:8401, and not the site's"
        )
    return document


def _refused(reply: ClientResponse, document: dict[str, Any], source: str) -> RefusedError:
    if reply.status == 401:
        document["detail"] = f"{document.get('detail', '')} It was that of {source}.".strip()
    elif reply.status == 404 and "detail" not in document:
        document["detail"] = (
            f"Nothing is at {reply.url}: is that the ops listener (not edge_listen) of a replica "
            "of this version?"
        )
    return RefusedError(reply.status, document)


def _reason(error: Exception) -> str:
    """aiohttp's own text names the host again, and how it would have verified it."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    number = getattr(getattr(error, "os_error", None), "errno", None) or 0
    return os.strerror(number).lower() if number > 0 else str(error) or type(error).__name__


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "somebody"


def load_settings(path: str | None) -> Settings:
    try:
        return load(path)
    except ConfigError as error:
        if path is None and not Path(DEFAULT_FILE).exists():
            nothing = f"there is no {DEFAULT_FILE} in this folder, and no --config FILE was given"
            error.problems.insert(0, nothing)
        fail(error.problems)
        raise  # never reached


def fail(problems: list[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1)
