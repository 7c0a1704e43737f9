"""Prints the output of commands (tables and JSON), and defines errors with their exit codes."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, ParamSpec

import click

P = ParamSpec("P")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class CommandGroup(click.Group):
    """A group whose help shows the first sentence of each command's help, however long it is."""

    #: The names of the commands, by the help's headings. If empty, all are under "Commands".
    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = max(map(len, names))  # the same for all sections, to align their summaries
        for heading, section in (self.sections or {"Commands": names}).items():
            commands = ((name, self.get_command(ctx, name)) for name in section)
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (f"{name:<{width}}", command.get_short_help_str(limit=1000))
                        for name, command in commands
                        if command
                    ]
                )


class Unreachable(click.ClickException):
    """Raised if a replica, Redis or a database does not respond."""

    exit_code = 3


class BadValue(click.ClickException):
    """Raised for an invalid option, variable or setting. Unlike UsageError, it prints no usage."""

    exit_code = 2


def fail(problems: list[str], code: int = 1) -> NoReturn:
    """Print a line for each problem to standard error and exit."""
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(code)


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print aligned columns to a terminal, or tab-separated fields to a file or a program. `styles`
    maps the text of a cell to a colour."""
    if not sys.stdout.isatty():
        for row in (headings, *rows):
            click.echo("\t".join(map(format_cell, row)))
        return
    from rich.console import Console  # noqa: PLC0415 - the other commands start faster
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    cells = [list(row) for row in rows]
    for column, heading in enumerate(headings):
        is_number = any(isinstance(row[column], int | float) for row in cells)
        grid.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        texts = map(format_cell, row)
        grid.add_row(*(Text(text, (styles or {}).get(text, "")) for text in texts))
    Console(highlight=False, markup=False, emoji=False).print(grid)


def print_acts(acts: Iterable[Mapping[str, Any]], *more: str) -> None:
    """Print a row for each action of an operator, with additional columns `more`. Describe changes
    of settings in words."""
    columns = "at", *more, "by", "what", "visitor", "detail"
    changes = {"change", "undo"}
    rows = (
        {**act, "detail": act.get("text") or act["detail"]} if act["what"] in changes else act
        for act in acts
    )
    print_table(columns, ([row[name] for name in columns] for row in rows))


def add_colour(text: str, colour: str) -> str:
    """Colour a text, unless NO_COLOR is set. click removes the colour outside a terminal."""
    return text if "NO_COLOR" in os.environ else click.style(text, fg=colour)


def format_cell(value: object) -> str:
    """Format a value as one line without control characters, which a client may have sent."""
    text = "" if value is None else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def format_time(moment: datetime) -> str:
    """Format a time in the local zone, with the day if it is not today."""
    local, today = moment.astimezone(), datetime.now(UTC).astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%d %b %H:%M}"


def combine(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return one decorator that applies several, the first one outermost."""
    return lambda command: functools.reduce(
        lambda decorated, decorator: decorator(decorated), reversed(decorators), command
    )


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2))


def print_changes(document: Any) -> None:
    """Print the new value of each setting that the current command's argument `changes` names."""
    for change in click.get_current_context().params["changes"]:
        name = change.partition("=")[0]
        click.echo(f"{name} = {json.dumps(document['settings'][name])}")


def print_result(show: Callable[[Any], object]) -> Callable[[Callable[P, Any]], Callable[P, None]]:
    """Decorate a command to print the object that it returns, with `show`, or as JSON (--json)."""

    def decorate(command: Callable[P, Any]) -> Callable[P, None]:
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            as_json = kwargs.pop("as_json")
            document = command(*args, **kwargs)
            (print_json if as_json else show)(document)

        parameters = vars(JSON(run))["__click_params__"]
        parameters.insert(0, parameters.pop())  # in the help, --json follows the other options
        return run

    return decorate
