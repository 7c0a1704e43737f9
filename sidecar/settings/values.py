"""Read the settings file and WAITROOM_* variables, without checking them.

Apart from `load`, because a command that asks a replica needs three of the settings and not the
models of all.
"""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sidecar.kit.errors import ConfigError
from sidecar.settings.environment import FILE_SUFFIX, add_environment
from sidecar.settings.file import find_file


def read_values(
    path: str | None, environ: dict[str, str], model: type[BaseModel]
) -> tuple[dict[str, Any], list[str]]:
    """Read what the file and the environment say of a model's settings, unchecked; and what is
    wrong with the variables.

    Raises ConfigError for a file that cannot be read.
    """
    file = find_file(path)
    if file is None:
        values: dict[str, Any] = {}
        return values, add_environment(values, environ, model)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: is not valid TOML: {error}"]) from None
    named = {name: values.pop(name) for name in list(values) if _names_a_file(name, values, model)}
    problems = add_environment(values, environ, model)
    return values, problems + _read_files(values, named, file.parent)


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _names_a_file(name: str, values: dict[str, Any], model: type[BaseModel]) -> bool:
    """`secret_keys_file` is where secret_keys are; at the top level, as in the environment."""
    return (
        name.endswith(FILE_SUFFIX)
        and name.removesuffix(FILE_SUFFIX) in model.model_fields
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
