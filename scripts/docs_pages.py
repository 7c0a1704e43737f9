"""The pages of docs/ that are made from the code: python -m scripts.docs_pages writes them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sidecar.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[1] / "docs"


_INTRODUCTION = """\
`waitroom COMMAND --help` shows the same at a terminal. Commands that speak with a replica find it
by the settings of this machine; from elsewhere give `--url` and a token."""


def commands_page() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    parts = [
        "# Commands",
        _INTRODUCTION,
    ]
    for path, command in _commands(main, ("waitroom",)):
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
            rows = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in records]
            parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if len(path) > 1:
        yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _commands(command.commands[name], (*path, name))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


#: The text of each page, by its file.
PAGES = {"commands.md": commands_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
