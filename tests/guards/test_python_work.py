"""How much Python runs in a replica for one request, and what it leaves behind.

Calls are those of functions and of methods in C, as the interpreter's profiler sees them: they grow
with what is done, not with how busy the machine is. Blocks are what the allocator has given and not
got back (sys.getallocatedblocks): what a request leaves for good.
"""

import asyncio
import gc
import http.client
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import repeat

import pytest

from tests.support.replica import HTML, Replica, cookie_of

POLL, JOIN, VERDICT = 490, 545, 185
TIMES, POLLS, TRIES = 20, 80, 8
#: After so many seconds a visitor is due to poll again.
AGAIN = 20

Headers = Iterator[dict[str, str]]


@pytest.fixture
async def site(replica):
    """Return a replica whose room has one slot."""
    return await replica(total_active_users=1)


async def ask(site: Replica, path: str, headers: Headers, times: int) -> None:
    """Send requests on one connection, from another thread, which the profiler does not see."""

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", site.edge.port, timeout=10)
        for _ in range(times):
            connection.request("GET", path, headers=next(headers))
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 500
        connection.close()

    await asyncio.to_thread(send)


async def calls(site: Replica, path: str, headers: Headers) -> float:
    """Return the number of calls per request, the lowest of three tries."""
    return min([await _calls(site, path, headers) for _ in range(3)])


async def _calls(site: Replica, path: str, headers: Headers) -> float:
    one, many = [await _called(site, path, headers, times) for times in (1, 1 + TIMES)]
    return (many - one) / TIMES


async def _called(site: Replica, path: str, headers: Headers, times: int) -> int:
    seen: Counter[str] = Counter()

    def note(_frame: object, event: str, _what: object) -> None:
        seen[event] += 1

    sys.setprofile(note)
    try:
        await ask(site, path, headers, times)
    finally:
        sys.setprofile(None)
    return seen["call"] + seen["c_call"]


def status_of(site: Replica) -> str:
    return f"/_waitroom/{site.room.name}/status"


@pytest.fixture
async def tickets(site):
    """Return the headers of waiting visitors, whose next polls are all due."""
    await site.enters()
    cookies = [cookie_of(await site.check()) for _ in range(POLLS)]
    for cookie in cookies:
        await site.status(cookie)  # so that the ticket is known
    site.turn.forward(AGAIN)
    return [{"Cookie": cookie} for cookie in cookies]


async def test_a_poll(site, tickets):
    """A visitor polls when told to, with a ticket that the replica has seen before."""
    found = await calls(site, status_of(site), iter(tickets))
    assert found <= POLL, found


async def test_a_join(site):
    """A newcomer joins the queue of a full room."""
    await site.check()
    newcomer = {"X-Waitroom-Room": site.room.name, **HTML}
    found = await calls(site, "/check", repeat(newcomer))
    assert found <= JOIN, found


async def test_a_verdict(site):
    """A pass that is not due for renewal is checked without Redis."""
    inside = cookie_of(await site.check())
    headers = {"X-Waitroom-Room": site.room.name, "Cookie": inside, **HTML}
    found = await calls(site, "/check", repeat(headers))
    assert found <= VERDICT, found


async def test_a_poll_leaves_nothing(site, tickets):
    """Neither for the garbage collector, whose rounds are paid by others, nor for good: less than
    one object for two polls. A connection and the event loop's cancelled timers leave some."""
    gc.collect()
    gc.disable()
    try:
        cyclic, blocks = [], []
        for _ in range(TRIES):
            await ask(site, status_of(site), iter(tickets), POLLS)
            site.turn.forward(AGAIN)
            cyclic.append(gc.collect())
            blocks.append(sys.getallocatedblocks())
    finally:
        gc.enable()
    assert min(cyclic) <= POLLS // 2, cyclic
    assert blocks[-1] - blocks[0] <= POLLS * (TRIES - 1) // 2, blocks
