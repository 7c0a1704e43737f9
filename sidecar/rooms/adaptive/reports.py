"""Reads nginx's reports of the site's responses, and adds them to the counts in Redis.

nginx reports a share of the responses from its access log, by syslog (nginx/waitroom/http.conf):

    <190>Nov 22 04:33:00 waitroom: ROOM|SHARE|UPSTREAM STATUS|HEADER TIME|RESPONSE TIME|STATUS

SHARE is the percentage of responses that nginx reports. If nginx asked several upstreams, a status
or time is a list, such as `502, 200`. Reports are not signed: only nginx may reach the address."""

import asyncio
import re
from collections import Counter
from typing import NamedTuple

import structlog

from sidecar.kit.errors import StoreError
from sidecar.rooms.adaptive.metrics import AdaptiveMetrics
from sidecar.rooms.adaptive.signals import (
    ERRORS,
    PERCENT,
    RESPONSES,
    STEP_S,
    SUM_MS,
    find_bucket,
)
from sidecar.rooms.service import WaitingRooms

#: How often a replica writes its counts, in seconds.
FLUSH_S = 1.0
#: An error within this time, in seconds, says nothing about the site's speed.
QUICK_ERROR_S = 0.5
#: The longest response time that is counted, in seconds.
MAX_TIME_S = 3600.0
_CLIENT_GONE, _TOO_MANY = 499, 429

_REPORT = re.compile(
    rb"<[0-9]{1,3}>[!-~][ -~]{0,300} waitroom: ([\w-]{1,64})\|([0-9]{1,3})\|([0-9, :-]{1,200})"
    rb"\|([0-9., :-]{1,200})\|([0-9., :-]{1,200})\|([0-9]{3})\n?"
)
_NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?")

log = structlog.get_logger()


class Report(NamedTuple):
    """A response of the site. Times are in seconds, and None if nginx measured none."""

    room: str
    percent: int
    upstream_status: int | None
    header_s: float | None
    response_s: float | None
    status: int


def parse_report(data: bytes) -> Report | None:
    """Return the report in a datagram, or None if the datagram is not a report."""
    match = _REPORT.fullmatch(data)
    if match is None:
        return None
    room, percent, upstream, header, response, status = match.groups()
    statuses = _NUMBER.findall(upstream)
    times = [_NUMBER.findall(each) for each in (header, response)]
    header_s, response_s = (
        min(MAX_TIME_S, sum(map(float, each))) if each else None for each in times
    )
    return Report(
        room.decode("ascii"),
        min(100, max(1, int(percent))),
        int(statuses[-1]) if statuses else None,
        header_s,
        response_s,
        int(status),
    )


def count_report(report: Report, slow_s: float | None) -> Counter[str]:
    """Return the counts that a report adds. They are empty if the response says nothing about the
    site. `slow_s` is the response time above which a response is slow, in seconds."""
    status = report.upstream_status or report.status
    time_s = report.response_s if report.header_s is None else report.header_s
    is_error = status >= 500 or status == _TOO_MANY
    if report.status == _CLIENT_GONE:
        time_s = report.response_s
        if time_s is None or slow_s is None or time_s <= slow_s:
            return Counter()  # the client left too early to say that the response was slow
        is_error = False
    elif not is_error and (status >= 400 or status < 200 or status == 304):
        return Counter()
    counts = Counter({RESPONSES: 1, PERCENT: report.percent, ERRORS: int(is_error)})
    if time_s is not None and not (is_error and time_s <= QUICK_ERROR_S):
        counts[find_bucket(time_s)] = 1
        counts[SUM_MS] = round(time_s * 1000)
    return counts


class SiteReports:
    """Counts the reports that one replica gets, and adds the counts to Redis once a second."""

    def __init__(self, rooms: WaitingRooms, metrics: AdaptiveMetrics) -> None:
        self._rooms, self._metrics = rooms, metrics
        #: The counts that are not written yet, by room.
        self._counts: dict[str, Counter[str]] = {}

    def handle_report(self, data: bytes) -> None:
        """Count a datagram, which may contain any bytes. Never raises."""
        report = parse_report(data)
        if report is None:
            self._metrics.reports.labels("", "unreadable").inc()
            return
        room = self._rooms.find(report.room)
        if room is None or not room.settings.is_site_measured:
            self._metrics.reports.labels("", "unknown_room").inc()
            return
        counts = count_report(report, room.settings.slow_s)
        self._metrics.reports.labels(room.name, "counted" if counts else "left_out").inc()
        if counts:
            self._counts.setdefault(room.name, Counter()).update(counts)

    async def flush_forever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the counts. If Redis does not answer, a room's counts are lost."""
        pending, self._counts = self._counts, {}
        for name, counts in pending.items():
            room = self._rooms.get(name)
            step = room.clock.now_ms() // 1000 // STEP_S
            try:
                await room.store.count_responses(step, counts)
            except StoreError:
                self._metrics.reports.labels(name, "lost").inc(counts[RESPONSES])
