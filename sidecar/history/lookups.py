"""Answers out of the history, as documents: a visitor's stay, a period's stays, a report."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sidecar.history.service import Tally, places
from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.history.model import Entry, Event
    from sidecar.history.store.stays import History

#: Events and places of one visitor that are returned, at most.
EVENTS_LIMIT = 1000
#: Beyond so many who stood before a visitor its place over time is left out: reading and counting
#: them would keep a replica from its visitors.
AHEAD_LIMIT = 50_000
DAY_MS = 86_400_000
#: The end of the year 9999, after which there is no ISO 8601.
LATEST_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class Period:
    """From the first moment to before the second, ms."""

    from_ms: int
    to_ms: int


def read_period(start: str | None, end: str | None, *, now_ms: int) -> Period:
    """Each a date and time (ISO 8601; UTC where no zone is said) or how long ago ("24h"); by
    default the last day. Raises ConfigError."""
    problems = []
    times = {"from": now_ms - DAY_MS, "to": now_ms}
    for name, text in (("from", start), ("to", end)):
        if text:
            try:
                times[name] = min(max(0, _moment(text, now_ms)), LATEST_MS)
            except (ValueError, OverflowError):
                problems.append(
                    f"{name}: write a time such as 2026-11-27T18:00Z, or how long ago: 90m, 24h, 7d"
                )
    if not problems and times["from"] >= times["to"]:
        problems.append("from: must be before to")
    if problems:
        raise ConfigError(problems)
    return Period(times["from"], times["to"])


def _moment(text: str, now_ms: int) -> int:
    if text == "now":
        return now_ms
    if text[-1:].isalpha() and not text.endswith(("Z", "z")):
        ago = parse_duration(text)
        return now_ms - int(float(ago) * 1000)  # type: ignore[arg-type] # of text it makes a number
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


async def find_visitor(history: History, room: str, visitor: str) -> dict[str, Any] | None:
    """One visitor's stay, its place over time, and what happened; None where nothing is known."""
    entry = await history.entry(room, visitor)
    if entry is None:
        return None
    events = await history.events_of(room, visitor, limit=EVENTS_LIMIT)
    ahead = await history.ahead_of(room, entry, most=AHEAD_LIMIT)
    curve = [] if ahead is None else places(entry, ahead)
    step = max(1, -(-len(curve) // EVENTS_LIMIT))
    return {
        "stay": stay_document(entry),
        "places": [{"at": iso(at_ms), "position": position} for at_ms, position in curve[::step]],
        "events": [_event_document(event) for event in events],
    }


def stay_document(entry: Entry) -> dict[str, Any]:
    """Times as ISO 8601, or null where it has not happened."""
    document = asdict(entry)
    for name in [name for name in document if name.endswith("_ms")]:
        at_ms = document.pop(name)
        document[name.removesuffix("_ms") + "_at"] = None if at_ms is None else iso(at_ms)
    document["class"] = document.pop("class_name")
    document["state"] = state_of(entry)
    return document


def state_of(entry: Entry) -> str:
    """waiting, called, inside or ended."""
    if entry.ended_ms is not None:
        return "ended"
    if entry.admitted_ms is not None:
        return "inside"
    return "called" if entry.called_ms is not None else "waiting"


def _event_document(event: Event) -> dict[str, Any]:
    return {
        "id": f"{event.ms}-{event.seq}", "at": iso(event.at_ms), "kind": event.kind,
        "why": event.why, **event.more,
    }  # fmt: skip


async def find_stays(
    history: History, room: str, period: Period, *, limit: int | None = None, offset: int = 0
) -> AsyncIterator[dict[str, Any]]:
    """Stays that began in the period."""
    found = history.entries(
        room, from_ms=period.from_ms, to_ms=period.to_ms, limit=limit, offset=offset
    )
    async for entry in found:
        yield stay_document(entry)


async def find_report(
    history: History, room: str, period: Period, *, most: int | None = None
) -> dict[str, Any] | None:
    """The room over a period; None when more than `most` stays began in it."""
    limit = None if most is None else most + 1
    found = history.entries(room, from_ms=period.from_ms, to_ms=period.to_ms, limit=limit)
    tally = Tally()
    async for entry in found:
        tally.add(entry)
    if most is not None and tally.counts["stays"] > most:
        return None
    document = {"room": room, "from": iso(period.from_ms), "to": iso(period.to_ms)}
    return {**document, **asdict(tally.report())}


async def find_changes(
    history: History, room: str, period: Period, *, limit: int, after: str = ""
) -> tuple[list[dict[str, Any]], str | None]:
    """What operators did, latest first; and the `after` of the next page, None: no more."""
    ms, _, seq = after.partition("-")
    acts = await history.changes(
        room,
        from_ms=period.from_ms,
        to_ms=period.to_ms,
        limit=limit,
        before=(int(ms), int(seq)) if after else None,
    )
    found = [
        {"at": iso(act.at_ms), "by": act.operator, "what": act.action, "visitor": act.visitor,
         "detail": act.detail}
        for act in acts
    ]  # fmt: skip
    return found, f"{acts[-1].ms}-{acts[-1].seq}" if len(acts) == limit else None


def as_csv(documents: Iterable[dict[str, Any]]) -> str:
    """A header and a line for each. What a spreadsheet would take for a formula is quoted."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for document in documents:
        if writer is None:
            writer = csv.DictWriter(out, list(document))
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in document.items()})
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return f"'{value}"
    return value
