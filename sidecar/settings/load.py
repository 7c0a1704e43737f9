"""Read the settings: a TOML file, overridden by WAITROOM_* variables.

`load` reports every problem at once, by the names of settings and variables.
"""

import os
from pathlib import Path

from pydantic import ValidationError

from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import problems_in
from sidecar.kit.templates import Templates
from sidecar.settings.file import find_file
from sidecar.settings.model import Settings
from sidecar.settings.values import read_values


def load(path: str | None, environ: dict[str, str] | None = None) -> Settings:
    """Read the file and the environment.

    `path` None means `waitroom.toml` in the working directory or in /etc/waitroom, whichever
    exists first, and no file otherwise.
    Raises ConfigError with every problem.
    """
    values, problems = read_values(path, dict(os.environ) if environ is None else environ, Settings)
    try:
        settings = Settings.model_validate(values)
        settings = settings.model_copy(update={"template_dir": _beside(path, settings)})
        problems += _problems_of_templates(settings)
    except ValidationError as error:
        problems += problems_in(error, Settings)
    if problems:
        raise ConfigError(problems)
    return settings


def _beside(path: str | None, settings: Settings) -> Path:
    file = find_file(path)
    return (file.parent if file else Path()) / settings.template_dir


def _problems_of_templates(settings: Settings) -> list[str]:
    templates = Templates(settings.template_dir)
    return [
        f"rooms.{name}.template: {problem}"
        for name, room in settings.rooms.items()
        if room.template and (problem := templates.problem(room.template))
    ]
