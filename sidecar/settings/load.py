"""Reads and validates the settings: a TOML file, overridden by WAITROOM_* variables."""

import os
from pathlib import Path

from pydantic import ValidationError

from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import describe_problems
from sidecar.kit.templates import Templates
from sidecar.settings.file import find_file
from sidecar.settings.model import Settings
from sidecar.settings.values import read_values


def load(path: str | None, environ: dict[str, str] | None = None) -> Settings:
    """Load the settings from a file and the environment. Raises InputError with every problem.

    If `path` is None, read `waitroom.toml` in the working directory, else in /etc/waitroom, if any.
    """
    values, problems = read_values(path, dict(os.environ) if environ is None else environ, Settings)
    try:
        settings = Settings.model_validate(values)
        file = find_file(path)
        folder = (file.parent if file else Path()) / settings.template_dir
        settings = settings.model_copy(update={"template_dir": folder})
        templates = Templates(folder)
        problems += [
            f"rooms.{name}.template: {problem}"
            for name, room in settings.rooms.items()
            if room.template and (problem := templates.problem(room.template))
        ]
    except ValidationError as error:
        problems += describe_problems(error, Settings)
    if problems:
        raise InputError(problems)
    return settings
