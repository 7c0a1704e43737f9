"""The status document that visitors poll, and the numbers in it."""

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sidecar.gate.contract import Gate, is_resource
from sidecar.kit.clock import iso
from sidecar.rooms.openings import Moments, RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.answer import Answer
from sidecar.visitors.estimate import Wait
from sidecar.visitors.model import DEFAULT_REFRESH_MS, Outcome, Phase, Standing, State
from sidecar.visitors.verdict_lifetime import REFRESH_MS

#: Redis counts as unavailable after this silence, ms.
_LATE_MS = 3 * REFRESH_MS
#: The longest time between two polls of a closed room, seconds: its events may be changed.
CLOSED_REFRESH_S = 60.0
#: The polls at the beginning of a pre-queue are spread over a tenth of it, at most this long, ms.
_MAX_SPREAD_MS = 30_000
#: Without a pre-queue the first to come is first, so polls are spread over less.
_SPREAD_AT_OPENING_MS = 2_000


def document(room: Gate, answer: Answer | None) -> dict[str, Any]:
    """Return the status document. `answer` is None for somebody who has just left."""
    standing, settings = answer.standing if answer else None, room.settings
    now_ms = standing.now_ms if standing else room.clock.now_ms()
    moments = settings.moments(now_ms)
    overrides = moments.overrides
    position, above = shown_position(room, standing)
    wait = answer.wait if answer else None
    line = _line(room, standing) if settings.lines else None
    status: dict[str, Any] = {
        "state": _state_in(room, answer, moments),
        "visitor": answer.visitor if answer else None,
        "position": position,
        "position_above": above,
        "line": line,
        "waiting": _waiting(room, standing, line),
        "ahead": position - 1 if position else None,
        "wait_seconds": wait.seconds if wait else None,
        "wait_seconds_low": wait.low if wait else None,
        "wait_seconds_high": wait.high if wait else None,
        "joined_at": iso(answer.joined_ms) if answer and answer.joined_ms else None,
        "updated_at": iso(now_ms),
        "refresh_after_seconds": _refresh_in(room, answer, moments, now_ms),
        "message": overrides.get("message", settings.message),
        "room": room.name,
        "phase": moments.phase,
        **event_members(event(moments)),
    }
    if answer and answer.joins_later:
        status["join_url"] = f"/_waitroom/{room.name}/join?token={room.tokens.write_join()}"
    if answer and _is_paused(room, answer, moments):
        status["paused"] = True
    if standing and standing.expires_ms and is_resource(room):
        status["expires_at"] = iso(standing.expires_ms)
    return status


_NO_EVENT = dict.fromkeys(("event", "prequeue_from", "opens_at", "closes_at"))


def event_members(about: RoomEvent | None) -> dict[str, str | None]:
    if about is None:
        return _NO_EVENT
    return {
        "event": about.name,
        "prequeue_from": _iso(about.prequeue_from),
        "opens_at": _iso(about.opens_at),
        "closes_at": _iso(about.closes_at),
    }


def store(room: Gate, *, memory: str) -> str | None:
    """Return which store the room is kept in, the same for all replicas that share it. None: Redis
    is unavailable, or the gate is a resource."""
    if memory:
        return f"memory {memory}"
    snapshot = room.snapshot
    if snapshot is None or room.clock.now_ms() > snapshot.now_ms + _LATE_MS:
        return None
    return f"redis {snapshot.born_ms}"


def join_query(document: Mapping[str, Any]) -> str:
    """Return what the page's address has before `next`, if a newcomer joins by loading the page."""
    _, _, query = document.get("join_url", "").partition("?")
    return f"{query}&" if query else ""


def view(document: Mapping[str, Any]) -> str:
    """Return what the page shows for a document (static/waiting.js has the same rule)."""
    state, phase = document["state"], document["phase"]
    if state == State.CLOSED and phase == Phase.CLOSED and document["opens_at"]:
        return "opens"
    if state == State.WAITING and phase == Phase.PREQUEUE:
        return "prequeue"
    return "next" if document["position"] == 1 else str(state)


def position_in_digits(document: Mapping[str, Any]) -> str:
    """Return the position, such as 7 or 2000+, or nothing."""
    above = document["position_above"]
    return f"{above}+" if above is not None else str(document["position"] or "")


def ahead_in_digits(document: Mapping[str, Any]) -> str:
    """Return the number of visitors ahead, such as 6 or 2000+, or nothing."""
    above, ahead = document["position_above"], document["ahead"]
    return f"{above}+" if above is not None else "" if ahead is None else str(ahead)


