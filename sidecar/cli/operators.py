"""The commands `waitroom operators …` and `hash-password`, which manage operators' access."""

import sys
from typing import Any

import click

from sidecar.cli.output import print_table
from sidecar.cli.replica_api import Client, build_api_path
from sidecar.cli.replica_client import ReplicaGroup


@click.group(cls=ReplicaGroup)
def operators() -> None:
    """List the operators, and end their sessions."""


def _print_operators(document: dict[str, Any]) -> None:
    yes_no = {True: "yes", False: "no"}
    rows = (
        (user["name"], user["role"], yes_no[user["has_password"]], yes_no[user["by_proxy"]])
        for user in document["operators"]
    )
    print_table(("name", "role", "password", "proxy"), rows)


@operators.reply_command(_print_operators, name="list")
def list_operators(client: Client) -> Any:
    """List the operators in the settings."""
    return client.request("GET", "/admin/operators")


@operators.reply_command("{name}: all sessions have ended", "name", name="log-out")
def log_out(client: Client, name: str) -> Any:
    """End all sessions of an operator, in every browser and on all replicas.

    To lock somebody out, remove them from the settings and restart the replicas.
    """
    return client.request("DELETE", build_api_path("/admin/operators", name, "sessions"))


@click.command("hash-password")
def hash_password() -> None:
    """Print the hash of an operator's password, for use in the settings file.

    Type the password twice, or pipe it to standard input as one line. No replica is needed.
    """
    from sidecar.http.auth.passwords import HASHER, MIN_PASSWORD_LENGTH  # noqa: PLC0415

    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline()
    password = password.strip()  # The log-in form strips the password too.
    if len(password) < MIN_PASSWORD_LENGTH:
        raise click.UsageError(f"the password has fewer than {MIN_PASSWORD_LENGTH} characters")
    click.echo(HASHER.hash(password))
