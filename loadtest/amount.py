"""Amounts of a measurement: a field that `option` creates is an option of the command too."""

import argparse
from dataclasses import field, fields
from typing import Any


def option(default: Any, usage: str, *flags: str, compare: bool = True, **more: Any) -> Any:
    """Create a field that is an option, `--NAME` without `flags`. `more` is for argparse. An amount
    that differs in a field without `compare` is the same measurement."""
    if "action" not in more:
        more = {"type": type(default), **more}
    metadata = {"flags": flags, "more": {"help": usage, **more}}
    return field(default=default, compare=compare, metadata=metadata)


def add_options(parser: argparse.ArgumentParser, amount: Any) -> None:
    """Add the options of an amount. Their values are None unless they are given."""
    for each in fields(amount):
        if each.metadata:
            flags = each.metadata["flags"] or [f"--{each.name}"]
            parser.add_argument(*flags, dest=each.name, default=None, **each.metadata["more"])
