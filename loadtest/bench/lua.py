"""The Lua design (baselines/lua) as a measured system.

Visitors poll every ten seconds. A visitor who has to wait is redirected to the waiting page, and
requests that page, except in the flood.
"""

import secrets

from loadtest.baselines.lua.site import LuaSite
from loadtest.bench.runs import WAITING_PAGE, Request, Room
from loadtest.bench.systems import CAPS, ORIGIN, QueueingSystem, poll, spread, visit

_AT_ONCE = 5_000


class Lua(QueueingSystem):
    """It has one room, whose cap changes with the workload."""

    name = "lua"
    caches_polls = False
    floods_take_places = True
    site: LuaSite

    def _start(self) -> None:
        self.site = self._stack.enter_context(LuaSite(max_active=1, origin=ORIGIN))
        self._connect()

    def path(self, workload: str) -> str:  # noqa: ARG002 - it has one room
        return "/"

    def room(self, workload: str) -> Room | None:  # noqa: ARG002 - it has one room
        return Room(self.site.authorized, self.site.waiting, self.site.max_active)

    def _arrival(self, workload: str) -> list[Request]:
        return [*super()._arrival(workload), visit(WAITING_PAGE, "page")]

    def _admit(self, workload: str, number: int) -> list[Request]:
        self.site.max_active = CAPS[workload]
        self.site.flush()
        visitors = [secrets.token_hex(16) for _ in range(number)]
        if visitors:
            self._redis.sadd("queue:authorized:set", *visitors)
            self._redis.set("queue:active:count", number)
        cookies = (f"queue_id={visitor}; queue_authorized=1" for visitor in visitors)
        return [visit("/", "site", cookie=cookie) for cookie in cookies]

    def _wait(self, workload: str, number: int) -> list[Request]:
        return self._wait_in_line(workload, number, number)

    def _wait_in_line(self, workload: str, number: int, polled: int) -> list[Request]:  # noqa: ARG002
        visitors = [secrets.token_hex(16) for _ in range(number)]
        for start in range(0, number, _AT_ONCE):
            part = visitors[start : start + _AT_ONCE]
            line = {visitor: start + place for place, visitor in enumerate(part)}
            self._redis.zadd("queue:zset", line)
        return [poll("/queue/status", f"queue_id={each}") for each in spread(visitors, polled)]

    def _polls_per_minute(self, requests: list[Request]) -> float:  # noqa: ARG002
        return 6.0
