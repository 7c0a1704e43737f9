"""How measurements that compare several systems take turns."""

import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def rounds(
    number: int, items: Sequence[Item], loads: list[float] | None = None
) -> Iterator[tuple[int, list[Item]]]:
    """Yield each round's number and all items; each round begins with another item.

    The machine's load when a round begins is added to `loads`.
    """
    step = max(1, len(items) // number)
    for round_number in range(number):
        if loads is not None:
            loads.append(os.getloadavg()[0])
        first = round_number * step % len(items)
        yield round_number, [*items[first:], *items[:first]]


def describe_loads(loads: Sequence[float]) -> str:
    listed = ", ".join(f"{load:.1f}" for load in loads)
    return f"The machine's load when each round began: {listed}."
