"""Records of visitors' stays and of errors, from each worker process to the master."""

import os
import time
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Any

from loadtest.verdict import Stay
from loadtest.wire import Reply


class Ledger:
    """Stays and errors recorded by one process. The ledger of the master has those of all workers.

    Each report has the changes since the report before.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.stays: dict[str, Stay] = {}
        self.errors: Counter[str] = Counter()
        self._changed_stays: dict[str, Stay] = {}
        self._unreported_errors: Counter[str] = Counter()
        self._keys: dict[int, str] = {}
        self._name_count = 0
        # How far the clock of Redis is ahead of ours at least, ms.
        self._ahead_ms: float | None = None

    def next_name(self) -> str:
        """Return a name that is unique among all processes."""
        self._name_count += 1
        return f"{_RUN_NAME}-{os.getpid()}-{self._name_count}"

    def record_status(
        self, stay: Stay | None, document: dict[str, Any], reply: Reply, *, late: bool
    ) -> Stay | None:
        """Add a status document to the visitor's stay, or to a new stay. Return that stay."""
        now = _ms(document["updated_at"])
        ahead = now - reply.received
        self._ahead_ms = ahead if self._ahead_ms is None else max(self._ahead_ms, ahead)
        if not document.get("joined_at"):
            return stay
        joined = _ms(document["joined_at"])
        if stay is None or stay.joined != joined:
            stay = Stay(joined)
            self._add_stay(stay)
        stay.late = stay.late or late
        if document["state"] == "waiting" and not stay.late:
            stay.waiting = now
        elif document["state"] == "admitted":
            stay.admitted = now
        self._changed_stays[self._keys[id(stay)]] = stay
        return stay

    def record_direct_admission(self, reply: Reply) -> None:
        """Record a new visitor who was admitted at once, if the time of Redis is known."""
        if self._ahead_ms is not None:
            sent, received = reply.sent + self._ahead_ms, reply.received + self._ahead_ms
            self._add_stay(Stay(sent, admitted=received, direct=True))

    def record_error(self, what: str) -> None:
        self.errors[what] += 1
        self._unreported_errors[what] += 1

    def take_report(self) -> dict[str, Any]:
        stays = {key: asdict(stay) for key, stay in self._changed_stays.items()}
        errors = dict(self._unreported_errors)
        self._changed_stays = {}
        self._unreported_errors = Counter()
        return {"stays": stays, "errors": errors}

    def add_report(self, report: dict[str, Any]) -> None:
        self.stays |= {key: Stay(**values) for key, values in report["stays"].items()}
        self.errors.update(report["errors"])

    def _add_stay(self, stay: Stay) -> None:
        key = self.next_name()
        self._keys[id(stay)] = key
        self.stays[key] = self._changed_stays[key] = stay


def _ms(time_text: str) -> float:
    return datetime.fromisoformat(time_text).timestamp() * 1000


_RUN_NAME = f"{os.uname().nodename[:12]}-{int(time.time())}"

LEDGER = Ledger()
