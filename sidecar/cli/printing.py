"""What commands print: tables, colours at a terminal alone, and JSON in place of text."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import TYPE_CHECKING, Any, ParamSpec

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import Console

P = ParamSpec("P")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def console(*, is_error: bool = False) -> Console:
    """Of standard output. Rich sees by itself whether that is a terminal, and NO_COLOR."""
    from rich.console import Console  # noqa: PLC0415 - the other commands start faster

    return Console(stderr=is_error, highlight=False, markup=False, emoji=False)


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    styles: Mapping[str, str] | None = None,
) -> None:
    """At a terminal aligned columns; elsewhere fields between tabs, for cut and awk. `styles`:
    cells of such a text have that colour."""
    if not sys.stdout.isatty():
        for row in (headings, *rows):
            click.echo("\t".join(map(cell, row)))
        return
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    found = [list(row) for row in rows]
    for at, heading in enumerate(headings):
        is_number = any(isinstance(row[at], int | float) for row in found)
        made.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in found:
        made.add_row(*(Text(text := cell(each), (styles or {}).get(text, "")) for each in row))
    console().print(made)


def coloured(text: str, colour: str) -> str:
    """In a line of text; click takes the colour away where the output is no terminal."""
    return text if "NO_COLOR" in os.environ else click.style(text, fg=colour)


def cell(value: object) -> str:
    """On one line, and nothing that controls a terminal: names and errors are other people's."""
    text = "" if value is None else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2))


def printed(text: Callable[[Any], object]) -> Callable[[Callable[P, Any]], Callable[P, None]]:
    """Of a command that returns a document, as the API has it: prints it with --json, and without
    by `text`."""

    def decorate(command: Callable[P, Any]) -> Callable[P, None]:
        @JSON
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            as_json = kwargs.pop("as_json")
            document = command(*args, **kwargs)
            (print_json if as_json else text)(document)

        return run

    return decorate
