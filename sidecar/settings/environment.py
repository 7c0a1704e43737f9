"""WAITROOM_* variables, which go before the settings file.

They are read here and not by pydantic-settings, which ignores one that names no setting, takes
lists as JSON alone, and knows no _FILE beside each of them.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sidecar.kit.did_you_mean import did_you_mean, names_beside

ENV_PREFIX = "WAITROOM_"
#: Ends the name of a setting, or of a variable, that says which file has the value.
FILE_SUFFIX = "_file"
#: Variables of commands that ask a replica, which are no settings: sidecar/cli/replica_client.py.
NOT_SETTINGS = {"WAITROOM_URL", "WAITROOM_TOKEN", "WAITROOM_TOKEN_FILE"}
_TABLES = {"rooms", "leases", "limits", "targets", "webhooks", "tokens", "operators"}


def add_environment(
    values: dict[str, Any], environ: dict[str, str], model: type[BaseModel]
) -> list[str]:
    """Lay WAITROOM_* over the values; `__` goes a level down, `_FILE` reads a file."""
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
        if unknown := _unknown(path, suffix, model):
            problems.append(f"{variable}: {unknown}")
            continue
        value: str = text
        if suffix:
            try:
                value = Path(text).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable}: {text} cannot be read: {error}")
                continue
        level = values
        for part in path[:-1]:
            below = level.setdefault(part, {})
            if not isinstance(below, dict):
                problems.append(f"{variable}: {part} is not a table")
                break
            level = below
        else:
            level[path[-1]] = value
    return problems


def _unknown(path: list[str], suffix: str, model: type[BaseModel]) -> str:
    """What is wrong with the name of a variable, by its parts; empty: it names a setting."""
    for i, part in enumerate(path):
        known = names_beside(model, path[: i + 1])
        if known is None or part in known:
            continue
        if i == 0:
            known += [name.removeprefix(ENV_PREFIX).lower() for name in NOT_SETTINGS]

        def written(name: str, at: int = i) -> str:
            parts = [*path[:at], name, *path[at + 1 :]]
            return f"{ENV_PREFIX}{'__'.join(parts)}{suffix}".upper()

        hint = did_you_mean(part, known, written=written)
        if not hint and part.partition("_")[0] in _TABLES:
            hint = "; two underscores go a level down: WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS"
        return f"unknown setting{hint}"
    return ""
