"""The commands `waitroom limits …`, which ask rate limits, show them, and set those of individual
keys."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sidecar.cli.output import Unreachable, print_json, print_table
from sidecar.cli.parsing import read_duration, read_pairs
from sidecar.cli.replica_api import Client, build_api_path, read_pages
from sidecar.cli.replica_client import ANY_TEXT, ReplicaGroup

#: The exit status if a limit refuses a call.
REFUSED = 4
#: Seconds between two requests to a concurrency limit, whose permits are released at any time.
_PERMIT_POLL_S = 0.5
_LIMITS = "/v1/limits"


@click.group(cls=ReplicaGroup)
def limits() -> None:
    """Query rate limits, show them, and change the limits of individual keys."""


def _print_rules(document: dict[str, Any]) -> None:
    rows = (
        (rule["name"], rule["algorithm"], _format_limit(rule["limit"]),
         f"{rule['window'] or rule['lease']:g} s", rule["on_exceed"], rule["key"])
        for rule in document["limits"]
    )  # fmt: skip
    print_table(("name", "algorithm", "limit", "each", "exceed", "key"), rows)


@limits.reply_command(_print_rules, name="list")
def list_limits(client: Client) -> Any:
    """List the configured limits."""
    return client.request("GET", _LIMITS)


def _read_fields(key: str | None, fields: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a key, or the whole key as {"key": …}."""
    if key is not None and fields:
        raise click.UsageError("say either --key or fields")
    pairs = read_pairs(fields, "FIELD=VALUE, such as channel=wx")
    return pairs if key is None else {"key": key}


@limits.reply_command(print_json, "name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]…")
@click.option("--key", metavar="KEY", help="The whole key, in place of its fields.")
def show(client: Client, name: str, fields: tuple[str, ...], key: str | None) -> Any:
    """Show as JSON whether the limit would allow a call now, without counting a call. If no fields
    are given, show the rule and the limits of individual keys."""
    query = _read_fields(key, fields)
    path = build_api_path(_LIMITS, name)
    for rule in client.request("GET", _LIMITS)["limits"]:
        if rule["name"] == name and rule["fields"] and not query:
            return {**rule, "values": client.request("GET", f"{path}/values")}
    return client.request("GET", path, query=query)


def _print_permit(permit: dict[str, Any]) -> None:
    name = click.get_current_context().params["name"]
    of_key = f" of {permit['key']}" if permit["key"] else ""
    click.echo(f"{name}: a call{of_key} is allowed")


@limits.reply_command(_print_permit, "name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]…")
@click.option("--key", metavar="KEY", help="The whole key, in place of its fields.")
@click.option("--cost", type=click.IntRange(1), default=1, show_default=True, metavar="NUMBER")
@click.option(
    "--wait",
    callback=read_duration,
    metavar="DURATION",
    help="The maximum time to wait until the call may proceed, such as 30s (default: 0s).",
)
def acquire(client: Client, /, name: str, fields: tuple[str, ...], **params: Any) -> Any:
    """Ask a limit whether a call may proceed, and count the call. Exit 0 if the call may proceed, 4
    if the limit refuses it, or 3 if no replica answers or Redis is unavailable."""
    query, wait_s = _read_fields(params["key"], fields), params["wait"] or 0
    call = {"cost": params["cost"], **(query if params["key"] is not None else {"fields": query})}
    path, deadline_s = build_api_path(_LIMITS, name), time.monotonic() + wait_s
    poll_s = _PERMIT_POLL_S if wait_s and _is_concurrency(client, name) else math.inf
    while True:
        # The call is sent in a list, because the refusal of a single call would raise an error.
        [decision] = client.request("POST", f"{path}/acquire", [call])
        if decision["outcome"] == "refused_alone":
            reason = "Redis is unavailable, and the limit refuses then (on_store_failure)"
            raise Unreachable(f"{name}: {reason}")
        retry_s = math.inf if decision["wait_seconds"] is None else decision["wait_seconds"]
        pause_s = retry_s if decision["allowed"] or math.isinf(retry_s) else min(retry_s, poll_s)
        has_time = time.monotonic() + pause_s <= deadline_s
        if decision["allowed"] and (has_time or not retry_s):
            with _release_on_failure(client, path, decision):
                time.sleep(retry_s)
            return decision
        if not has_time:
            with _release_on_failure(client, path, decision):
                hint = f"ask again after {retry_s:g} s"
                if math.isinf(retry_s):
                    hint = f"the limit {decision['limit']} never allows a cost of {params['cost']}"
                click.echo(f"{name}: refused; {hint}", err=True)
                raise click.exceptions.Exit(REFUSED)
        time.sleep(pause_s)


