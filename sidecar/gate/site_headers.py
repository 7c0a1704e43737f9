"""Ends and lengthens visits as the site asks, by headers of its responses.

nginx sends them from its access log, as syslog datagrams (nginx/waitroom/site-headers.conf):

    <190>Nov 22 04:33:00 waitroom_visit: ROOM|COOKIES|RELEASE|EXTEND

A report holds the visitor's signed cookie, so a forged one can concern only a visitor whose cookie
its sender has.
"""

import asyncio
import re

from sidecar.gate.cookies import read_token
from sidecar.kit.errors import StoreError
from sidecar.rooms.adaptive.metrics import AdaptiveMetrics
from sidecar.rooms.service import WaitingRooms
from sidecar.visitors.model import Pass

#: The maximum number of visits that wait to be changed. Reports of more are dropped.
MAX_WAITING = 10_000
#: How many visits are changed at a time, and the pause between two rounds, in seconds.
_PARALLEL, _PAUSE_S = 100, 0.5

_REPORT = re.compile(
    rb"<[0-9]{1,3}>[!-~][ -~]{0,300} waitroom_visit: ([\w-]{1,64})\|(waitroom_[!-{}~ ]{1,1200})"
    rb"\|(1?)-?\|([0-9]{0,6})-?\n?"
)


class SiteHeaders:
    """Collects the reports that one replica gets, and changes the visits twice a second."""

    def __init__(self, rooms: WaitingRooms, metrics: AdaptiveMetrics) -> None:
        self._rooms, self._metrics = rooms, metrics
        #: By room and visitor: by how many ms the visit is lengthened. 0: it ends.
        self._waiting: dict[tuple[str, str], int] = {}

    def handle_report(self, data: bytes) -> bool:
        """Read a datagram. Return False if it is no such report. Never raises: it may hold any
        bytes."""
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
            extend_ms = min(extend_ms, self._waiting.get(visit, extend_ms))  # an end stays an end
        else:
            self._metrics.reports.labels(name, "not_allowed").inc()
            return True
        if visit in self._waiting or len(self._waiting) < MAX_WAITING:
            self._waiting[visit] = extend_ms
        return True

    async def apply_forever(self) -> None:
        """Change the visits until cancelled. Those whose Redis does not answer stay for later."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            while visits := list(self._waiting.items())[:_PARALLEL]:
                if not all(await asyncio.gather(*(self._change(*visit) for visit in visits))):
                    break

    async def _change(self, visit: tuple[str, str], extend_ms: int) -> bool:
        room = self._rooms.get(visit[0])
        try:
            if extend_ms:
                await room.store.extend(visit[1], extend_ms)
            else:
                await room.release(visit[1])
        except StoreError:
            return False
        self._metrics.reports.labels(room.name, "extended" if extend_ms else "released").inc()
        if self._waiting.get(visit) == extend_ms:
            del self._waiting[visit]
        return True
