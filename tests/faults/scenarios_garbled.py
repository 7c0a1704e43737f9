"""A scenario that sends 100,000 malformed requests on keep-alive connections."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.garbage import EDGE, NGINX, OPS, TOYED_WITH, Garbled, mix_requests
from tests.faults.verdict import Row
from tests.faults.wire import Reply, read_reply
from tests.faults.world import REPLICAS, Scale
from tests.support.site import BY_DEFAULT, Site

WORKERS = 32
#: Statuses that nginx may send, for unknown transfer codings and HTTP versions.
UNSUPPORTED = {501, 505}
MAX_GROWTH_MIB = 20
#: Timeout for the response to a request that may be incomplete.
PATIENCE_S = 0.3
TIMEOUT_S = 5.0


@dataclass(slots=True)
class Tally:
    """What happened to the requests."""

    sent: int = 0
    #: Numbers of responses by server and status.
    statuses: Counter[str] = field(default_factory=Counter)
    #: Descriptions of wrong responses.
    wrong: list[str] = field(default_factory=list)
    #: The memory of each replica, at two times.
    rss: list[list[float]] = field(default_factory=list)


async def garbled(scale: Scale) -> Row:
    count = 10_000 if scale.quick else 100_000
    row = Row(f"{count:,} garbled requests")
    began = time.monotonic()
    room = {"total_active_users": 50, "queueing_status_code": 429, "poll_limit": 1000}
    with Site(
        rooms={"shop": room, TOYED_WITH: room}, replicas=REPLICAS, settings=BY_DEFAULT
    ) as site:
        tally = Tally()
        source = _count(mix_requests(count), count, tally, site)
        await asyncio.gather(*(_send_all(source, site, number, tally) for number in range(WORKERS)))
        tally.rss.append(_memory(site))
        row.requests, row.failures = tally.sent, len(tally.wrong)
        row.broken += tally.wrong[:3]
        growth = [round(end - start, 1) for start, end in zip(*tally.rss[-2:], strict=True)]
        if max(growth) > MAX_GROWTH_MIB:
            row.broken.append(f"the replicas grew by {growth} MiB")
        for replica in site.replicas:
            if "Traceback" in replica.output:
                text = replica.output
                row.broken.append(f"a traceback: {text[text.index('Traceback') :][-600:]}")
            if not replica.running:
                row.broken.append("a replica is gone")
        if b"exited on signal" in (site.folder / "nginx.log").read_bytes():
            row.broken.append("an nginx worker crashed")
        row.notes.append(f"memory from the first tenth to the end, by replica: {growth} MiB")
        answers = ", ".join(f"{what}: {n:,}" for what, n in sorted(tally.statuses.items()))
        row.notes.append(f"answers by door and status: {answers}")
    row.seconds = time.monotonic() - began
    return row


def _count(requests: Iterator[Garbled], count: int, tally: Tally, site: Site) -> Iterator[Garbled]:
    for number, request in enumerate(requests, start=1):
        if number == count // 10:
            tally.rss.append(_memory(site))
        tally.sent = number
        yield request


async def _send_all(source: Iterator[Garbled], site: Site, number: int, tally: Tally) -> None:
    replica = number % REPLICAS
    doors = {NGINX: site.url, EDGE: site.edges[replica], OPS: site.ops[replica]}
    lines = {to: _Connection(url) for to, url in doors.items()}
    try:
        for request in source:
            await _send_one(lines[request.to], request, tally)
    finally:
        for line in lines.values():
            line.close()


async def _send_one(line: "_Connection", request: Garbled, tally: Tally) -> None:
    try:
        reply = await line.send(request)
    except TimeoutError:
        reply = None
        if request.is_whole:
            tally.wrong.append(f"{request.to}: no answer to {request.data[:200]!r}")
    except (OSError, EOFError, ValueError):
        reply = None
    if reply is None:
        tally.statuses[f"{request.to} none"] += 1
        return
    # If a replica refuses a header, nginx sends the waiting page with status 503.
    is_page = reply.status == 503 and request.to == NGINX and _is_ours(reply)
    tally.statuses[f"{request.to} {reply.status}{' (the page)' if is_page else ''}"] += 1
    is_known = request.to == NGINX and reply.status in UNSUPPORTED
    if reply.status >= 500 and not is_page and not is_known:
        tally.wrong.append(f"{request.to}: {reply.status} to {request.data[:300]!r}")


def _is_ours(reply: Reply) -> bool:
    """Return True if a response is the waiting page or a problem document. Only its headers tell,
    because responses to HEAD have no body."""
    return bool(reply.header("retry-after")) and reply.header("cache-control") == "no-store"


class _Connection:
    """A connection that stays open until the server closes it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: Garbled) -> Reply | None:
        try:
            reply = await self._exchange(request, fresh=self._streams is None)
        except (ConnectionError, asyncio.IncompleteReadError):
            # The server had closed the connection. Send the request once more.
            self.close()
            try:
                reply = await self._exchange(request, fresh=True)
            except BaseException:
                self.close()
                raise
        except BaseException:
            self.close()
            raise
        if not request.is_whole or reply.header("connection").lower() == "close":
            self.close()
        return reply

    async def _exchange(self, request: Garbled, *, fresh: bool) -> Reply:
        async with asyncio.timeout(TIMEOUT_S if request.is_whole else PATIENCE_S):
            if fresh:
                self._streams = await asyncio.open_connection(*self._address, limit=1 << 20)
            assert self._streams is not None
            reader, writer = self._streams
            writer.write(request.data)
            return await read_reply(reader, has_body=not request.is_head)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _memory(site: Site) -> list[float]:
    """Return the memory of each replica in MiB."""
    page = os.sysconf("SC_PAGE_SIZE")
    found = []
    for replica in site.replicas:
        pages = int(Path(f"/proc/{replica.pid}/statm").read_text().split()[1])
        found.append(pages * page / 2**20)
    return found
