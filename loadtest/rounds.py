"""The order in which measurements of several systems alternate."""

import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def rounds(
    number: int, items: Sequence[Item], loads: list[float] | None = None
) -> Iterator[tuple[int, list[Item]]]:
    """Yield the number of each round with all items. Each round begins with a different item.

    At the start of each round, append the machine's load average to `loads`.
    """
    step = max(1, len(items) // number)
    for round_number in range(number):
        if loads is not None:
            loads.append(os.getloadavg()[0])
        first = round_number * step % len(items)
        yield round_number, [*items[first:], *items[:first]]


def describe_loads(loads: Sequence[float]) -> str:
    values = ", ".join(f"{load:.1f}" for load in loads)
    return f"The machine's load when each round began: {values}."
