"""The commands of `waitroom`, as click finds them."""

from collections.abc import Iterator

import click

from sidecar.cli import main


def command(*words: str) -> click.Command:
    """The command or group of these words."""
    found: click.Command = main
    for word in words:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
        assert found is not None, words
    return found


def every_command(*words: str) -> Iterator[tuple[str, ...]]:
    """The words of each command and group below these."""
    group = command(*words)
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            yield (*words, name)
            yield from every_command(*words, name)
