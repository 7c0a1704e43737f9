"""Read the settings: a TOML file, overridden by WAITROOM_* variables.

`load` reports every problem at once, by the names of settings and variables.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import problems_in
from sidecar.kit.templates import Templates
from sidecar.settings.environment import FILE_SUFFIX, add_environment
from sidecar.settings.model import Settings

DEFAULT_FILE = "waitroom.toml"
#: Where `waitroom init` puts it; read where the working directory has none.
SYSTEM_FILE = Path("/etc/waitroom") / DEFAULT_FILE


def load(path: str | None, environ: dict[str, str] | None = None) -> Settings:
    """Read the file and the environment.

    `path` None means `waitroom.toml` in the working directory or in /etc/waitroom, whichever
    exists first, and no file otherwise.
    Raises ConfigError with every problem.
    """
    values, problems = read_values(path, dict(os.environ) if environ is None else environ)
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


def read_values(path: str | None, environ: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What the file and the environment say, unchecked, and what is wrong with the variables.

    Raises ConfigError for a file that cannot be read.
    """
    file = find_file(path)
    if file is None:
        values: dict[str, Any] = {}
        return values, add_environment(values, environ)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: is not valid TOML: {error}"]) from None
    named = {name: values.pop(name) for name in list(values) if _names_a_file(name, values)}
    problems = add_environment(values, environ)
    return values, problems + _read_files(values, named, file.parent)


def find_file(path: str | None) -> Path | None:
    """The settings file that is read; None: there is none, and none was named."""
    if path is not None:
        return Path(path)
    return next((file for file in (Path(DEFAULT_FILE), SYSTEM_FILE) if _may_exist(file)), None)


def _may_exist(file: Path) -> bool:
    """Also where its folder is closed to us: reading it says so."""
    try:
        return file.exists()
    except PermissionError:
        return True


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _names_a_file(name: str, values: dict[str, Any]) -> bool:
    """`secret_keys_file` is where secret_keys are; at the top level, as in the environment."""
    return (
        name.endswith(FILE_SUFFIX)
        and name.removesuffix(FILE_SUFFIX) in Settings.model_fields
        and isinstance(values[name], str)
    )


def _read_files(values: dict[str, Any], named: dict[str, str], folder: Path) -> list[str]:
    """Add what the files say that settings are in, unless the environment has said it."""
    problems = []
    for name, text in named.items():
        setting = name.removesuffix(FILE_SUFFIX)
        if setting in values:
            continue
        try:
            values[setting] = (folder / text).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{name}: {folder / text} cannot be read: {_why(error)}")
    return problems
