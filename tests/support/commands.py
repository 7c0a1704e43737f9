"""Finds the `waitroom` commands that click knows."""

from collections.abc import Iterator

import click

from sidecar.cli import main


def command(*words: str) -> click.Command:
    """Return the command or group that the words name, such as "rooms", "list"."""
    current: click.Command = main
    for word in words:
        assert isinstance(current, click.Group)
        current = current.get_command(click.Context(current), word)
        assert current is not None, words
    return current


def list_commands(*words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and group below the group that `words` name."""
    group = command(*words)
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            yield (*words, name)
            yield from list_commands(*words, name)
