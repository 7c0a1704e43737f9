"""Builds the status document that visitors poll, and reads its members."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sidecar.gate.contract import Gate, is_resource
from sidecar.gate.page.languages import choose_language
from sidecar.gate.polls import compute_interval_s
from sidecar.kit.clock import iso
from sidecar.rooms.messages import get_text, get_translations
from sidecar.rooms.openings import RoomEvent, Schedule
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import Phase, QueueOutcome, Standing, VisitorState
from sidecar.visitors.verdict_lifetime import REFRESH_MS

#: If the latest snapshot is older than this, in ms, Redis counts as unavailable.
_MAX_SNAPSHOT_AGE_MS = 3 * REFRESH_MS


def build_document(room: Gate, answer: Answer | None) -> dict[str, Any]:
    """Return the status document. `answer` is None for a visitor who has just left."""
    standing, settings = answer.standing if answer else None, room.settings
    now_ms, schedule = _read_schedule(room, standing)
    state = _choose_state(room, answer, schedule)
    position, above = get_position(room, standing)
    wait = answer.wait if answer else None
    line = _find_line_name(room, standing) if settings.lines else None
    message = settings.find_message(schedule, now_ms)
    document: dict[str, Any] = {
        "state": state,
        "visitor": answer.visitor if answer else None,
        "position": position,
        "position_above": above,
        "line": line,
        "waiting": _count_waiting(room, standing, line),
        "ahead": position - 1 if position else None,
        "wait_seconds": wait.seconds if wait else None,
        "wait_seconds_low": wait.low if wait else None,
        "wait_seconds_high": wait.high if wait else None,
        "joined_at": iso(answer.joined_ms) if answer and answer.joined_ms else None,
        "updated_at": iso(now_ms),
        "refresh_after_seconds": compute_interval_s(state, standing, schedule, now_ms),
        "message": get_text(message),
        "room": room.name,
        "phase": schedule.phase,
        **build_event_members(schedule.event or schedule.next_event),
    }
    if translations := get_translations(message):
        document["messages"] = translations
    if answer and answer.joins_later:
        document["join_url"] = f"/_waitroom/{room.name}/join?token={room.tokens.write_join()}"
    if answer and _is_paused(room, answer, schedule):
        document["paused"] = True
    if standing and standing.is_measuring and wait is None and state == VisitorState.WAITING:
        document["measuring"] = True
    if standing and standing.expires_ms and is_resource(room):
        document["expires_at"] = iso(standing.expires_ms)
    return document


_NO_EVENT = dict.fromkeys(("event", "prequeue_from", "opens_at", "closes_at", "timezone"))


def build_event_members(event: RoomEvent | None) -> dict[str, str | None]:
    """Return the members of the status document about the current or next event."""
    if event is None:
        return _NO_EVENT
    prequeue_ms, closes_ms = event.prequeue_from, event.closes_at
    return {
        "event": event.name,
        "prequeue_from": None if prequeue_ms is None else iso(prequeue_ms),
        "opens_at": iso(event.opens_at),
        "closes_at": None if closes_ms is None else iso(closes_ms),
        # In an event with the default time zone, UTC, the times may have offsets instead.
        "timezone": None if event.timezone == "UTC" else event.timezone,
    }


def get_position(room: Gate, standing: Standing | None) -> tuple[int | None, int | None]:
    """Return (position, None), or (None, `rank_limit`) if the position is above that limit. Return
    (None, None) in a recovery, when the position might grow, and while the position is secret."""
    if standing is None or standing.outcome is not QueueOutcome.WAITING or standing.recovery_stage:
        return None, None
    if standing.phase is not Phase.OPEN:
        return None, None
    position, limit = standing.ahead + 1, room.settings.rank_limit
    return (None, limit) if limit is not None and position > limit else (position, None)


def choose_message(document: Mapping[str, Any], accept_language: str | None) -> str | None:
    """Return the operator's message in the visitor's language, as static/waiting.js does."""
    texts: dict[str, str] = document.get("messages", {})
    text: str | None = document["message"]
    return texts.get(choose_language(accept_language, texts) or "", text)


def get_refresh_s(room: Gate, answer: Answer) -> float:
    """Return the seconds until the visitor's next poll, as the status document has them."""
    now_ms, schedule = _read_schedule(room, answer.standing)
    state = _choose_state(room, answer, schedule)
    return compute_interval_s(state, answer.standing, schedule, now_ms)


