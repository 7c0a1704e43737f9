"""Commands."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from sidecar import __version__
from sidecar.base.errors import ConfigError
from sidecar.base.settings import load

if TYPE_CHECKING:
    from sidecar.base.settings import Settings

_CONFIG = click.option(
    "--config", "-c", "path", default=None, metavar="FILE",
    help="Settings; waitroom.toml when it exists. WAITROOM_* variables override it.",
)  # fmt: skip


@click.group()
@click.version_option(__version__)
def main() -> None:
    """A virtual waiting room beside the nginx you already run."""


@main.command()
@_CONFIG
def serve(path: str | None) -> None:
    """Run one replica."""
    import uvloop  # noqa: PLC0415 - the other commands start faster without

    from sidecar.app import serve as run  # noqa: PLC0415

    settings = _load(path)
    _start_logging(settings)
    try:
        uvloop.run(run(settings))
    except ConfigError as error:
        _fail(error.problems)


@main.command("check-config")
@_CONFIG
def check_config(path: str | None) -> None:
    """Print every problem of a configuration; exit 1 if there is any."""
    settings = _load(path)
    click.echo(f"The configuration is right: {len(settings.rooms)} room(s), "
               f"{', '.join(sorted(settings.rooms))}.")  # fmt: skip


@main.command()
@_CONFIG
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait.")
def healthcheck(path: str | None, timeout: float) -> None:
    """Exit 0 when the replica on this machine is ready."""
    try:
        asyncio.run(_ops(_load(path), "GET", "/readyz", timeout_s=timeout))
    except click.ClickException as error:
        click.echo(f"not ready: {error.message}", err=True)
        sys.exit(1)
    click.echo("ready")


@main.command()
@click.argument("url")
@click.option("--room", metavar="NAME", help="The room's name, if the page does not tell.")
@click.option("--ops-port", default=8401, show_default=True, help="Must be closed to the world.")
@click.option("--edge-port", default=8400, show_default=True, help="Must be closed to the world.")
@click.option("--insecure", is_flag=True, help="Take any https certificate.")
@click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for an answer.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(  # noqa: PLR0913, PLR0917 - one for each option
    url: str, room: str | None, ops_port: int, edge_port: int, insecure: bool, timeout: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Visit a page from outside and say what is right and which line is missing.

    Exit 0 when there is no problem. Takes up to two places, and gives them up.
    """
    from sidecar.doctor import Options, diagnose, report  # noqa: PLC0415

    options = Options(room, ops_port, edge_port, verify=not insecure, timeout_s=timeout)
    try:
        findings = asyncio.run(diagnose(url, options))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(report.as_json(findings))
    else:
        is_tty = sys.stdout.isatty()
        columns = shutil.get_terminal_size().columns if is_tty else 0
        click.echo(report.as_text(findings, columns=columns, colour=is_tty))
    sys.exit(1 if report.has_problem(findings) else 0)


@main.command()
@click.argument("file", default=None, required=False, metavar="[WAITING.HTML]")
def page(file: str | None) -> None:
    """Print the waiting page as nginx includes it: waitroom/waiting.conf.

    To be made again, and nginx to be reloaded, when you have changed waiting.html.
    """
    from sidecar.web.page import find_static, for_nginx  # noqa: PLC0415

    path = Path(file) if file else find_static() / "waiting.html"
    try:
        click.echo(for_nginx(path.read_text(encoding="utf-8")), nl=False)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None


@main.group()
@_CONFIG
@click.pass_context
def rooms(context: click.Context, path: str | None) -> None:
    """Look at rooms and change them, through a replica's ops listener."""
    context.obj = _load(path)


@rooms.command("list")
@click.pass_obj
def list_rooms(settings: Settings) -> None:
    """One line a room."""
    found = _call(settings, "GET", "/admin/rooms")["rooms"]
    click.echo(f"{'room':<20} {'waiting':>9} {'inside':>9} {'cap':>9}  wait")
    for room in found:
        cap = room["settings"]["total_active_users"]
        click.echo(f"{room['room']:<20} {room['waiting']:>9} {room['active']:>9} {cap:>9}  "
                   f"{_wait(room['wait_seconds'])}")  # fmt: skip


@rooms.command()
@click.argument("room")
@click.pass_obj
def show(settings: Settings, room: str) -> None:
    """Everything about one room, as JSON."""
    click.echo(json.dumps(_call(settings, "GET", f"/admin/rooms/{room}"), indent=2))


@rooms.command("set")
@click.argument("room")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
@click.pass_obj
def set_(settings: Settings, room: str, changes: tuple[str, ...]) -> None:
    """Change settings of a running room; all replicas follow within two seconds.

    A value is JSON or text; "null" goes back to the file's value.
    """
    body = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            _fail([f"{change}: write SETTING=VALUE, such as total_active_users=200"])
        try:
            body[name] = json.loads(text)
        except ValueError:
            body[name] = text
    now = _call(settings, "PATCH", f"/admin/rooms/{room}", body)
    for name in body:
        click.echo(f"{name} = {json.dumps(now['settings'][name])}")


@rooms.command()
@click.argument("room")
@click.confirmation_option(prompt="Everybody in line loses their place. Sure?")
@click.pass_obj
def reset(settings: Settings, room: str) -> None:
    """Empty a room's line; who is inside stays."""
    removed = _call(settings, "POST", f"/admin/rooms/{room}/reset")["removed"]
    click.echo(f"{removed} place(s) removed")


@rooms.command()
@click.argument("room")
@click.argument("visitor")
@click.pass_obj
def release(settings: Settings, room: str, visitor: str) -> None:
    """End one visitor's session or place."""
    _call(settings, "POST", f"/admin/rooms/{room}/visitors/{visitor}/release")
    click.echo(f"{visitor} released")


def _call(settings: Settings, method: str, path: str, body: object = None) -> Any:
    return asyncio.run(_ops(settings, method, path, body))


async def _ops(
    settings: Settings, method: str, path: str, body: object = None, *, timeout_s: float = 10
) -> Any:
    """Asks the ops listener. Raises ClickException with what it answered."""
    import aiohttp  # noqa: PLC0415 - the other commands start faster without

    listen = settings.ops_listen
    connector: aiohttp.BaseConnector = aiohttp.TCPConnector()
    host = listen
    if listen.startswith("unix:"):
        connector, host = aiohttp.UnixConnector(listen.removeprefix("unix:")), "localhost"
    if host.startswith("0.0.0.0:"):
        host = "127.0.0.1:" + host.rpartition(":")[2]
    headers = {"Authorization": f"Bearer {settings.admin_token}"}
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(method, f"http://{host}{path}", json=body, headers=headers) as reply,
        ):
            document = await reply.json(content_type=None)
            if reply.status >= 400:
                lines = [document.get("title", ""), document.get("detail", "")]
                lines += document.get("errors", [])
                raise click.ClickException("\n".join(line for line in lines if line))
            return document
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise click.ClickException(
            f"no replica answers at {listen}: {error or type(error).__name__}; "
            "is it running, and is ops_listen the same?"
        ) from None


def _load(path: str | None) -> Settings:
    try:
        return load(path)
    except ConfigError as error:
        _fail(error.problems)
        raise  # never reached


def _fail(problems: list[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1)


def _wait(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _start_logging(settings: Settings) -> None:
    level = getattr(logging, settings.log_level.upper())
    json_lines = settings.log_format == "json"
    last: Any = (
        structlog.processors.JSONRenderer()
        if json_lines
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=max(level, logging.WARNING), stream=sys.stderr)
