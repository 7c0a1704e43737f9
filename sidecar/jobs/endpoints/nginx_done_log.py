"""Receives reports from nginx that calls with a permit have ended. nginx sends each report from its
access log, as a syslog datagram (docs/nginx-calls.md):

    <190>Nov 22 04:33:00 waitroom: PERMIT STATUS

Anyone who can reach the socket can send datagrams, so a report must contain the signed permit, and
ends only the call of that permit. If a datagram is lost, the call ends after the target's timeout.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator

import structlog

from sidecar.http.listeners import listen_for_reports
from sidecar.jobs.permits import Permit, PermitError, parse_target
from sidecar.jobs.service import Jobs
from sidecar.jobs.targets import Target
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.tasks import Background

#: The maximum number of reports that wait to be processed. More are dropped.
MAX_WAITING_REPORTS = 10_000
#: How many reports are processed at a time. Many, because SQL writes them in batches.
MAX_PARALLEL_REPORTS = 128
#: How long a report is retried while Redis or SQL is unavailable, and how often, in seconds.
RETRY_TIME_S = 60.0
RETRY_PAUSE_S = 1.0
#: How long a stopping replica waits for reports to be written, in seconds.
_DRAIN_S = 2.0

#: A report. It begins with the syslog header: priority, time, and perhaps the host.
_REPORT = re.compile(rb"<[0-9]{1,3}>[!-~][ -~]{0,300} waitroom: ([\w.~-]{1,512}) ([0-9]{3})\n?")

log = structlog.get_logger()


def parse_report(data: bytes) -> tuple[str, int | None] | None:
    """Return a report's permit and status (None: no response came), or None for other text."""
    match = _REPORT.fullmatch(data)
    return None if match is None else (match[1].decode("ascii"), int(match[2]) or None)


class DoneLog:
    """Marks the calls as ended that nginx reports, in a datagram, to have finished."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._slots = asyncio.Semaphore(MAX_PARALLEL_REPORTS)
        self._has_dropped_reports = False
        self.ends = Background()

    def handle_report(self, data: bytes) -> None:
        """Read the report in a datagram, and end the reported call in the background."""
        report = parse_report(data)
        if report is None:
            log.debug("unreadable_end", bytes=len(data))
            return
        text, status = report
        target = self._jobs.targets.find(parse_target(text))
        if target is None:
            return
        try:
            permit = target.permits.verify(text)
        except PermitError as error:
            log.debug("unbelieved_end", target=target.name, reason=error.reason)
            return
        if len(self.ends) < MAX_WAITING_REPORTS:
            self.ends.start(self._end_call(target, permit, status))
        elif not self._has_dropped_reports:
            self._has_dropped_reports = True
            log.warning(
                "ends_lost", waiting=MAX_WAITING_REPORTS, hint="calls end by their target's timeout"
            )

    async def _end_call(self, target: Target, permit: Permit, status: int | None) -> None:
        """End a call. Retries while Redis or SQL is unavailable, because otherwise the call would
        occupy a slot until its timeout."""
        log_fields = {"target": target.name, "job": permit.job}
        async with self._slots:
            until_s = time.monotonic() + RETRY_TIME_S
            while True:
                try:
                    await self._jobs.end_call(target, permit.job, permit.fence, status=status)
                except (StoreError, DatabaseError) as error:
                    if time.monotonic() >= until_s:
                        log.warning("end_lost", **log_fields, error=str(error))
                        return
                    await asyncio.sleep(RETRY_PAUSE_S)
                except Exception:
                    log.exception("end_failed", **log_fields)
                    return
                else:
                    self._has_dropped_reports = False
                    return


@contextlib.asynccontextmanager
async def listen(address: str, jobs: Jobs) -> AsyncIterator[None]:
    """Listen for reports at `unix:/path` or `host:port` (UDP) within the block. Raises ListenError
    if the address cannot be used."""
    done_log = DoneLog(jobs)
    try:
        async with listen_for_reports("done_listen", address, done_log.handle_report):
            yield
    finally:
        await done_log.ends.finish(_DRAIN_S)
