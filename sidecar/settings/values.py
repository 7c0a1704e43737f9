"""Reads the settings file and WAITROOM_* variables, without validating them.

It is separate from load.py, because a command that calls a replica needs three settings and must
not import the models of all. pydantic-settings is not used: it ignores variables that name no
setting, reads lists only as JSON, and has no _FILE variables.
"""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sidecar.kit.did_you_mean import did_you_mean, names_beside
from sidecar.kit.errors import InputError
from sidecar.settings.file import find_file

ENV_PREFIX = "WAITROOM_"
#: The end of a setting's or variable's name if its value is the path of a file with the value.
FILE_SUFFIX = "_file"
#: Variables of the commands that call a replica (sidecar/cli/replica_client.py), not settings.
NOT_SETTINGS = {"WAITROOM_URL", "WAITROOM_TOKEN", "WAITROOM_TOKEN_FILE"}
_TABLES = {"rooms", "leases", "limits", "targets", "webhooks", "tokens", "operators"}


def read_values(
    path: str | None, environ: dict[str, str], model: type[BaseModel]
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a model's settings, not validated, and the problems found so far.

    Raises InputError for a file that cannot be read.
    """
    file = find_file(path)
    if file is None:
        values: dict[str, Any] = {}
        return values, add_environment(values, environ, model)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError([f"{file}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError([f"{file}: is not valid TOML: {error}"]) from None
    paths = {name: values.pop(name) for name in list(values) if _names_a_file(name, values, model)}
    problems = add_environment(values, environ, model)
    return values, problems + _read_files(values, paths, file.parent)


def _read_error(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _names_a_file(name: str, values: dict[str, Any], model: type[BaseModel]) -> bool:
    """Return True for a top-level setting such as secret_keys_file, which names a file."""
    return (
        name.endswith(FILE_SUFFIX)
        and name.removesuffix(FILE_SUFFIX) in model.model_fields
        and isinstance(values[name], str)
    )


def _read_files(values: dict[str, Any], paths: dict[str, str], folder: Path) -> list[str]:
    """Set settings from the files at `paths`, unless a variable has set them. Return problems."""
    problems = []
    for name, text in paths.items():
        setting = name.removesuffix(FILE_SUFFIX)
        if setting in values:
            continue
        try:
            values[setting] = (folder / text).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{name}: {folder / text} cannot be read: {_read_error(error)}")
    return problems


def add_environment(
    values: dict[str, Any], environ: dict[str, str], model: type[BaseModel]
) -> list[str]:
    """Set values from WAITROOM_* variables, and return the problems. In a name, `__` separates the
    levels of tables, and `_FILE` at the end means that the value is in a file."""
    problems = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or variable in NOT_SETTINGS:
            continue
        path = variable.removeprefix(ENV_PREFIX).lower().split("__")
        if not all(path):
            problems.append(f"{variable}: names no setting")
            continue
        suffix = FILE_SUFFIX if path[-1].endswith(FILE_SUFFIX) else ""
        path[-1] = path[-1].removesuffix(FILE_SUFFIX)
        if wrong := _name_problem(path, suffix, model):
            problems.append(f"{variable}: {wrong}")
            continue
        value: str = text
        if suffix:
            try:
                value = Path(text).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable}: {text} cannot be read: {error}")
                continue
        table = values
        for part in path[:-1]:
            subtable = table.setdefault(part, {})
            if not isinstance(subtable, dict):
                problems.append(f"{variable}: {part} is not a table")
                break
            table = subtable
        else:
            table[path[-1]] = value
    return problems


def _name_problem(path: list[str], suffix: str, model: type[BaseModel]) -> str:
    """Return the problem of a variable whose name has these parts, or "" if it is a setting."""
    for i, part in enumerate(path):
        names = names_beside(model, path[: i + 1])
        if names is None or part in names:
            continue
        if i == 0:
            names += [name.removeprefix(ENV_PREFIX).lower() for name in NOT_SETTINGS]

        def spell(name: str, at: int = i) -> str:
            parts = [*path[:at], name, *path[at + 1 :]]
            return f"{ENV_PREFIX}{'__'.join(parts)}{suffix}".upper()

        hint = did_you_mean(part, names, written=spell)
        if not hint and part.partition("_")[0] in _TABLES:
            hint = "; two underscores go a level down: WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS"
        return f"unknown setting{hint}"
    return ""
