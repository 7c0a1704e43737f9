"""Parses the texts that users give to commands, and those that servers send."""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import click


def read_duration(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> float | None:
    """Parse an option such as 90s or 2h to seconds. Raises BadParameter."""
    from sidecar.kit.setting_types import parse_duration  # noqa: PLC0415 - imports pydantic

    try:
        return None if text is None else float(str(parse_duration(text)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_pairs(texts: Iterable[str], form: str, separator: str = "=") -> dict[str, str]:
    """Parse texts such as NAME=VALUE. Raises UsageError, which shows the correct `form`."""
    pairs = {text: text.partition(separator) for text in texts}
    if wrong := [text for text, (name, sign, _) in pairs.items() if not sign or not name.strip()]:
        raise click.UsageError("\n".join(f"{text}: write {form}" for text in wrong))
    return {name.strip(): value for name, _, value in pairs.values()}


def is_web_url(text: str) -> bool:
    """Return True for an absolute URL of a web page."""
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return url.scheme in {"http", "https"} and bool(url.hostname)


def read_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None if the text is anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def parse_value(text: str) -> Any:
    """Parse a setting's value, which is JSON or a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
