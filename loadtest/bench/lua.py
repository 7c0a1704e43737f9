"""The Lua design (baselines/lua) as a measured system.

Visitors poll every ten seconds. A visitor who has to wait is redirected to the waiting page, and
requests that page, except in the flood.
"""

import secrets
import subprocess
from pathlib import Path

import redis

from loadtest.bench.runs import WAITING_PAGE, Request, Room
from loadtest.bench.systems import CAPS, ORIGIN, QueueingSystem, poll, spread, visit
from tests.support.processes import Process
from tests.support.site import (
    ROOT,
    Site,
    fill_placeholders,
    nginx_binary,
    temp_paths,
    user_line,
)

LUA = ROOT / "loadtest/baselines/lua"
#: Number of connections that may wait for being accepted. Each request in progress may open one,
#: and nginx fails if the socket accepts no more.
REDIS_BACKLOG = 4096
_CAP, _INSIDE, _QUEUE = "queue:config:max_active", "queue:authorized:set", "queue:zset"
_AT_ONCE = 5_000


class LuaSite(Site):
    """A redis-server, an origin and nginx with the Lua design."""

    def _start_redis(self, *options: str) -> None:
        super()._start_redis("--tcp-backlog", str(REDIS_BACKLOG), *options)
        with redis.Redis(unix_socket_path=str(self.redis_socket)) as client:
            client.set(_CAP, 1)

    def _start_gate(self) -> Process:
        config = self.folder / "nginx.conf"
        text = fill_placeholders(
            (LUA / "nginx.conf").read_text(),
            user=user_line(),
            modules=_find_modules(),
            temporary=temp_paths(self.folder),
            lua=LUA,
            redis=self.redis_socket,
            port=self.port,
            origin=self.origin_port,
            folder=self.folder,
        )
        config.write_text(text)
        self.nginx = self.run("nginx", [nginx_binary(), "-p", str(self.folder), "-c", str(config)])
        return self.nginx


def _find_modules() -> Path:
    """Return the folder of this nginx's dynamic modules."""
    done = subprocess.run([nginx_binary(), "-V"], capture_output=True, text=True, check=True)
    for option in done.stderr.split():
        name, _, value = option.partition("=")
        if name == "--modules-path":
            return Path(value)
    return Path("/usr/lib/nginx/modules")


class Lua(QueueingSystem):
    """It has one room, whose cap changes with the workload."""

    name = "lua"
    caches_polls = False
    floods_take_places = True

    def _start(self) -> None:
        self.site = self._stack.enter_context(LuaSite(replicas=0, origin=ORIGIN))
        self._connect()

    def path(self, workload: str) -> str:  # noqa: ARG002 - it has one room
        return "/"

    def room(self, workload: str) -> Room | None:
        """Return the room. Visitors inside above the cap are the overshoot."""
        inside = int(self._redis.scard(_INSIDE))
        return Room(inside, int(self._redis.zcard(_QUEUE)), CAPS[workload])

    def _arrival(self, workload: str) -> list[Request]:
        return [*super()._arrival(workload), visit(WAITING_PAGE, "page")]

    def _admit(self, workload: str, number: int) -> list[Request]:
        self._redis.flushall()
        self._redis.set(_CAP, CAPS[workload])
        visitors = [secrets.token_hex(16) for _ in range(number)]
        if visitors:
            self._redis.sadd(_INSIDE, *visitors)
            self._redis.set("queue:active:count", number)
        cookies = (f"queue_id={visitor}; queue_authorized=1" for visitor in visitors)
        return [visit("/", "site", cookie=cookie) for cookie in cookies]

    def _wait_in_line(self, workload: str, number: int, polled: int) -> list[Request]:  # noqa: ARG002
        visitors = [secrets.token_hex(16) for _ in range(number)]
        for start in range(0, number, _AT_ONCE):
            part = visitors[start : start + _AT_ONCE]
            line = {visitor: start + place for place, visitor in enumerate(part)}
            self._redis.zadd(_QUEUE, line)
        return [poll("/queue/status", f"queue_id={each}") for each in spread(visitors, polled)]

    def _polls_per_minute(self, requests: list[Request]) -> float:  # noqa: ARG002
        return 6.0
