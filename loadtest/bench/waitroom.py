"""Waitroom as a measured system: two replicas, a room for each workload.

Some settings differ from the defaults: A full room sends status 202, so that wrk can tell an error
from a waiting page. The shield works in `flood` only. There is no `poll_limit`, because wrk polls
as fast as it can, and no recovery window.
"""

import asyncio
import json
import statistics
from collections.abc import Sequence
from typing import Any

import redis.asyncio

from loadtest.bench.runs import Load, Request, Room, fetch_each
from loadtest.bench.systems import (
    CAPS,
    ORIGIN,
    REPLICAS,
    QueueingSystem,
    poll,
    spread,
    visit,
)
from loadtest.redis_server import room_store
from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Pass, QueueOutcome, Standing, Ticket
from sidecar.visitors.tokens import Tokens, new_visitor
from tests.support.site import BY_DEFAULT, SECRET, TO_ORIGIN, Site, gated
from tests.support.visitors import call_in_batches, pass_of, ticket_of

#: Number of newcomers per second and replica that raises the shield of the flooded room.
SHIELD = 50
_NEVER = 10_000_000
_AT_ONCE = 5_000


def _settings(workload: str) -> dict[str, Any]:
    return {
        "total_active_users": CAPS[workload],
        "queueing_status_code": 202,
        "poll_limit": _NEVER,
        # Each run begins with an empty room, which must not count as data loss.
        "recovery_window": 0,
        "shield_above": SHIELD if workload == "flood" else _NEVER,
    }


class Waitroom(QueueingSystem):
    """Waitroom, with other settings of replicas and rooms and lines of nginx where given."""

    name = "waitroom"
    caches_polls = True
    floods_take_places = False

    def __init__(
        self,
        settings: dict[str, Any] | None = None,
        room: dict[str, Any] | None = None,
        lines: Sequence[str] = (),
        replicas: int = REPLICAS,
    ) -> None:
        super().__init__()
        self._replicas = replicas
        self._settings, self._room_settings, self._lines = settings or {}, room or {}, lines

    def _start(self) -> None:
        lines = (*TO_ORIGIN, *self._lines)
        site = Site(
            rooms={name: {**_settings(name), **self._room_settings} for name in CAPS},
            replicas=self._replicas,
            origin=ORIGIN,
            settings={**BY_DEFAULT, **self._settings},
            stamps=True,
            sockets=True,
            locations="".join(gated(f"/{name}/", *lines, room=name) for name in CAPS),
        )
        self.site = self._stack.enter_context(site)
        self._connect()

    def path(self, workload: str) -> str:
        return f"/{workload}/"

    def room(self, workload: str) -> Room | None:
        inside = int(self._redis.zcard(room_key(workload, "active")))
        waiting = int(self._redis.zcard(room_key(workload, "waiting")))
        return Room(inside, waiting, CAPS[workload])

    def prepare(self, workload: str) -> Load | None:
        """Empty the room, so that all passes are new and no pass is due for renewal."""
        self._redis.delete(*room_keys(workload))
        return super().prepare(workload)

    def _admit(self, workload: str, number: int) -> list[Request]:
        entered = self._enter(workload, number, QueueOutcome.ADMITTED)
        return [visit(f"/{workload}/", "site", cookie=each) for each in _cookies(workload, entered)]

    def _wait(self, workload: str, number: int) -> list[Request]:
        return _polls(workload, self._enter(workload, number, QueueOutcome.WAITING))

    def _wait_in_line(self, workload: str, number: int, polled: int) -> list[Request]:
        room = workload
        now_ms = StoreClock().now_ms()
        settings = RoomSettings(**_settings(room))
        due = now_ms + 1000 * (settings.claim_window - settings.heartbeat_timeout) + 0.5
        visitors = [(new_visitor(), 1000 * now_ms + place) for place in range(number)]
        for start in range(0, number, _AT_ONCE):
            part = dict(visitors[start : start + _AT_ONCE])
            self._redis.zadd(room_key(room, "waiting"), part)
            self._redis.zadd(room_key(room, "due"), dict.fromkeys(part, due))
        self._redis.hset(room_key(room, "stats"), "last_order", visitors[-1][1])
        tickets = [Ticket(v, order, now_ms, 0) for v, order in spread(visitors, polled)]
        return _polls(room, tickets)

    def _polls_per_minute(self, requests: list[Request]) -> float:
        """Return the mean that responses to all over the queue advise."""
        replies = fetch_each(self, spread(requests, 100))
        advised_s = [json.loads(reply.body)["refresh_after_seconds"] for reply in replies]
        return 60 / statistics.fmean(advised_s)

    def _enter(self, room: str, number: int, outcome: QueueOutcome) -> list[Ticket | Pass]:
        """Let newcomers join by the script of Waitroom. Return their tokens."""
        visitors = [new_visitor() for _ in range(number)]
        standings = asyncio.run(_enter(str(self.site.redis_socket), room, visitors))
        if outcomes := {standing.outcome for standing in standings} - {outcome}:
            raise RuntimeError(f"{room}: {outcomes} instead of {outcome.name}")
        token_of = pass_of if outcome is QueueOutcome.ADMITTED else ticket_of
        return list(map(token_of, visitors, standings))


def _polls(room: str, tokens: Sequence[Ticket | Pass]) -> list[Request]:
    return [poll(f"/_waitroom/{room}/status", each) for each in _cookies(room, tokens)]


def _cookies(room: str, tokens: Sequence[Ticket | Pass]) -> list[str]:
    signer = Tokens(room, [SECRET], StoreClock())
    return [f"{signer.cookie_name}={signer.write(token)}" for token in tokens]


async def _enter(socket: str, room: str, visitors: Sequence[str]) -> list[Standing]:
    async with redis.asyncio.Redis(unix_socket_path=socket) as client:
        store = room_store(client, room, RoomSettings(**_settings(room)))
        return await call_in_batches(store.enter, visitors)
