"""What the commands share that read the settings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import click

from sidecar.kit.errors import ConfigError
from sidecar.settings.file import DEFAULT_FILE, SYSTEM_FILE, find_file

if TYPE_CHECKING:
    from sidecar.settings.model import Settings

CONFIG_HELP = "Settings; waitroom.toml here or in /etc/waitroom. WAITROOM_* variables override it."
CONFIG = click.option("--config", "-c", "path", metavar="FILE", help=CONFIG_HELP)


def load_settings(path: str | None, environ: dict[str, str] | None = None) -> Settings:
    """Raises ConfigError, which ends the command."""
    from sidecar.settings.load import load  # noqa: PLC0415

    try:
        return load(path, environ)
    except ConfigError as error:
        if find_file(path) is None:
            nothing = (
                f"there is no {DEFAULT_FILE} in this folder or in {SYSTEM_FILE.parent}, and no "
                "--config FILE was given; waitroom init writes one"
            )
            error.problems.insert(0, nothing)
        raise


class Unreachable(click.ClickException):
    """A replica, Redis or a database does not answer: try later, or look at the address."""

    exit_code = 3


class BadValue(click.ClickException):
    """What was given is not allowed; said without the usage, which is right."""

    exit_code = 2


def fail(problems: list[str], code: int = 1) -> NoReturn:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(code)
