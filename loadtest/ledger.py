"""The notes of a run's processes, and how they come together on the master."""

import os
import time
from collections import Counter
from datetime import datetime
from typing import Any

from loadtest.verdict import Stay
from loadtest.wire import Reply


class Ledger:
    """The notes of one process. The master's ledger has those of all workers.

    A report has what changed since the last one.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.stays: dict[str, Stay] = {}
        self.errors: Counter[str] = Counter()
        self._changed: dict[str, Stay] = {}
        self._unreported: Counter[str] = Counter()
        self._keys: dict[int, str] = {}
        self._names = 0
        # Redis' clock is at least this far ahead of ours, ms.
        self._ahead: float | None = None

    def next_name(self) -> str:
        """Return a name that no other process uses."""
        self._names += 1
        return f"{_NAME}-{os.getpid()}-{self._names}"

    def note(
        self, stay: Stay | None, document: dict[str, Any], reply: Reply, *, late: bool
    ) -> Stay | None:
        """Add a status document to the visitor's stay, or begin one. Return the stay."""
        now = _ms(document["updated_at"])
        ahead = now - reply.received
        self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
        if not document.get("joined_at"):
            return stay
        joined = _ms(document["joined_at"])
        if stay is None or stay.joined != joined:
            stay = Stay(joined)
            self._keep(stay)
        stay.late = stay.late or late
        if document["state"] == "waiting" and not stay.late:
            stay.waiting = now
        elif document["state"] == "admitted":
            stay.admitted = now
        self._changed[self._keys[id(stay)]] = stay
        return stay

    def enter_directly(self, reply: Reply) -> None:
        """Note a newcomer who was admitted at once, if a document has shown Redis' time."""
        if self._ahead is not None:
            sent, received = reply.sent + self._ahead, reply.received + self._ahead
            self._keep(Stay(sent, admitted=received, direct=True))

    def complain(self, what: str) -> None:
        self.errors[what] += 1
        self._unreported[what] += 1

    def take_report(self) -> dict[str, Any]:
        stays = [
            [key, stay.joined, stay.waiting, stay.admitted, stay.direct]
            for key, stay in self._changed.items()
        ]
        errors = dict(self._unreported)
        self._changed = {}
        self._unreported = Counter()
        return {"stays": stays, "errors": errors}

    def add_report(self, report: dict[str, Any]) -> None:
        for key, joined, waiting, admitted, direct in report["stays"]:
            self.stays[key] = Stay(joined, waiting, admitted, direct)
        self.errors.update(report["errors"])

    def _keep(self, stay: Stay) -> None:
        key = self.next_name()
        self._keys[id(stay)] = key
        self.stays[key] = self._changed[key] = stay


def _ms(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() * 1000


_NAME = f"{os.uname().nodename[:12]}-{int(time.time())}"

LEDGER = Ledger()
