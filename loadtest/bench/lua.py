"""The Lua design (baselines/lua) as a measured system.

Visitors poll every ten seconds. A visitor who has to wait is redirected to the waiting page, and
requests that page, except in the flood.
"""

import secrets

from loadtest.baselines.lua.site import LuaSite
from loadtest.bench.runs import Load, Reply, Request, Room
from loadtest.bench.systems import (
    DEEP,
    DEEP_POLLED,
    OPEN_CAP,
    ORIGIN,
    RUSH_CAP,
    WAITING,
    QueueingSystem,
    is_site,
    poll,
    spread,
    visit,
)

POLLS_PER_MINUTE = 6.0
_PAGE = "/queue/waiting.html"
_AT_ONCE = 5_000


class Lua(QueueingSystem):
    name = "lua"
    site: LuaSite

    def _start(self) -> None:
        self.site = self._stack.enter_context(LuaSite(max_active=1, origin=ORIGIN))
        self._connect()

    def path(self, workload: str) -> str:  # noqa: ARG002 - it has one room
        return "/"

    def room(self, workload: str) -> Room | None:  # noqa: ARG002 - it has one room
        return Room(self.site.authorized, self.site.waiting, self.site.max_active)

    def served(self, reply: Reply) -> str:
        if is_site(reply):
            return "site"
        if reply.status == 302 and reply.headers.get("Location", "").endswith(_PAGE):
            return "place" if "Set-Cookie" in reply.headers else "redirect"
        if reply.status == 200 and b'"state":"waiting"' in reply.body:
            return "status"
        if reply.status == 200 and b"<html" in reply.body:
            return "page"
        return f"status {reply.status}"

    def _newcomers(self) -> Load:
        return self._arriving(OPEN_CAP, visit("/", "site"))

    def _full(self) -> Load:
        return self._arriving(1, visit("/", "place"), visit(_PAGE, "page"))

    def _flood(self) -> Load:
        return self._arriving(1, visit("/", "place"))

    def _arriving(self, cap: int, *requests: Request) -> Load:
        self._fill(cap, inside=1 if cap == 1 else 0)
        return Load(list(requests), each=len(requests), joins=True)

    def _polls(self) -> Load:
        self._fill(1, inside=1)
        return Load(self._polling("polls", WAITING), apart=True)

    def _deep(self) -> Load:
        self._fill(1, inside=1)
        requests = self._polling("deep", DEEP, DEEP_POLLED)
        return Load(requests, apart=True, polls_per_minute=POLLS_PER_MINUTE)

    def _rush(self) -> Load:
        self._fill(RUSH_CAP)
        requests = [visit("/", "site", "place")]
        return Load(requests, joins=True, count=True, connections=256)

    def _fill(self, cap: int, inside: int = 0) -> list[str]:
        """Empty the room, and admit visitors. Return their ids."""
        self.site.max_active = cap
        self.site.flush()
        visitors = [secrets.token_hex(16) for _ in range(inside)]
        if inside:
            self._redis.sadd("queue:authorized:set", *visitors)
            self._redis.set("queue:active:count", inside)
        return visitors

    def _passes(self, workload: str, number: int) -> list[Request]:  # noqa: ARG002 - as above
        return [
            visit("/", "site", cookie=f"queue_id={visitor}; queue_authorized=1")
            for visitor in self._fill(number, inside=number)
        ]

    def _polling(self, workload: str, number: int, polled: int = 0) -> list[Request]:  # noqa: ARG002
        visitors = [secrets.token_hex(16) for _ in range(number)]
        for start in range(0, number, _AT_ONCE):
            part = visitors[start : start + _AT_ONCE]
            line = {visitor: start + place for place, visitor in enumerate(part)}
            self._redis.zadd("queue:zset", line)
        return [
            poll("/queue/status", f"queue_id={each}") for each in spread(visitors, polled or number)
        ]
