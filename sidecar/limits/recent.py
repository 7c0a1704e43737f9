"""Counts the decisions of the last hours by minute, and the keys whose calls were refused most.

Each replica counts for itself, and writes what it has counted in a minute into a hash in Redis. A
later write of the same minute replaces it, so a write may be repeated.
"""

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.limits.model import Call, Decision, Outcome

#: For how many minutes decisions are kept, and the keys that were refused most.
MINUTES_KEPT, KEY_MINUTES_KEPT = 180, 60
#: How many of these keys a replica writes for a minute, and how many it remembers until then.
KEYS_WRITTEN, KEYS_COUNTED = 10, 1000
#: How many minutes a replica remembers after they were written.
MINUTES_OPEN = 3
#: How many of these keys a reader gets.
KEYS_READ = 100
_MINUTE_US = 60_000_000
#: The counts of a minute, in order.
COUNTS = ("allowed", "paced", "refused")
_REFUSED = {Outcome.REFUSED, Outcome.REFUSED_ALONE}


@dataclass(slots=True)
class MinuteCounts:
    """The decisions of one minute."""

    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    refused_keys: Counter[str] = field(default_factory=Counter)
    is_written: bool = False


class RecentDecisions:
    """The decisions of one replica on the calls of one limit, by minute of the clock of Redis."""

    def __init__(self) -> None:
        self._replica = secrets.token_hex(4)
        self._minutes: dict[int, MinuteCounts] = {}

    def add(self, calls: Sequence[Call], decisions: Sequence[Decision]) -> None:
        """Count decisions. One that was made without Redis is of the minute of this machine."""
        for call, decision in zip(calls, decisions, strict=True):
            number = (decision.now_us or time.time_ns() // 1000) // _MINUTE_US
            minute = self._minutes.get(number)
            if minute is None:
                minute = self._minutes[number] = MinuteCounts()
            minute.is_written = False
            if decision.outcome in _REFUSED:
                minute.counts[2] += 1
                minute.refused_keys[call.key] += 1
                if len(minute.refused_keys) > KEYS_COUNTED:
                    # Of very many keys, those that were refused most until now are kept.
                    most = minute.refused_keys.most_common(KEYS_COUNTED // 2)
                    minute.refused_keys = Counter(dict(most))
            else:
                minute.counts[decision.outcome is Outcome.PACED] += 1

    def take_unwritten(self) -> list[tuple[int, MinuteCounts]]:
        """Return the minutes that have changed since they were written. Forget the others, but the
        last ones, of which further decisions may come: a write replaces all of a minute."""
        rows = list(self._minutes.items())[-MINUTES_KEPT:]
        last = dict(rows[-MINUTES_OPEN:])
        self._minutes = {n: minute for n, minute in rows if n in last or not minute.is_written}
        return [(n, minute) for n, minute in self._minutes.items() if not minute.is_written]

    def format_args(self, number: int, minute: MinuteCounts) -> list[str | int]:
        """Return the arguments of limits/lua/count.lua for a minute."""
        keys = dict(minute.refused_keys.most_common(KEYS_WRITTEN))
        return [
            number,
            self._replica,
            " ".join(map(str, minute.counts)),
            json.dumps(keys, separators=(",", ":")) if keys else "",
            MINUTES_KEPT,
            KEY_MINUTES_KEPT,
        ]


def sum_minutes(fields: Mapping[str, str]) -> dict[int, list[int]]:
    """Return the counts of each minute of a hash, over all replicas."""
    minutes: dict[int, list[int]] = {}
    for name, value in fields.items():
        number, _, kind = _split(name)
        if not kind:
            counts = minutes.setdefault(number, [0, 0, 0])
            for i, count in enumerate(value.split()):
                counts[i] += int(count)
    return minutes


def sum_refused_keys(fields: Mapping[str, str], first_minute: int) -> Iterable[tuple[str, int]]:
    """Return the keys of a hash that were refused most since a minute, and how often."""
    keys = Counter[str]()
    for name, value in fields.items():
        number, _, kind = _split(name)
        if kind and number >= first_minute:
            keys.update(json.loads(value))
    return keys.most_common(KEYS_READ)


def _split(name: str) -> tuple[int, str, str]:
    number, _, rest = name.partition(" ")
    replica, _, kind = rest.partition(" ")
    return int(number), replica, kind
