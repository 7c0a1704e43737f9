"""waitroom healthcheck: check whether the replica on this machine is ready."""

import threading
from typing import Any

import click

from sidecar.cli.output import JSON, Unreachable, fail, print_json
from sidecar.cli.replica_client import ReplicaOptions, replica_options


@click.command()
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait.")
@JSON
@click.pass_obj
def healthcheck(options: ReplicaOptions, timeout: float, *, as_json: bool) -> None:
    """Exit 0 when the replica on this machine is ready, 1 when it is not, 3 when nothing answers.
    Needs no token."""
    answers: list[Any] = [Unreachable(f"no answer within {timeout:g} s")]

    def ask() -> None:
        try:
            with options.client(timeout_s=timeout, has_token=False) as client:
                answers.append(client.request("GET", "/readyz"))
        except click.ClickException as error:
            answers.append(error)

    import waitroom  # noqa: F401, PLC0415 - slow to import: must not count as waiting

    # The client's timeout is for each part of the response, and this one for the whole response.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    answer = answers[-1]
    if isinstance(answer, click.ClickException):
        fail([f"not ready: {answer.message}"], answer.exit_code)
    (print_json if as_json else click.echo)(answer if as_json else answer["status"])


healthcheck.params += replica_options()
