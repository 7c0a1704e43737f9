"""The status document that visitors poll, and its members."""

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sidecar.gate.contract import Gate, is_resource
from sidecar.gate.page.countdown import closed_refresh_s
from sidecar.kit.clock import iso
from sidecar.rooms.openings import Moments, RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.answer import Answer
from sidecar.visitors.estimate import Wait
from sidecar.visitors.model import DEFAULT_REFRESH_MS, Phase, QueueOutcome, Standing, VisitorState
from sidecar.visitors.verdict_lifetime import REFRESH_MS

#: The age of a snapshot, ms, from which Redis counts as unavailable.
_MAX_SNAPSHOT_AGE_MS = 3 * REFRESH_MS


def build_document(room: Gate, answer: Answer | None) -> dict[str, Any]:
    """Return the status document. `answer` is None for a visitor who has just left."""
    standing, settings = answer.standing if answer else None, room.settings
    now_ms = standing.now_ms if standing else room.clock.now_ms()
    moments = settings.moments(now_ms)
    overrides = moments.overrides
    position, above = visible_position(room, standing)
    wait = answer.wait if answer else None
    line = _line_name(room, standing) if settings.lines else None
    status: dict[str, Any] = {
        "state": _visible_state(room, answer, moments),
        "visitor": answer.visitor if answer else None,
        "position": position,
        "position_above": above,
        "line": line,
        "waiting": _waiting_count(room, standing, line),
        "ahead": position - 1 if position else None,
        "wait_seconds": wait.seconds if wait else None,
        "wait_seconds_low": wait.low if wait else None,
        "wait_seconds_high": wait.high if wait else None,
        "joined_at": iso(answer.joined_ms) if answer and answer.joined_ms else None,
        "updated_at": iso(now_ms),
        "refresh_after_seconds": _refresh_s(room, answer, moments, now_ms),
        "message": overrides.get("message", settings.message),
        "room": room.name,
        "phase": moments.phase,
        **event_members(current_or_next_event(moments)),
    }
    if answer and answer.joins_later:
        status["join_url"] = f"/_waitroom/{room.name}/join?token={room.tokens.write_join()}"
    if answer and _is_paused(room, answer, moments):
        status["paused"] = True
    if standing and standing.expires_ms and is_resource(room):
        status["expires_at"] = iso(standing.expires_ms)
    return status


_NO_EVENT = dict.fromkeys(("event", "prequeue_from", "opens_at", "closes_at"))


def event_members(event: RoomEvent | None) -> dict[str, str | None]:
    if event is None:
        return _NO_EVENT
    return {
        "event": event.name,
        "prequeue_from": _iso(event.prequeue_from),
        "opens_at": _iso(event.opens_at),
        "closes_at": _iso(event.closes_at),
    }


def store_id(room: Gate, *, memory: str) -> str | None:
    """Return the id of the room's store, which is the same on all replicas that share the store.
    None if Redis is unavailable or the gate is a resource."""
    if memory:
        return f"memory {memory}"
    snapshot = room.snapshot
    if snapshot is None or room.clock.now_ms() > snapshot.now_ms + _MAX_SNAPSHOT_AGE_MS:
        return None
    return f"redis {snapshot.born_ms}"


def join_query(document: Mapping[str, Any]) -> str:
    """Return the query before `next` in the page address that newcomers join by. Often empty."""
    _, _, query = document.get("join_url", "").partition("?")
    return f"{query}&" if query else ""


def choose_view(document: Mapping[str, Any]) -> str:
    """Return the page's view for a status document (by the same rule as static/waiting.js)."""
    state, phase = document["state"], document["phase"]
    if state == VisitorState.CLOSED and phase == Phase.CLOSED and document["opens_at"]:
        return "opens"
    if state == VisitorState.WAITING and phase == Phase.PREQUEUE:
        return "prequeue"
    return "next" if document["position"] == 1 else str(state)


def format_position(document: Mapping[str, Any]) -> str:
    """Return the position, such as 7 or 2000+. Empty if there is none."""
    above = document["position_above"]
    return f"{above}+" if above is not None else str(document["position"] or "")


