"""waitroom check-config."""

import contextlib
import os
import sys
import time
from dataclasses import asdict, dataclass

import click

from sidecar.cli.config import CONFIG, Settings, load_settings
from sidecar.cli.output import JSON, print_json
from sidecar.cli.rooms.events import summary
from sidecar.kit.errors import ConfigError
from sidecar.kit.toml_lines import find_lines, locate
from sidecar.settings.file import find_file

#: Values for secrets that are missing.
_STAND_INS = {
    "WAITROOM_SECRET_KEYS": "a-key-that-stands-for-the-real-one-00000",
    "WAITROOM_ADMIN_TOKEN": "a-token-that-stands-for-the-real-one-00",
}


@dataclass(frozen=True)
class ConfigProblem:
    """One mistake. `line` is None if the setting is not in the file."""

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


def _check(path: str | None, *, no_secrets: bool) -> "tuple[Settings | None, list[ConfigProblem]]":
    environ = dict(os.environ)
    if no_secrets:
        secrets = {f"{name}{end}" for name in _STAND_INS for end in ("", "_FILE")}
        environ = {name: text for name, text in environ.items() if name not in secrets}
        environ |= _STAND_INS
    try:
        return load_settings(path, environ), []
    except ConfigError as error:
        file, lines = find_file(path), dict[str, int]()
        with contextlib.suppress(OSError, UnicodeDecodeError):  # it is among the problems
            lines = find_lines(file.read_text(encoding="utf-8")) if file else {}
        name = str(file) if file else None
        return None, [ConfigProblem(text, name, locate(text, lines)) for text in error.problems]


def _contents(settings: Settings) -> str:
    kinds = (
        ("room", settings.rooms),
        ("lease", settings.leases),
        ("limit", settings.limits),
        ("target", settings.targets),
    )
    parts = [
        f"{len(named)} {kind}(s), {', '.join(sorted(named))}" for kind, named in kinds if named
    ]
    return "; ".join(parts) or "jobs, for targets that are made at run time"
