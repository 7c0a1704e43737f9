"""waitroom operators, and waitroom hash-password."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from sidecar.cli.connection import ReplicaGroup, pass_client
from sidecar.cli.printing import printed, table

if TYPE_CHECKING:
    from waitroom import Client

MIN_PASSWORD_LENGTH = 8


@click.group(cls=ReplicaGroup)
def operators() -> None:
    """Look at the operators that the settings name, and end their sessions."""


def _table(found: dict[str, Any]) -> None:
    rows = (
        (each["name"], each["role"], *(_yes(each[how]) for how in ("has_password", "by_proxy")))
        for each in found["operators"]
    )
    table(("name", "role", "password", "proxy"), rows)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


@operators.command("list")
@printed(_table)
@pass_client
def list_operators(client: Client) -> Any:
    """List the operators that the settings name."""
    return client.request("GET", "/admin/operators")


@operators.command("log-out")
@click.argument("name")
@printed(lambda ended: click.echo(f"{ended['name']}: all sessions have ended"))
@pass_client
def log_out(client: Client, name: str) -> Any:
    """End all sessions of an operator, in every browser and on all replicas.

    To lock somebody out, take them from the settings and restart the replicas.
    """
    return client.request("DELETE", f"/admin/operators/{quote(name, safe='')}/sessions")


@click.command("hash-password")
def hash_password() -> None:
    """Print the hash of a password, for `password` of an operator in the settings.

    It asks for the password twice, or reads a line of standard input. Needs no replica.
    """
    from sidecar.http.auth.accounts import HASHER  # noqa: PLC0415 - other commands start faster

    if sys.stdin.isatty():
        given = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline()
    given = given.strip()  # as the log-in does
    if len(given) < MIN_PASSWORD_LENGTH:
        raise click.UsageError(f"the password has fewer than {MIN_PASSWORD_LENGTH} characters")
    click.echo(HASHER.hash(given))
