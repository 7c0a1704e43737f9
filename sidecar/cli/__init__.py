"""The command `waitroom`.

To start fast, a command is imported only when it is called, and it imports slow modules only where
it needs them.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

#: The exit code after Ctrl-C, as shells use it: 128 plus the number of SIGINT.
CTRL_C_EXIT_CODE = 130
#: Where each command is defined, as MODULE:OBJECT.
_COMMANDS = {
    "check-config": "sidecar.cli.check_config:check_config",
    "completion": "sidecar.cli.completion:completion",
    "doctor": "sidecar.cli.doctor.command:doctor",
    "grant": "sidecar.cli.grant:grant",
    "hash-password": "sidecar.cli.operators:hash_password",
    "healthcheck": "sidecar.cli.healthcheck:healthcheck",
    "history": "sidecar.cli.history:history",
    "init": "sidecar.cli.setup.command:init",
    "jobs": "sidecar.cli.jobs:jobs",
    "leases": "sidecar.cli.leases:leases",
    "limits": "sidecar.cli.limits:limits",
    "migrate": "sidecar.cli.migrate:migrate",
    "nginx-key": "sidecar.cli.nginx_key:nginx_key",
    "operators": "sidecar.cli.operators:operators",
    "page": "sidecar.cli.page:page",
    "report": "sidecar.cli.history:report",
    "rooms": "sidecar.cli.rooms.commands:rooms",
    "run-jobs": "sidecar.cli.serve:run_jobs",
    "serve": "sidecar.cli.serve:serve",
    "targets": "sidecar.cli.targets:targets",
    "update-files": "sidecar.cli.setup.command:update_files",
    "verify-draw": "sidecar.cli.verify_draw:verify_draw",
    "webhooks": "sidecar.cli.webhooks:webhooks",
}


class _LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def main(self, args: Sequence[str] | None = None, *others: Any, **kwargs: Any) -> Any:
        """Run a command. Exit quietly if the reader of its output is gone (`report | head`).

        click does so while a command runs, but not for output still in the buffer at the end.
        """
        arguments = list(sys.argv[1:] if args is None else args)
        # Commands whose arguments may begin with a hyphen have --help only, so accept -h here.
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
        from sidecar.cli.output import fail  # noqa: PLC0415
        from sidecar.kit.errors import InputError  # noqa: PLC0415

        try:
            return super().invoke(ctx)
        except InputError as error:
            fail(error.problems)
        except (KeyboardInterrupt, click.Abort) as error:
            # A prompt raises Abort for Ctrl-C, but also at the end of input and for a no.
            if not isinstance(error.__context__ or error, KeyboardInterrupt):
                raise
            sys.exit(CTRL_C_EXIT_CODE)


def _show_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from sidecar.cli.version import show  # noqa: PLC0415

        show()
        context.exit()


_EXIT_CODES = (
    "Exit codes: 0 done, 1 a problem, 2 wrong use, 3 a replica, Redis or a database does not "
    "answer, 130 Ctrl-C."
)


@click.group(
    cls=_LazyCommands, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of this program, Python and Redis.",
)
def main() -> None:
    """A virtual waiting room beside the nginx you already run."""