def event(moments: Moments) -> RoomEvent | None:
    """Return the current event, or else the next one."""
    return moments.event or moments.coming


def shown_position(room: Gate, standing: Standing | None) -> tuple[int | None, int | None]:
    """Return the position from 1 on; or None, and the limit (`rank_limit`) that the position is
    above. After Redis lost data the position might grow, and in a pre-queue it is a secret."""
    if standing is None or standing.outcome is not Outcome.WAITING or standing.recovery_stage:
        return None, None
    if standing.phase is not Phase.OPEN:
        return None, None
    position, limit = standing.ahead + 1, room.settings.rank_limit
    return (None, limit) if limit is not None and position > limit else (position, None)


def _state_in(room: Gate, answer: Answer | None, moments: Moments) -> State:
    """Return the state to show: a visitor without a place sees that a room is closed."""
    if answer is None:
        return State.NOT_QUEUED
    # A room that is rolled out in part lets some visitors pass, and finds out when they join.
    if answer.state is not State.NOT_QUEUED or room.settings.rollout_percent < 100:
        return answer.state
    return State.CLOSED if moments.phase is Phase.CLOSED else answer.state


def refresh_s(room: Gate, answer: Answer | None) -> float:
    """Return when to ask again, seconds."""
    now_ms = answer.standing.now_ms if answer and answer.standing else room.clock.now_ms()
    return _refresh_in(room, answer, room.settings.moments(now_ms), now_ms)


def _refresh_in(room: Gate, answer: Answer | None, moments: Moments, now_ms: int) -> float:
    standing = answer.standing if answer else None
    if moments.phase is Phase.CLOSED and _state_in(room, answer, moments) is State.CLOSED:
        draw = random.random()  # noqa: S311 - spreads requests, and decides nothing
        return until_begins_s(moments.coming, now_ms, draw=draw)
    return ((standing and standing.refresh_ms) or DEFAULT_REFRESH_MS) / 1000


def until_begins_s(coming: RoomEvent | None, now_ms: int, *, draw: float) -> float:
    """Return when to ask a closed room again, seconds: soon after its next event begins. `draw`, in
    [0, 1), spreads the polls."""
    if coming is None:
        return CLOSED_REFRESH_S
    spread_ms: float = _SPREAD_AT_OPENING_MS
    if coming.prequeue_from is not None:
        spread_ms = min(_MAX_SPREAD_MS, (coming.opens_at - coming.prequeue_from) / 10)
    seconds = (coming.begins_ms - now_ms + draw * spread_ms) / 1000
    return round(min(max(1.0, seconds), CLOSED_REFRESH_S), 3)


def _is_paused(room: Gate, answer: Answer, moments: Moments) -> bool:
    """Return whether nobody is called because Redis is unavailable or lost data, or an operator
    paused the room."""
    standing = answer.standing
    if answer.store_unavailable or (standing is not None and standing.recovery_stage == 2):
        return True
    is_paused = room.settings.queue_all
    return is_paused and answer.state is State.WAITING and moments.phase is Phase.OPEN


def moments_at(document: Mapping[str, Any], settings: RoomSettings) -> Moments:
    return settings.moments(at_ms(document))


def at_ms(document: Mapping[str, Any]) -> int:
    """Return when the document was made, by the store's clock."""
    return round(datetime.fromisoformat(document["updated_at"]).timestamp() * 1000)


def message_of(document: Mapping[str, Any], settings: RoomSettings) -> str | None:
    message: str | None = moments_at(document, settings).overrides.get("message", settings.message)
    return message


def wait_of(document: Mapping[str, Any]) -> Wait | None:
    seconds = document["wait_seconds"]
    if seconds is None:
        return None
    return Wait(seconds, document["wait_seconds_low"], document["wait_seconds_high"])


def _line(room: Gate, standing: Standing | None) -> str | None:
    lines = room.settings.lines
    number = standing.line if standing else None
    # Sub-queues that were changed a second ago may be known to Redis only.
    return lines[number].name if number is not None and number < len(lines) else None


def _waiting(room: Gate, standing: Standing | None, line: str | None) -> int | None:
    """Return how many wait in the visitor's sub-queue, or in all."""
    if standing is None:
        return room.snapshot.waiting if room.snapshot else None
    if line is not None and standing.line_waiting is not None:
        return standing.line_waiting
    return standing.waiting


def _iso(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else iso(moment_ms)
