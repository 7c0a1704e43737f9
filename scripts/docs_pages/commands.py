"""Generator of docs/commands.md, which lists all commands as click knows them."""

import inspect
from collections.abc import Iterator

import click

from scripts.docs_pages.markdown import cell
from sidecar.cli import main

_INTRODUCTION = """\
`waitroom COMMAND --help` shows the same text. Commands that need a replica find it through the
settings on this machine. On another machine, use `--url` and a token.

In a terminal, tables have columns and colours; set `NO_COLOR` to turn colours off. In a pipe, tabs
separate fields: `waitroom rooms list | cut -f1,4`. `--json` prints the response of the
[API](api.md), with all pages of a list.

| exit code | |
|---|---|
| 0 | Success. |
| 1 | Failure: for example, a name is unknown, a token is refused, or a check failed. |
| 2 | Incorrect usage: an unknown option, or a value that is not allowed. |
| 3 | A replica, Redis or a database does not answer. |
| 130 | You pressed Ctrl-C. |"""


def page() -> str:
    """Return the page with all commands, arguments and options, as in `--help`."""
    parts = [
        "# Commands",
        _INTRODUCTION,
    ]
    for path, command in list_commands(main):
        parts.append(f"{'#' * min(len(path), 4)} {' '.join(path)}")
        context = click.Context(command, info_name=" ".join(path))
        if not isinstance(command, click.Group):
            usage = " ".join(command.collect_usage_pieces(context))
            parts.append(f"```text\n{' '.join(path)} {usage}\n```")
        parts.append(inspect.cleandoc(command.help or "").replace("\b\n", ""))
        records = [
            record for parameter in command.get_params(context)
            if "--help" not in parameter.opts and (record := parameter.get_help_record(context))
        ]  # fmt: skip
        if records:
            rows = [f"| `{cell(name)}` | {cell(text)} |" for name, text in records]
            parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def list_commands(
    command: click.Command, path: tuple[str, ...] = ("waitroom",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if len(path) > 1:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            if found := command.get_command(context, name):
                yield from list_commands(found, (*path, name))
