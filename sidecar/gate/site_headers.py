"""Ends or extends sessions, as the site asks by headers of its responses.

nginx reports the headers from its access log, by syslog (nginx/waitroom/site-headers.conf):

    <190>Nov 22 04:33:00 waitroom_visit: ROOM|COOKIES|RELEASE|EXTEND

A report contains the visitor's signed cookie, so nobody can forge a report without that cookie."""

import asyncio
import re

from sidecar.gate.cookies import read_token
from sidecar.kit.errors import StoreError
from sidecar.rooms.adaptive.metrics import AdaptiveMetrics
from sidecar.rooms.service import WaitingRooms
from sidecar.visitors.model import Pass

#: The maximum number of sessions that wait to be changed. Reports about more are dropped.
MAX_PENDING_CHANGES = 10_000
#: How many sessions are changed at a time, and the pause between two batches, in seconds.
_BATCH_SIZE, _PAUSE_S = 100, 0.5

_REPORT = re.compile(
    rb"<[0-9]{1,3}>[!-~][ -~]{0,300} waitroom_visit: ([\w-]{1,64})\|(waitroom_[!-{}~ ]{1,1200})"
    rb"\|(1?)-?\|([0-9]{0,6})-?\n?"
)


class SiteHeaders:
    """Collects the reports that one replica gets, and changes the sessions twice a second."""

    def __init__(self, rooms: WaitingRooms, metrics: AdaptiveMetrics) -> None:
        self._rooms, self._metrics = rooms, metrics
        #: The pending changes, by room and visitor: how long the session still lasts, in ms.
        self._pending: dict[tuple[str, str], int] = {}

    def handle_report(self, data: bytes) -> bool:
        """Read a datagram, whatever it contains. Return False if it is no report. Never raises."""
        match = _REPORT.fullmatch(data)
        if match is None:
            return False
        name, cookies, release, extend = (group.decode("ascii") for group in match.groups())
        room = self._rooms.find(name)
        token = read_token({"Cookie": cookies}, room) if room else None
        if room is None or not isinstance(token, Pass):
            self._metrics.reports.labels("", "unbelieved").inc()
            return True
        settings, visit = room.settings, (name, token.visitor)
        if release and settings.release_by_header:
            extend_ms = 0
        elif int(extend or 0) and settings.max_extension:
            extend_ms = min(int(extend), int(settings.max_extension)) * 1000
            extend_ms = min(extend_ms, self._pending.get(visit, extend_ms))  # a pending end stays
        else:
            self._metrics.reports.labels(name, "not_allowed").inc()
            return True
        if visit in self._pending or len(self._pending) < MAX_PENDING_CHANGES:
            self._pending[visit] = extend_ms
        return True

    async def apply_forever(self) -> None:
        """Change the sessions until cancelled. If Redis does not answer, changes stay pending."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            while changes := list(self._pending.items())[:_BATCH_SIZE]:
                if not all(await asyncio.gather(*(self._apply(*change) for change in changes))):
                    break

    async def _apply(self, visit: tuple[str, str], extend_ms: int) -> bool:
        room = self._rooms.get(visit[0])
        try:
            if extend_ms:
                await room.store.extend(visit[1], extend_ms)
            else:
                await room.release(visit[1])
        except StoreError:
            return False
        self._metrics.reports.labels(room.name, "extended" if extend_ms else "released").inc()
        if self._pending.get(visit) == extend_ms:
            del self._pending[visit]
        return True
