"""A scenario that sends 100,000 malformed requests on keep-alive connections."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from loadtest.machine import memory_mb
from tests.faults.garbage import EDGE, NGINX, OPS, TOYED_WITH, Garbled, mix_requests
from tests.faults.verdict import Row
from tests.faults.wire import Reply, Wire
from tests.faults.world import REPLICAS, Scale
from tests.support.site import BY_DEFAULT, Site

WORKERS = 32
#: Statuses that nginx may send, for unknown transfer codings and HTTP versions.
UNSUPPORTED = {501, 505}
MAX_GROWTH_MIB = 20
#: Timeout for the response to a request that may be incomplete.
PATIENCE_S = 0.3


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
    lines = {to: Wire(url) for to, url in doors.items()}
    try:
        for request in source:
            await _send_one(lines[request.to], request, tally)
    finally:
        for line in lines.values():
            line.close()


async def _send_one(line: Wire, request: Garbled, tally: Tally) -> None:
    timeout_s = None if request.is_whole else PATIENCE_S
    try:
        reply = await line.exchange(request.data, has_body=not request.is_head, timeout_s=timeout_s)
    except (OSError, EOFError, ValueError) as error:
        if isinstance(error, TimeoutError) and request.is_whole:
            tally.wrong.append(f"{request.to}: no answer to {request.data[:200]!r}")
        tally.statuses[f"{request.to} none"] += 1
        return
    if not request.is_whole:
        line.close()
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


def _memory(site: Site) -> list[float]:
    """Return the memory of each replica in MiB."""
    return [memory_mb(replica.pid) for replica in site.replicas]
