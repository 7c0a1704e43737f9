"""waitroom check-config."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from sidecar.cli.common import CONFIG, load_settings
from sidecar.cli.printing import JSON, print_json
from sidecar.cli.rooms.openings import summary
from sidecar.kit.errors import ConfigError
from sidecar.kit.toml_lines import find_lines, locate
from sidecar.settings.file import find_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sidecar.settings.model import Settings

#: Stand for secrets that are not there: long enough, and each of its own.
_PRETENDED = {
    "WAITROOM_SECRET_KEYS": "a-key-that-stands-for-the-real-one-00000",
    "WAITROOM_ADMIN_TOKEN": "a-token-that-stands-for-the-real-one-00",
}


@dataclass(frozen=True)
class Problem:
    """One mistake. `line` is None where the setting is not in the file."""

    message: str
    file: str | None
    line: int | None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else self.message


@click.command("check-config")
@CONFIG
@JSON
@click.option(
    "--no-secrets",
    is_flag=True,
    help="Do without secret_keys and admin_token, as where a change is tested.",
)
def check_config(path: str | None, *, as_json: bool, no_secrets: bool) -> None:
    """Print every problem of a configuration, with its line; exit 1 if there is any.

    Warnings name what is allowed and probably not meant; they change nothing about the exit code.
    """
    settings, problems = _check(path, no_secrets=no_secrets)
    warnings = settings.warnings if settings else []
    if as_json:
        document = {"problems": [asdict(each) for each in problems], "warnings": warnings}
        print_json(document)
    else:
        for problem in problems:
            click.echo(str(problem), err=True)
        if settings:
            click.echo(f"The configuration is right: {_contents(settings)}.")
        for warning in warnings:
            click.echo(f"warning: {warning}")
        for line in summary(settings, int(time.time() * 1000)) if settings else []:
            click.echo(line)
    sys.exit(1 if problems else 0)


def _check(path: str | None, *, no_secrets: bool) -> tuple[Settings | None, list[Problem]]:
    environ = dict(os.environ)
    if no_secrets:
        environ = {name: text for name, text in environ.items() if not _is_secret(name)}
        environ |= _PRETENDED
    try:
        return load_settings(path, environ), []
    except ConfigError as error:
        return None, _located(error.problems, find_file(path))


def _is_secret(variable: str) -> bool:
    return variable.removesuffix("_FILE") in _PRETENDED


def _located(problems: list[str], file: Path | None) -> list[Problem]:
    try:
        lines = find_lines(file.read_text(encoding="utf-8")) if file else {}
    except (OSError, UnicodeDecodeError):  # it is among the problems
        lines = {}
    found = [(problem, locate(problem, lines)) for problem in problems]
    return [Problem(text, str(file) if file else None, line) for text, line in found]


def _contents(settings: Settings) -> str:
    kinds: dict[str, Mapping[str, object]] = {
        "room": settings.rooms,
        "lease": settings.leases,
        "limit": settings.limits,
        "target": settings.targets,
    }
    counted = [
        f"{len(named)} {kind}(s), {', '.join(sorted(named))}"
        for kind, named in kinds.items()
        if named
    ]
    return "; ".join(counted) or "jobs, for targets that are made at run time"
