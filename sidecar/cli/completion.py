"""The command `waitroom completion`, which prints a shell's completion script."""

import os
import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

_INSTALL_COMMANDS = {
    "bash": "waitroom completion bash | sudo tee /etc/bash_completion.d/waitroom",
    "zsh": "waitroom completion zsh | sudo tee /usr/share/zsh/site-functions/_waitroom",
    "fish": "waitroom completion fish > ~/.config/fish/completions/waitroom.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_INSTALL_COMMANDS)), required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print a completion script for SHELL (default: your shell)."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    shell_class = get_completion_class(name) if name in _INSTALL_COMMANDS else None
    if shell_class is None:
        raise click.UsageError(f"say for which shell: {', '.join(_INSTALL_COMMANDS)}")
    root = context.find_root().command
    click.echo(shell_class(root, {}, "waitroom", "_WAITROOM_COMPLETE").source())
    if sys.stdout.isatty():
        click.echo(f"To install it: {_INSTALL_COMMANDS[name]}", err=True)
