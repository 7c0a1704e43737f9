"""waitroom completion: what a shell reads to complete commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_CLASSES: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}
_WHERE = {
    "bash": "waitroom completion bash | sudo tee /etc/bash_completion.d/waitroom",
    "zsh": "waitroom completion zsh | sudo tee /usr/share/zsh/site-functions/_waitroom",
    "fish": "waitroom completion fish > ~/.config/fish/completions/waitroom.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_CLASSES)), required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print what SHELL reads to complete commands and options; without it, that of your shell."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in _CLASSES:
        raise click.UsageError(f"say for which shell: {', '.join(_CLASSES)}")
    root = context.find_root().command
    click.echo(_CLASSES[name](root, {}, "waitroom", "_WAITROOM_COMPLETE").source())
    if sys.stdout.isatty():
        click.echo(f"To install it: {_WHERE[name]}", err=True)