def format_ahead(document: Mapping[str, Any]) -> str:
    """Return the number of visitors ahead, such as 6 or 2000+. Empty if it is unknown."""
    above, ahead = document["position_above"], document["ahead"]
    return f"{above}+" if above is not None else "" if ahead is None else str(ahead)


def current_or_next_event(moments: Moments) -> RoomEvent | None:
    return moments.event or moments.coming


def visible_position(room: Gate, standing: Standing | None) -> tuple[int | None, int | None]:
    """Return the position, from 1 on, or None and the `rank_limit` that it is above. Both are None
    in recovery, because the position might grow, and before the opening, because it is secret."""
    if standing is None or standing.outcome is not QueueOutcome.WAITING or standing.recovery_stage:
        return None, None
    if standing.phase is not Phase.OPEN:
        return None, None
    position, limit = standing.ahead + 1, room.settings.rank_limit
    return (None, limit) if limit is not None and position > limit else (position, None)


def _visible_state(room: Gate, answer: Answer | None, moments: Moments) -> VisitorState:
    """Return the state to show, which is `closed` for visitors without a place in a closed room."""
    if answer is None:
        return VisitorState.NOT_QUEUED
    # In a partial roll-out, only joining shows whether a visitor is outside and passes anyway.
    if answer.state is not VisitorState.NOT_QUEUED or room.settings.rollout_percent < 100:
        return answer.state
    return VisitorState.CLOSED if moments.phase is Phase.CLOSED else answer.state


def refresh_s(room: Gate, answer: Answer | None) -> float:
    """Return the time until the visitor's next poll, seconds."""
    now_ms = answer.standing.now_ms if answer and answer.standing else room.clock.now_ms()
    return _refresh_s(room, answer, room.settings.moments(now_ms), now_ms)


def _refresh_s(room: Gate, answer: Answer | None, moments: Moments, now_ms: int) -> float:
    standing = answer.standing if answer else None
    if (
        moments.phase is Phase.CLOSED
        and _visible_state(room, answer, moments) is VisitorState.CLOSED
    ):
        draw = random.random()  # noqa: S311 - only spreads requests
        return closed_refresh_s(moments.coming, now_ms, draw=draw)
    return ((standing and standing.refresh_ms) or DEFAULT_REFRESH_MS) / 1000


def _is_paused(room: Gate, answer: Answer, moments: Moments) -> bool:
    """Return whether nobody is called, because Redis is unavailable or lost data, or because an
    operator paused the room."""
    standing = answer.standing
    if answer.store_unavailable or (standing is not None and standing.recovery_stage == 2):
        return True
    is_paused = room.settings.queue_all
    return is_paused and answer.state is VisitorState.WAITING and moments.phase is Phase.OPEN


def moments_of(document: Mapping[str, Any], settings: RoomSettings) -> Moments:
    return settings.moments(updated_ms(document))


def updated_ms(document: Mapping[str, Any]) -> int:
    """Return the time of the document by the store's clock, in ms since 1970."""
    return round(datetime.fromisoformat(document["updated_at"]).timestamp() * 1000)


def message_of(document: Mapping[str, Any], settings: RoomSettings) -> str | None:
    message: str | None = moments_of(document, settings).overrides.get("message", settings.message)
    return message


def wait_of(document: Mapping[str, Any]) -> Wait | None:
    seconds = document["wait_seconds"]
    if seconds is None:
        return None
    return Wait(seconds, document["wait_seconds_low"], document["wait_seconds_high"])


def _line_name(room: Gate, standing: Standing | None) -> str | None:
    lines = room.settings.lines
    index = standing.line if standing else None
    # Redis may already have a sub-queue that was added in the last second, and the replica not yet.
    return lines[index].name if index is not None and index < len(lines) else None


def _waiting_count(room: Gate, standing: Standing | None, line: str | None) -> int | None:
    """Return the number of visitors waiting in the visitor's sub-queue, or else in the room."""
    if standing is None:
        return room.snapshot.waiting if room.snapshot else None
    if line is not None and standing.line_waiting is not None:
        return standing.line_waiting
    return standing.waiting


def _iso(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso(time_ms)
