"""Runs the control law of adaptive rooms every five seconds, for each room on one replica.

All that the law needs is in Redis, so each tick may run on a different replica. A tick writes its
result only if the stored values are still those that it read."""

import asyncio
import json
from collections.abc import Callable
from typing import TypeAlias

import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.rooms.adaptive.controller import TICK_S, Learned, Reading, tick
from sidecar.rooms.adaptive.metrics import AdaptiveMetrics
from sidecar.rooms.adaptive.settings import AdaptiveSettings
from sidecar.rooms.adaptive.signals import LONGEST_S, STEP_S, Counts, sum_counts
from sidecar.rooms.adaptive.words import describe_site_health, is_notable_change
from sidecar.rooms.hold import HOLD_S, find_illness
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.store.replies import Snapshot

#: Returns the counts of the responses in the last N seconds.
CountResponses: TypeAlias = Callable[[int], Counts]

log = structlog.get_logger()


async def adapt_forever(rooms: WaitingRooms, metrics: Metrics) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        await asyncio.gather(*(_try_to_adapt(room) for room in rooms))
        for room in rooms:
            adaptive = room.settings.adaptive
            is_on = room.snapshot is not None and adaptive is not None and adaptive.mode != "off"
            learned = room.snapshot.learned if room.snapshot and is_on else None
            metrics.of(AdaptiveMetrics).export(room.name, learned)


async def _try_to_adapt(room: WaitingRoom) -> None:
    snapshot = room.snapshot
    if not room.settings.is_site_measured or snapshot is None:
        return
    try:
        if await room.store.acquire_leader_lease("adapting", seconds=0.9 * TICK_S):
            await adapt(room, snapshot)
    except StoreError as error:
        log.warning("adapt_failed", room=room.name, error=str(error))
    except Exception:  # the next tick tries again
        log.exception("adapt_failed", room=room.name)


async def adapt(room: WaitingRoom, snapshot: Snapshot) -> None:
    """Run the law once for one room, and hold the room while its site is ill."""
    last_step = snapshot.now_ms // 1000 // STEP_S
    steps = range(last_step - LONGEST_S // STEP_S, last_step + 1)
    counted = dict(zip(steps, await room.store.read_responses(steps), strict=True))

    def count(seconds: int) -> Counts:
        since = last_step - seconds // STEP_S
        return sum_counts(values for step, values in counted.items() if step > since)

    await _hold_while_ill(room, count, snapshot.now_ms)
    adaptive = room.settings.adaptive
    if adaptive is not None and adaptive.mode != "off":
        await _run_law(room, adaptive, count, snapshot)


async def _hold_while_ill(room: WaitingRoom, count: CountResponses, now_ms: int) -> None:
    settings, hold = room.settings, room.settings.hold
    limits = settings.pause_on_error_share, settings.pause_on_response_time
    why = find_illness(count, *limits, is_held=hold is not None)
    until_ms = now_ms + HOLD_S * 1000
    stored = await room.store.read_learned("hold") if why else ""
    if not why or (stored and json.loads(stored)["until"] >= until_ms):
        return  # a longer hold is stored
    new, event = {"until": until_ms, "why": why}, "" if hold else f"ill ({why})"
    is_stored = await room.store.store_learned(new, expected=stored, event=event, field="hold")
    if is_stored and event:
        log.warning("site_ill", room=room.name, why=why, hint="nobody is called until it is well")


async def _run_law(
    room: WaitingRoom, adaptive: AdaptiveSettings, count: CountResponses, snapshot: Snapshot
) -> None:
    stored = await room.store.read_learned()
    learned = Learned.from_json(json.loads(stored)) if stored else Learned(ceiling=adaptive.min)
    ends, held_ms = snapshot.counters.get("ends", 0), snapshot.counters.get("held_ms", 0)
    stay_s = held_ms / ends / 1000 if ends else room.settings.session_duration
    targets = adaptive.targets(room.settings.total_active_users)
    state = learned.state
    tick(learned, targets, Reading(snapshot.now_ms / 1000, snapshot.active, stay_s, count))
    text = describe_site_health(learned, adaptive, snapshot.active)
    event = f"{learned.state} ({text})" if is_notable_change(state, learned.state) else ""
    is_stored = await room.store.store_learned(learned.to_json(), expected=stored, event=event)
    if is_stored and learned.state != state:
        log_state = log.info if learned.state == "healthy" else log.warning
        log_state("site_state", room=room.name, state=learned.state, mode=adaptive.mode, text=text)
