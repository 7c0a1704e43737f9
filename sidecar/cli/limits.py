"""waitroom limits: look at rate limits, and change those of single keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from sidecar.cli.connection import ReplicaGroup, pass_client, read_pages
from sidecar.cli.printing import print_json, printed, table

if TYPE_CHECKING:
    from waitroom import Client

#: -1 is no option.
ANY_NUMBER = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


@click.group(cls=ReplicaGroup)
def limits() -> None:
    """Look at rate limits and change those of single keys, through a replica's ops listener."""


def _table(found: dict[str, Any]) -> None:
    rows = (
        (
            rule["name"],
            rule["algorithm"],
            _number(rule["limit"]),
            f"{rule['window'] or rule['lease']:g} s",
            rule["on_exceed"],
            rule["key"],
        )
        for rule in found["limits"]
    )
    table(("name", "algorithm", "limit", "each", "exceed", "key"), rows)


@limits.command("list")
@printed(_table)
@pass_client
def list_limits(client: Client) -> Any:
    """List the limits, as configured."""
    return client.request("GET", "/v1/limits")


@limits.command()
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]…")
@click.option("--key", metavar="KEY", help="The whole key, in place of its fields.")
@printed(print_json)
@pass_client
def show(client: Client, name: str, fields: tuple[str, ...], key: str | None) -> Any:
    """Show the decision on a call that came now, as JSON; nothing is taken. Without the fields of
    its key: the rule, and the limits of single keys."""
    if key is not None and fields:
        raise click.UsageError("say either --key or fields")
    query = {} if key is None else {"key": key}
    for field in fields:
        part, equals, value = field.partition("=")
        if not equals:
            raise click.UsageError(f"{field}: write FIELD=VALUE, such as channel=wx")
        query[part] = value
    path = _path(name)
    rule = next((rule for rule in _rules(client) if rule["name"] == name), None)
    if rule is not None and rule["fields"] and not query:
        return {**rule, "values": client.request("GET", f"{path}/values")}
    return client.request("GET", path, query=query)


def _show(value: dict[str, Any]) -> None:
    of = f" of {value['key']}" if value["key"] else ""
    name = click.get_current_context().params["name"]
    click.echo(f"{name}: the limit{of} is {_number(value['limit'])}")
    if warning := value.get("warning"):
        click.echo(f"warning: {warning}", err=True)


@limits.command("set", context_settings=ANY_NUMBER)
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="[KEY] LIMIT")
@printed(_show)
@pass_client
def set_(client: Client, name: str, words: tuple[str, ...]) -> Any:
    """Set a key's limit, from the next call on; -1: no limit. A limit whose key has no fields
    needs no KEY."""
    *key, limit = words
    if len(key) > 1:
        raise click.UsageError("say NAME, KEY and LIMIT")
    try:
        number = int(limit)
    except ValueError:
        raise click.UsageError(f"{limit}: say a whole number, or -1 for no limit") from None
    path = f"{_path(name)}/values/{quote(''.join(key), safe='')}"
    return client.request("PUT", path, {"limit": number})


@limits.command()
@click.argument("name")
@click.argument("key", default="", required=False)
@printed(_show)
@pass_client
def unset(client: Client, name: str, key: str) -> Any:
    """Reset a key's limit to the configured value."""
    return client.request("DELETE", f"{_path(name)}/values/{quote(key, safe='')}")


def _counts(found: dict[str, Any]) -> None:
    rows = (
        (each["key"] or "(all calls)", _number(each["limit"]), each["remaining"], _seconds(each))
        for each in found["keys"]
    )
    table(("key", "limit", "left", "free again in"), rows)


@limits.command("keys")
@click.argument("name")
@printed(_counts)
@pass_client
def list_keys(client: Client, name: str) -> Any:
    """List keys of which something is counted, those with the least left first. It looks through
    all keys of Redis, some thousands at a time."""
    found = read_pages(client, f"{_path(name)}/counts", "keys")
    keys = sorted(found["keys"], key=lambda each: (each["remaining"] or 0) / (each["limit"] or 1))
    return {**found, "keys": keys, "found": len(keys)}


def _reset(done: dict[str, Any]) -> None:
    name = click.get_current_context().params["name"]
    of = f" of {done['key']}" if done["key"] else ""
    said = f"the count{of} is reset" if done["reset"] else f"nothing was counted{of}"
    click.echo(f"{name}: {said}")


@limits.command()
@click.argument("name")
@click.argument("key", default="", required=False)
@printed(_reset)
@pass_client
def reset(client: Client, name: str, key: str) -> Any:
    """Forget what a key has used. Its next call finds the whole limit free."""
    return client.request("DELETE", f"{_path(name)}/counts/{quote(key, safe='')}")


def _seconds(count: dict[str, Any]) -> str:
    seconds = count["reset_seconds"]
    return "-" if seconds is None else f"{seconds:.0f} s"


def _rules(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", "/v1/limits")["limits"]
    return found


def _path(name: str) -> str:
    return f"/v1/limits/{quote(name, safe='')}"


def _number(limit: int | None) -> str:
    from sidecar.limits.settings import UNLIMITED  # noqa: PLC0415

    return "none" if limit in {None, UNLIMITED} else str(limit)
