"""waitroom healthcheck: whether the replica on this machine is ready."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.common import Unreachable, fail
from sidecar.cli.connection import ReplicaCommand
from sidecar.cli.printing import JSON, print_json

if TYPE_CHECKING:
    from sidecar.cli.connection import Connection


@click.command(cls=ReplicaCommand)
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait.")
@JSON
@click.pass_obj
def healthcheck(connection: Connection, timeout: float, *, as_json: bool) -> None:
    """Exit 0 when the replica on this machine is ready, 1 when it is not, 3 when nothing answers.
    Needs no token."""
    late = Unreachable(f"no answer within {timeout:g} s")
    found: list[Any] = [late]

    def ask() -> None:
        try:
            with connection.client(timeout_s=timeout, has_token=False) as client:
                found.append(client.request("GET", "/readyz"))
        except click.ClickException as error:
            found.append(error)

    import waitroom  # noqa: F401, PLC0415 - takes long, and is no part of the waiting

    # The client's timeout is for each part of the answer, this one for all of it.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout)
    ready = found[-1]
    if isinstance(ready, click.ClickException):
        fail([f"not ready: {ready.message}"], ready.exit_code)
    (print_json if as_json else click.echo)(ready if as_json else ready["status"])
