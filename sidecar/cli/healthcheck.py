"""The command `waitroom healthcheck`, which checks that this machine's replica is ready."""

import threading
from typing import Any

import click

from sidecar.cli.output import JSON, Unreachable, fail, print_json
from sidecar.cli.replica_client import REPLICA_OPTIONS, ReplicaOptions


@click.command()
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait for an answer.")
@JSON
@click.pass_obj
def healthcheck(options: ReplicaOptions, timeout: float, *, as_json: bool) -> None:
    """Exit 0 if the replica is ready, 1 if not, or 3 if it does not answer. Needs no token."""
    results: list[Any] = [Unreachable(f"no answer within {timeout:g} s")]

    def request_readiness() -> None:
        try:
            with options.client(timeout_s=timeout, has_token=False) as client:
                results.append(client.request("GET", "/readyz"))
        except click.ClickException as error:
            results.append(error)

    import waitroom  # noqa: F401, PLC0415 - the slow import must not count as waiting

    # The client's own timeout applies to each part of the response, not to the whole response.
    thread = threading.Thread(target=request_readiness, daemon=True)
    thread.start()
    thread.join(timeout)
    result = results[-1]
    if isinstance(result, click.ClickException):
        fail([f"not ready: {result.message}"], result.exit_code)
    (print_json if as_json else click.echo)(result if as_json else result["status"])


healthcheck.params += REPLICA_OPTIONS
