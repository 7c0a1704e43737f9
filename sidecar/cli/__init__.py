"""Commands."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Any

import click
import structlog

from sidecar.cli import version
from sidecar.cli.check_config import check_config
from sidecar.cli.common import CONFIG, Unreachable, fail, load_settings
from sidecar.cli.completion import completion
from sidecar.cli.connection import ReplicaCommand
from sidecar.cli.grants import grant
from sidecar.cli.migrate import migrate
from sidecar.cli.printing import JSON, coloured, print_json
from sidecar.dashboard.commands import hash_password, operators
from sidecar.gate.commands.nginx_key import nginx_key
from sidecar.gate.commands.page import page
from sidecar.history.commands import history, report
from sidecar.jobs.commands.jobs import jobs
from sidecar.jobs.commands.targets import targets
from sidecar.kit.errors import ConfigError
from sidecar.kit.extras import require
from sidecar.leases.commands import leases
from sidecar.limits.commands import limits
from sidecar.lottery.commands import verify_draw
from sidecar.rooms.commands.rooms import rooms
from sidecar.setup.commands import init, update_files
from sidecar.webhooks.commands import webhooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.cli.connection import Connection
    from sidecar.settings import Settings


#: As a shell has it: 128, and the signal's number.
INTERRUPTED = 130


class _Commands(click.Group):
    def main(self, args: Sequence[str] | None = None, *others: Any, **kwargs: Any) -> Any:
        """Ends quietly when the reader of the output has gone, as in `report | head`. click does so
        while a command runs, and leaves what is still in the buffer to Python's own end."""
        words = list(sys.argv[1:] if args is None else args)
        # Where an id may begin with a hyphen, click takes no letter for an option.
        if words[-1:] == ["-h"]:
            words[-1] = "--help"
        try:
            return super().main(words, *others, **kwargs)
        finally:
            try:
                sys.stdout.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            fail(error.problems)
        except (KeyboardInterrupt, click.Abort) as error:
            # A prompt turns Ctrl-C into Abort, and so it does an end of the input or a no.
            if not isinstance(error.__context__ or error, KeyboardInterrupt):
                raise
            sys.exit(INTERRUPTED)


_EXIT_CODES = (
    "Exit codes: 0 done, 1 a problem, 2 wrong use, 3 a replica, Redis or a database does not "
    "answer, 130 Ctrl-C."
)


@click.group(
    cls=_Commands, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=version.show,
    help="Show the versions of this program, Python and Redis.",
)
def main() -> None:
    """A virtual waiting room beside the nginx you already run."""


for command in (
    *(rooms, leases, limits, jobs, targets, webhooks, history, operators),
    *(grant, migrate, nginx_key, page, report, verify_draw),
    *(check_config, completion, hash_password, init, update_files),
):
    main.add_command(command)


@main.command()
@CONFIG
def serve(path: str | None) -> None:
    """Run one replica."""
    import uvloop  # noqa: PLC0415 - the other commands start faster without

    from sidecar.app import serve as run  # noqa: PLC0415

    settings = load_settings(path)
    _start_logging(settings)
    uvloop.run(run(settings))


def _listen(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and (not re.fullmatch(r"[^\s/]+:[0-9]{1,5}", value) or value.startswith("unix:")):
        raise click.BadParameter("write HOST:PORT, such as 127.0.0.1:8402")
    return value


@main.command("run-jobs")
@CONFIG
@click.option(
    "--at-a-time",
    "most",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Calls under way of one target, at most; capped by the target's own limit.",
)
@click.option(
    "--grace",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="Seconds that calls under way get when the process stops.",
)
@click.option(
    "--listen",
    default="",
    metavar="HOST:PORT",
    callback=_listen,
    help="Serve /healthz and /metrics here (default: disabled).",
)
def run_jobs(path: str | None, most: int, grace: float, listen: str) -> None:
    """Run one worker, which makes the calls of jobs. As many as you like, on any machines."""
    import uvloop  # noqa: PLC0415

    settings = load_settings(path)
    _start_logging(settings)
    require("sql", setting="jobs")
    from sidecar.jobs.wiring import run_jobs as run  # noqa: PLC0415

    uvloop.run(run(settings, most=most, grace_s=grace, listen=listen))


@main.command(cls=ReplicaCommand)
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait.")
@JSON
@click.pass_obj
def healthcheck(connection: Connection, timeout: float, *, as_json: bool) -> None:
    """Exit 0 when the replica on this machine is ready, 1 when it is not, 3 when nothing answers.
    Needs no token."""
    late = Unreachable(f"no answer within {timeout:g} s")
    found: list[Any] = [late]

    def ask() -> None:
        try:
            with connection.client(timeout_s=timeout, has_token=False) as client:
                found.append(client.request("GET", "/readyz"))
        except click.ClickException as error:
            found.append(error)

    import waitroom  # noqa: F401, PLC0415 - takes long, and is no part of the waiting

    # The client's timeout is for each part of the answer, this one for all of it.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout)
    ready = found[-1]
    if isinstance(ready, click.ClickException):
        fail([f"not ready: {ready.message}"], ready.exit_code)
    (print_json if as_json else click.echo)(ready if as_json else ready["status"])


@main.command()
@click.argument("url")
@click.option("--room", metavar="NAME", help="The room's name, if the page does not show it.")
@click.option("--ops-port", default=8401, show_default=True, help="Must be closed to the world.")
@click.option("--edge-port", default=8400, show_default=True, help="Must be closed to the world.")
@click.option("--insecure", is_flag=True, help="Take any https certificate.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, help="Seconds to wait.")
@JSON
def doctor(url: str, *, insecure: bool, as_json: bool, **options: Any) -> None:
    """Visit a page from outside and say what is right and which line is missing.

    Exit 0 when there is no problem. Takes up to two places, and gives them up.
    """
    from sidecar.doctor import Options, diagnose, findings  # noqa: PLC0415

    try:
        found = asyncio.run(diagnose(url, Options(verify=not insecure, **options)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(findings.as_json(found))
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        click.echo(findings.as_text(found, columns=columns, coloured=coloured))
    sys.exit(1 if findings.count(found, findings.Level.PROBLEM) else 0)


def _start_logging(settings: Settings) -> None:
    level = getattr(logging, settings.log_level.upper())
    last: Any = structlog.processors.JSONRenderer()
    if settings.log_format != "json":
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
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
