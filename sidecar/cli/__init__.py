"""The command `waitroom`.

To start fast, it imports only the module of the subcommand that is called, and each subcommand
imports slow modules inside the functions that need them.
"""

import importlib
import itertools
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import click

from sidecar.cli.output import CommandGroup, fail

#: The exit code after Ctrl-C, by the convention of shells: 128 plus the number of SIGINT.
CTRL_C_EXIT_CODE = 130
#: The names of all commands, by the headings of the help. The function of a command has the same
#: name, with _ instead of -.
_SECTIONS = {
    "Set up": ("init", "check-config", "hash-password", "nginx-key", "page", "migrate", "doctor"),
    "Run": ("serve", "run-jobs", "healthcheck", "update-files"),
    "Manage a running service": (
        *("rooms", "leases", "limits", "jobs", "targets", "webhooks", "operators"),
    ),
    "Look back": ("report", "history", "verify-draw"),
    "Other commands": ("grant", "completion"),
}
_COMMANDS = sorted(itertools.chain.from_iterable(_SECTIONS.values()))
#: The module of each command that is not defined in a module with the command's name.
_MODULES = {
    "doctor": "doctor.command",
    "hash-password": "operators",
    "init": "setup.command",
    "report": "history",
    "rooms": "rooms.commands",
    "run-jobs": "serve",
    "update-files": "setup.command",
}


class _LazyCommands(CommandGroup):
    """A group that imports the module of a command only when the command is called."""

    sections = _SECTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return _COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"sidecar.cli.{_MODULES.get(cmd_name, name)}")
        command: click.Command = getattr(module, name)
        return command

    def main(self, args: Sequence[str] | None = None, *others: Any, **kwargs: Any) -> Any:
        """Run a command. Exit without an error if the reader of its output exits (`report | head`).

        click handles this only while the command runs, not when its last output is flushed.
        """
        arguments = list(sys.argv[1:] if args is None else args)
        # A command whose arguments may begin with a hyphen has only --help, so replace -h.
        if arguments[-1:] == ["-h"]:
            arguments[-1] = "--help"
        try:
            return super().main(arguments, *others, **kwargs)
        finally:
            try:
                sys.stdout.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(CTRL_C_EXIT_CODE)

    def invoke(self, ctx: click.Context) -> Any:
        from sidecar.kit.errors import InputError  # noqa: PLC0415

        try:
            return super().invoke(ctx)
        except InputError as error:
            fail(error.problems)
        except (KeyboardInterrupt, click.Abort) as error:
            # A prompt raises Abort for Ctrl-C, for the end of the input and for the answer no.
            if KeyboardInterrupt not in {type(error), type(error.__context__)}:
                raise
            sys.exit(CTRL_C_EXIT_CODE)


def _show_versions(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Print the versions. Omit Redis if the settings do not name it or are invalid."""
    if not value or context.resilient_parsing:
        return
    from sidecar import __version__  # noqa: PLC0415
    from sidecar.settings.file import find_file  # noqa: PLC0415

    click.echo(f"waitroom {__version__}, Python {platform.python_version()}")
    if find_file(None) or os.environ.keys() & {"WAITROOM_STORE", "WAITROOM_STORE_FILE"}:
        click.echo(_format_redis_version(), nl=False)
    context.exit()


def _format_redis_version() -> str:
    from sidecar.kit.errors import InputError, StoreError  # noqa: PLC0415
    from sidecar.settings.load import load  # noqa: PLC0415
    from sidecar.storage.redis.one_server import ask_server  # noqa: PLC0415

    try:
        server = ask_server(load(None).store, lambda client: client.info("server"))
    except InputError:
        return ""
    except StoreError as error:
        return f"Redis does not answer: {error}\n"
    if server is None:
        return ""
    name = "Valkey" if "valkey_version" in server else "Redis"
    return f"{name} {server.get('valkey_version', server['redis_version'])}\n"


_EXIT_CODES = (
    "Exit codes: 0 success, 1 failure, 2 incorrect usage, 3 no answer from a replica, Redis or a "
    "database, 130 interrupted by Ctrl-C."
)


@click.group(
    cls=_LazyCommands, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of waitroom, Python and Redis.",
)
def main() -> None:
    """A virtual waiting room that runs beside your nginx."""
