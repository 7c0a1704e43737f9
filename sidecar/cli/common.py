"""What the commands share that read the settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from sidecar.kit.errors import ConfigError
from sidecar.settings import DEFAULT_FILE, load

if TYPE_CHECKING:
    from sidecar.settings import Settings

CONFIG_HELP = "Settings; waitroom.toml when it exists. WAITROOM_* variables override it."
CONFIG = click.option("--config", "-c", "path", metavar="FILE", help=CONFIG_HELP)


def load_settings(path: str | None) -> Settings:
    """Raises ConfigError, which ends the command."""
    try:
        return load(path)
    except ConfigError as error:
        if path is None and not Path(DEFAULT_FILE).exists():
            nothing = f"there is no {DEFAULT_FILE} in this folder, and no --config FILE was given"
            error.problems.insert(0, nothing)
        raise


def fail(problems: list[str]) -> NoReturn:
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1)