def _is_concurrency(client: Client, name: str) -> bool:
    rules = client.request("GET", _LIMITS)["limits"]
    return any(rule["name"] == name and rule["algorithm"] == "concurrency" for rule in rules)


@contextmanager
def _release_on_failure(client: Client, path: str, decision: dict[str, Any]) -> Iterator[None]:
    """Release the start time of a paced call if the block raises an exception."""
    try:
        yield
    except BaseException:
        if decision["permit"]:
            body = {"key": decision["key"], "permit": decision["permit"]}
            client.request("POST", f"{path}/release", body)
        raise


def _print_limit(value: dict[str, Any]) -> None:
    of_key = f" of {value['key']}" if value["key"] else ""
    name = click.get_current_context().params["name"]
    click.echo(f"{name}: the limit{of_key} is {_format_limit(value['limit'])}")
    if warning := value.get("warning"):
        click.echo(f"warning: {warning}", err=True)


@limits.reply_command(_print_limit, "name", name="set", context_settings=ANY_TEXT)
@click.argument("words", nargs=-1, required=True, metavar="[KEY] LIMIT")
def set_(client: Client, name: str, words: tuple[str, ...]) -> Any:
    """Set the limit of a key, beginning with its next call; -1 means no limit. Omit KEY if the
    limit's key has no fields."""
    *key, limit = words
    if len(key) > 1:
        raise click.UsageError("say NAME, KEY and LIMIT")
    try:
        number = int(limit)
    except ValueError:
        raise click.UsageError(f"{limit}: say a whole number, or -1 for no limit") from None
    path = build_api_path(_LIMITS, name, "values", "".join(key))
    return client.request("PUT", path, {"limit": number})


@limits.reply_command(_print_limit, "name")
@click.argument("key", default="", required=False)
def unset(client: Client, name: str, key: str) -> Any:
    """Reset a key's limit to the configured value."""
    return client.request("DELETE", build_api_path(_LIMITS, name, "values", key))


def _print_counts(document: dict[str, Any]) -> None:
    rows = (
        (count["key"] or "(all calls)", _format_limit(count["limit"]), count["remaining"],
         "-" if count["reset_seconds"] is None else f"{count['reset_seconds']:.0f} s")
        for count in document["keys"]
    )  # fmt: skip
    print_table(("key", "limit", "left", "free again in"), rows)


@limits.reply_command(_print_counts, "name", name="keys")
def list_keys(client: Client, name: str) -> Any:
    """List the keys that have a count, starting with the keys closest to their limit. The command
    scans all keys in Redis, a few thousand at a time."""
    counts = read_pages(client, build_api_path(_LIMITS, name, "counts"), "keys")
    keys = sorted(counts["keys"], key=lambda key: (key["remaining"] or 0) / (key["limit"] or 1))
    return {**counts, "keys": keys, "found": len(keys)}


def _print_recent_decisions(document: dict[str, Any]) -> None:
    columns = "allowed", "paced", "refused"
    for title, minutes in (("15 min", 15), ("1 h", 60), ("3 h", 180)):
        sums = (sum(row[name] for row in document["minutes"][-minutes:]) for name in columns)
        counts = (f"{count:,} {name}" for count, name in zip(sums, columns, strict=True))
        click.echo(f"last {title}: {', '.join(counts)}")
    rows = ([row["key"], row["refused"]] for row in document["refused_keys"])
    print_table(("key", "refused in the last hour"), rows)


@limits.reply_command(_print_recent_decisions, "name")
def recent(client: Client, name: str) -> Any:
    """Show a limit's decisions in the last three hours, and the keys refused most often."""
    return client.request("GET", build_api_path(_LIMITS, name, "recent"))


def _print_reset_result(result: dict[str, Any]) -> None:
    name = click.get_current_context().params["name"]
    of_key = f" of {result['key']}" if result["key"] else ""
    text = f"the count{of_key} is reset" if result["reset"] else f"nothing was counted{of_key}"
    click.echo(f"{name}: {text}")


@limits.reply_command(_print_reset_result, "name")
@click.argument("key", default="", required=False)
def reset(client: Client, name: str, key: str) -> Any:
    """Reset the count of a key, so that the whole limit is available again."""
    return client.request("DELETE", build_api_path(_LIMITS, name, "counts", key))


def _format_limit(limit: int | None) -> str:
    from sidecar.limits.settings import UNLIMITED  # noqa: PLC0415

    return "none" if limit in {None, UNLIMITED} else str(limit)
