"""Counts the decisions of the last hours by minute, and the keys whose calls were refused most.

Each replica counts for itself, and writes what it has counted in a minute into a hash in Redis. A
later write of the same minute replaces it, so a write may be repeated."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.limits.model import Call, Decision, Outcome

#: For how many minutes the counts of decisions are kept, and the keys that were refused most.
MINUTES_KEPT, KEY_MINUTES_KEPT = 180, 60
#: How many refused keys a replica writes for a minute, and how many it counts in its memory.
KEYS_WRITTEN, KEYS_COUNTED = 10, 1000
#: How many of the last minutes a replica remembers even if it has written them.
WRITTEN_MINUTES_KEPT = 3
#: How many of the most refused keys `sum_refused_keys` returns.
KEYS_READ = 100
_MINUTE_US = 60_000_000
#: The names of a minute's counts, in order.
COUNTS = ("allowed", "paced", "refused")
_REFUSED = {Outcome.REFUSED, Outcome.REFUSED_ALONE}


@dataclass(slots=True)
class MinuteCounts:
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    refused_keys: Counter[str] = field(default_factory=Counter)
    is_written: bool = False


class RecentDecisions:
    """Counts one replica's decisions on the calls of one limit, by minute of the clock of Redis."""

    def __init__(self) -> None:
        self._replica = secrets.token_hex(4)
        self._minutes: dict[int, MinuteCounts] = {}

    def add(self, calls: Sequence[Call], decisions: Sequence[Decision]) -> None:
        """Count each decision in its minute, by this machine's clock if Redis did not decide."""
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
                    # There are too many keys: keep those that were refused most until now.
                    top_keys = minute.refused_keys.most_common(KEYS_COUNTED // 2)
                    minute.refused_keys = Counter(dict(top_keys))
            else:
                minute.counts[decision.outcome is Outcome.PACED] += 1

    def take_unwritten_minutes(self) -> list[tuple[int, MinuteCounts]]:
        """Return the minutes that have changed since their last write. Forget all others except the
        last ones: they may get further decisions, and each write replaces a whole minute."""
        rows = list(self._minutes.items())[-MINUTES_KEPT:]
        last = dict(rows[-WRITTEN_MINUTES_KEPT:])
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


def sum_counts_by_minute(fields: Mapping[str, str]) -> dict[int, list[int]]:
    """Return, for each minute in the fields of a hash, the counts summed over all replicas."""
    minutes: dict[int, list[int]] = {}
    for name, value in fields.items():
        number, _, kind = _split_field_name(name)
        if not kind:
            counts = minutes.setdefault(number, [0, 0, 0])
            for i, count in enumerate(value.split()):
                counts[i] += int(count)
    return minutes


def sum_refused_keys(fields: Mapping[str, str], first_minute: int) -> Iterable[tuple[str, int]]:
    """Return the keys that were refused most since `first_minute`, and the numbers of refusals."""
    keys = Counter[str]()
    for name, value in fields.items():
        number, _, kind = _split_field_name(name)
        if kind and number >= first_minute:
            keys.update(json.loads(value))
    return keys.most_common(KEYS_READ)


def _split_field_name(name: str) -> tuple[int, str, str]:
    number, _, rest = name.partition(" ")
    replica, _, kind = rest.partition(" ")
    return int(number), replica, kind
