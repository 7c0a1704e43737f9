"""Reads the settings file and WAITROOM_* variables, without validating them.

It is separate from load.py because a command that calls a replica needs only three settings and
should not import all models. We do not use pydantic-settings: it ignores unknown variables, accepts
lists only as JSON, and does not support _FILE variables.
"""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sidecar.kit.did_you_mean import did_you_mean, find_sibling_names
from sidecar.kit.errors import InputError
from sidecar.settings.file import find_file

ENV_PREFIX = "WAITROOM_"
#: A setting or variable whose name has this suffix contains the path of a file with the value.
FILE_SUFFIX = "_file"
#: Variables that are not settings but options of commands (sidecar/cli/replica_client.py).
NOT_SETTINGS = {"WAITROOM_URL", "WAITROOM_TOKEN", "WAITROOM_TOKEN_FILE"}
_TABLES = {"rooms", "leases", "limits", "targets", "webhooks", "tokens", "operators"}


def read_values(
    path: str | None, environ: dict[str, str], model: type[BaseModel]
) -> tuple[dict[str, Any], list[str]]:
    """Read values for the settings of a model. Return the values, not yet validated, and the
    problems with reading them. Raises InputError if the settings file cannot be read."""
    file = find_file(path)
    values: dict[str, Any] = {}
    try:
        if file is not None:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError([f"{file}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError([f"{file}: is not valid TOML: {error}"]) from None
    paths = {
        name: values.pop(name)
        for name, value in list(values.items())
        if name.endswith(FILE_SUFFIX)
        and name.removesuffix(FILE_SUFFIX) in model.model_fields
        and isinstance(value, str)
    }
    problems = add_environment(values, environ, model)
    for name, text in paths.items():
        setting, secret_file = name.removesuffix(FILE_SUFFIX), (file or Path()).parent / text
        if setting in values:  # Set by a variable, which overrides the settings file.
            continue
        try:
            values[setting] = secret_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", "it is not UTF-8 text") or str(error)
            problems.append(f"{name}: {secret_file} cannot be read: {reason}")
    return values, problems


def add_environment(
    values: dict[str, Any], environ: dict[str, str], model: type[BaseModel]
) -> list[str]:
    """Add the values of WAITROOM_* variables to `values`, and return the problems. In a variable's
    name, `__` separates nested tables, and the suffix `_FILE` means that the value is in a file."""
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
        if problem := _find_name_problem(path, suffix, model):
            problems.append(f"{variable}: {problem}")
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


def _find_name_problem(path: list[str], suffix: str, model: type[BaseModel]) -> str:
    """Return the problem with a variable's name, or "" if the name belongs to a setting.

    `path`: the parts of the name that `__` separates, without `suffix`.
    """
    for i, part in enumerate(path):
        names = find_sibling_names(model, path[: i + 1])
        if names is None or part in names:
            continue
        if i == 0:
            names += [name.removeprefix(ENV_PREFIX).lower() for name in NOT_SETTINGS]

        def spell(name: str, index: int = i) -> str:
            parts = [*path[:index], name, *path[index + 1 :]]
            return f"{ENV_PREFIX}{'__'.join(parts)}{suffix}".upper()

        hint = did_you_mean(part, names, spell=spell)
        if not hint and part.partition("_")[0] in _TABLES:
            hint = "; two underscores go a level down: WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS"
        return f"unknown setting{hint}"
    return ""
