"""The commands `waitroom serve` and `run-jobs`, which run a replica or a worker of jobs."""

import re
from functools import partial

import click

from sidecar.cli.config import CONFIG, load_settings
from sidecar.kit.extras import require


@click.command()
@CONFIG
def serve(path: str | None) -> None:
    """Run one replica."""
    import uvloop  # noqa: PLC0415

    from sidecar.app.log import start_logging  # noqa: PLC0415
    from sidecar.app.replica import serve as run  # noqa: PLC0415

    settings = load_settings(path)
    start_logging(settings.log_level, settings.log_format)
    uvloop.run(run(settings, partial(load_settings, path)))


def _check_listen(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and (not re.fullmatch(r"[^\s/]+:[0-9]{1,5}", value) or value.startswith("unix:")):
        raise click.BadParameter("write HOST:PORT, such as 127.0.0.1:8402")
    return value


@click.command("run-jobs")
@CONFIG
@click.option(
    "--at-a-time",
    "max_calls",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="How many calls this worker makes to one target at a time, within the target's limit.",
)
@click.option(
    "--grace",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="How many seconds to wait for calls in progress when the process stops.",
)
@click.option(
    "--listen",
    default="",
    metavar="HOST:PORT",
    callback=_check_listen,
    help="Serve /healthz and /metrics at this address (default: disabled).",
)
def run_jobs(path: str | None, max_calls: int, grace: float, listen: str) -> None:
    """Run a worker, which makes the calls of jobs. Workers can run on any number of machines."""
    import uvloop  # noqa: PLC0415

    from sidecar.app.log import start_logging  # noqa: PLC0415

    settings = load_settings(path)
    start_logging(settings.log_level, settings.log_format)
    require("sql", setting="jobs")
    from sidecar.app.jobs import run_jobs as run  # noqa: PLC0415

    uvloop.run(run(settings, max_calls=max_calls, grace_s=grace, listen=listen))
