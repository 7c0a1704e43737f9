"""Defines the option --config, and loads the settings for commands."""

from typing import TYPE_CHECKING, TypeAlias

import click

from sidecar.kit.errors import InputError
from sidecar.settings.file import DEFAULT_FILE, SYSTEM_FILE, find_file

if TYPE_CHECKING:
    from sidecar.settings import model

#: The type of all settings, only for annotations, because its module is slow to import.
Settings: TypeAlias = "model.Settings"
CONFIG_HELP = (
    "The settings file (default: waitroom.toml in the current folder or in /etc/waitroom). "
    "WAITROOM_* environment variables override the settings in the file."
)
CONFIG = click.option("--config", "-c", "path", metavar="FILE", help=CONFIG_HELP)


def load_settings(path: str | None, environ: dict[str, str] | None = None) -> Settings:
    """Load the settings. Raises InputError, whose problems the command prints."""
    from sidecar.settings.load import load  # noqa: PLC0415

    try:
        return load(path, environ)
    except InputError as error:
        if find_file(path) is None:
            hint = (
                f"there is no {DEFAULT_FILE} in this folder or in {SYSTEM_FILE.parent}, and no "
                "--config FILE was given; waitroom init writes one"
            )
            error.problems.insert(0, hint)
        raise
