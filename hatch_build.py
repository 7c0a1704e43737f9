"""Adds man pages of the command `waitroom` and its subcommands to the wheel, made by click-man."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from click_man.core import write_man_pages
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The longest summary of a command.
_SUMMARY_LENGTH = 1000


class ManPages(BuildHookInterface[Any]):
    """The hook of the wheel's build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # The commands import the project and its client.
        sys.path[:0] = [self.root, str(Path(self.root, "client"))]
        from sidecar.cli import main  # noqa: PLC0415

        _complete(main)
        main.help = f"{main.help}\n\n{main.epilog}"
        self._folder = tempfile.TemporaryDirectory()
        write_man_pages(
            "waitroom", main, version=self.metadata.version, target_dir=self._folder.name
        )
        build_data["shared_data"] |= {
            str(page): f"share/man/man1/{page.name}" for page in Path(self._folder.name).iterdir()
        }

    def finalize(self, version: str, _build_data: dict[str, Any], _artifact: str) -> None:
        if version != "editable":
            self._folder.cleanup()


def _complete(command: click.Command) -> None:
    """Set what click-man reads: a summary that is not cut, and commands that are imported late."""
    command.short_help = command.get_short_help_str(_SUMMARY_LENGTH)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if found := command.get_command(context, name):
                command.commands[name] = found
                _complete(found)