def _read_schedule(room: Gate, standing: Standing | None) -> tuple[int, Schedule]:
    """Return the time by the store's clock, in ms, and the room's phase and events at that time."""
    now_ms = standing.now_ms if standing else room.clock.now_ms()
    return now_ms, room.settings.schedule_at(now_ms)


def get_store_id(room: Gate, *, memory: str) -> str | None:
    """Return the id of the room's store, which is the same on all replicas that share the store.
    None if Redis is unavailable or the gate is a resource."""
    if memory:
        return f"memory {memory}"
    snapshot = room.snapshot
    if snapshot is None or room.clock.now_ms() > snapshot.now_ms + _MAX_SNAPSHOT_AGE_MS:
        return None
    return f"redis {snapshot.born_ms}"


def get_join_query(document: Mapping[str, Any]) -> str:
    """Return the part of the query that precedes `next` when a newcomer joins, which may be ""."""
    _, _, query = document.get("join_url", "").partition("?")
    return f"{query}&" if query else ""


def choose_view(document: Mapping[str, Any]) -> str:
    """Return the page's view for a status document (by the same rule as static/waiting.js)."""
    state, phase = document["state"], document["phase"]
    if state == VisitorState.CLOSED and phase == Phase.CLOSED and document["opens_at"]:
        return "opens"
    if state == VisitorState.WAITING and phase == Phase.PREQUEUE:
        return "prequeue"
    is_next = document["position"] == 1 and not document.get("paused")
    return "next" if is_next else str(state)


def choose_first_view(room: Gate, answer: Answer) -> str:
    """Return the view that the page shows first to a visitor who may not pass. It is that of
    choose_view, except for "paused", "opens_draw" (places are drawn) and "joining" (no place)."""
    _, schedule = _read_schedule(room, answer.standing)
    is_paused, event = _is_paused(room, answer, schedule), schedule.event or schedule.next_event
    view = choose_view(
        {
            "state": _choose_state(room, answer, schedule),
            "phase": schedule.phase,
            "opens_at": event,
            "position": get_position(room, answer.standing)[0],
            "paused": is_paused,
        }
    )
    if view == VisitorState.WAITING and is_paused:
        return "paused"
    if view == "opens" and event and event.prequeue_from is not None:
        return "opens_draw"
    return "joining" if view == VisitorState.NOT_QUEUED else view


def add_draw(view: str, document: Mapping[str, Any]) -> str:
    """Return the view, or `opens_draw` for the view `opens` of an event whose places are drawn."""
    return "opens_draw" if view == "opens" and document["prequeue_from"] else view


def _choose_state(room: Gate, answer: Answer | None, schedule: Schedule) -> VisitorState:
    """Return the state to show, which is `closed` for visitors without a place in a closed room."""
    if answer is None:
        return VisitorState.NOT_QUEUED
    # In a partial roll-out, some visitors need not wait. Which ones is known only when they join.
    if answer.state is not VisitorState.NOT_QUEUED or room.settings.rollout_percent < 100:
        return answer.state
    return VisitorState.CLOSED if schedule.phase is Phase.CLOSED else answer.state


def _is_paused(room: Gate, answer: Answer, schedule: Schedule) -> bool:
    """Return True if nobody is called: Redis is unavailable or lost data, or the room is paused."""
    standing = answer.standing
    if answer.store_unavailable or (standing is not None and standing.recovery_stage == 2):
        return True
    is_waiting = answer.state is VisitorState.WAITING and schedule.phase is Phase.OPEN
    return room.settings.queue_all and is_waiting


def parse_updated_ms(document: Mapping[str, Any]) -> int:
    """Return the time of the document by the store's clock, in ms since 1970."""
    return round(datetime.fromisoformat(document["updated_at"]).timestamp() * 1000)


def _find_line_name(room: Gate, standing: Standing | None) -> str | None:
    lines = room.settings.lines
    index = standing.line if standing else None
    # Redis may already have a new sub-queue that the replica learns of only in the next second.
    return lines[index].name if index is not None and index < len(lines) else None


def _count_waiting(room: Gate, standing: Standing | None, line: str | None) -> int | None:
    """Return the number of visitors waiting in the visitor's sub-queue, or else in the room."""
    if standing is None:
        return room.snapshot.waiting if room.snapshot else None
    if line is not None and standing.line_waiting is not None:
        return standing.line_waiting
    return standing.waiting
