"""Judges the run of a scenario, with pure functions of the visitors' diaries.

The terms are those of docs/reliability.md:

* A *failure* is a response that did not arrive within 5 s, or a status other than 200 and 202
  that the fault does not excuse (`Excuse`).
* A *place is lost* when a visitor with a ticket gets another place or none. A *session is lost*
  when a visitor inside has to wait, or gets another identity. One column counts both.
* An *inversion* is a visitor X who was overtaken: another visitor, who joined later, was called or
  admitted at once more than one refresh of X before X was called. Orders are read from cookies, and
  calls from Redis' stream of events. Admissions by a replica without Redis are not calls.
* After an *outage*, even the shortest delay counts (`count_overtaking`).
* The *peak* is the highest number of visitors inside at the same time. By the site's log, a
  visitor is inside from the first request that the site answered to the last. If a visitor was told
  to wait in between, these are two stays.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtest.verdict import peak_overlap
from tests.faults.diary import PASS, TICKET, Diary, Entry, Token

#: Statuses that are never failures.
FINE = {200, 202}
#: A visitor whose poll is later than this may lose the place (claim_window).
SILENCE_S = 30.0


class Call(NamedTuple):
    """A visitor whom Redis called, or admitted at once."""

    at: float
    visitor: str


@dataclass(frozen=True, slots=True)
class Excuse:
    """Status 503 is allowed from `begin` to `end`, because of the fault."""

    begin: float
    end: float
    #: Selects the responses that are excused. They must be the waiting page or problem documents.
    whom: Callable[[Entry], bool] = lambda _: True

    def covers(self, entry: Entry) -> bool:
        return (
            entry.status == 503
            and entry.ours
            and self.begin <= entry.received
            and entry.sent <= self.end
            and self.whom(entry)
        )


def failures(diary: Diary, excuses: Iterable[Excuse] = ()) -> list[str]:
    found = []
    for entry in diary.entries:
        if entry.error:
            found.append(f"{diary.name} {entry.what} at {entry.sent:.3f}: {entry.error}")
        elif entry.status not in FINE and not any(excuse.covers(entry) for excuse in excuses):
            found.append(f"{diary.name} {entry.what} at {entry.sent:.3f}: status {entry.status}")
    return found


def losses(diary: Diary) -> list[str]:
    """Return a line for each response with which a visitor lost a place or a session."""
    found = []
    held: Token | None = None
    for entry in diary.entries:
        if entry.what == "leave":
            break
        if entry.error or entry.status not in FINE:
            continue
        if held is not None and (loss := _describe_loss(held, entry)):
            found.append(f"{diary.name} {entry.what} at {entry.sent:.3f}: {loss}")
        held = entry.token
    return found


def _describe_loss(held: Token, entry: Entry) -> str:
    if entry.state in {"not_queued", "full", "closed"}:
        return f"had {held.kind}~{held.order}, is told {entry.state}"
    token = entry.token
    if token is None:
        return "the cookie is gone"
    if held.kind == PASS and entry.state == "waiting":
        return f"was inside ({held.order}), is told to wait"
    if token.visitor != held.visitor:
        return f"{held.kind}~{held.order} became somebody else, {token.kind}~{token.order}"
    if held.kind == TICKET and token.order != held.order:
        return f"order {held.order} became {token.order}"
    return ""


class _Wait(NamedTuple):
    """An interval in which a visitor certainly waited and had not been called."""

    name: str
    order: int
    begin: float
    end: float
    refresh_s: float


def inversions(
    diaries: Iterable[Diary], calls: Iterable[Call], *, tolerance: float = 1.0
) -> list[str]:
    """Return a line for each visitor who was overtaken by more than `tolerance` refreshes."""
    called: defaultdict[str, list[float]] = defaultdict(list)
    for call in calls:
        called[call.visitor].append(call.at)
    waits, turns = [], []
    for diary in diaries:
        token = next((e.token for e in diary.entries if e.token), None)
        if token is None:
            continue
        moments = sorted(called[token.visitor]) or _find_first_admission(diary)
        if moments:
            turns.append((moments[0], token.order, diary.name))
        waits += _waits(diary, token, sorted(called[token.visitor]))
    turns.sort()
    found = []
    for wait in waits:
        end = wait.end - tolerance * wait.refresh_s
        first = bisect_left(turns, (wait.begin,))
        past = [t for t in turns[first:] if t[0] < end and t[1] > wait.order]
        if past:
            at, order, name = past[0]
            found.append(
                f"{wait.name} ({wait.order}) waited until {wait.end:.3f}, refresh"
                f" {wait.refresh_s:.1f} s; {name} ({order}) was called at {at:.3f}"
                f" and {len(past) - 1} more"
            )
    return found


@dataclass(slots=True)
class Overtaking:
    """The effect of an outage on the visitors who waited before the outage."""

    #: How many were overtaken by visitors behind them, and by how many at most.
    people: int = 0
    worst: int = 0
    #: How many were overtaken by visitors who came after the outage.
    by_newcomers: int = 0
    #: How many were called after the outage.
    called: int = 0
    #: Seconds from the end of the outage to the first call.
    first_call_s: float | None = None

    def problems(self) -> list[str]:
        found = []
        if self.people:
            found.append(f"{self.people} overtaken by people behind, by {self.worst} at worst")
        if self.by_newcomers:
            found.append(f"{self.by_newcomers} overtaken by newcomers")
        if not self.called:
            found.append("nobody who had waited was called after the outage")
        return found


def count_overtaking(orders: Mapping[str, int], calls: Sequence[Call], mended: float) -> Overtaking:
    """Count the visitors who were overtaken because of an outage.

    Args:
        orders: The order of each visitor who waited before the outage.
        calls: The calls since the outage began, in Redis' order. Of several calls of a visitor who
            did not come in time, the last counts.
        mended: When the outage ended.
    """
    turns = {call.visitor: turn for turn, call in enumerate(calls)}
    found = Overtaking(called=len(turns.keys() & orders.keys()))
    if calls:
        found.first_call_s = max(0.0, min(call.at for call in calls) - mended)
    for visitor, order in orders.items():
        own = turns.get(visitor, len(calls))
        ahead = [other for other, turn in turns.items() if turn < own]
        behind = sum(orders.get(other, 0) > order for other in ahead)
        found.people += behind > 0
        found.worst = max(found.worst, behind)
        found.by_newcomers += any(other not in orders for other in ahead)
    return found


def read_call(event: Mapping[bytes, bytes]) -> Call | None:
    """Convert an event of a room's stream to a Call. Return None if it is not about a call."""
    kind, why = event[b"kind"], event[b"why"]
    if kind == b"called" or (kind, why) == (b"admitted", b"at_once"):
        return Call(int(event[b"at"]) / 1000, event[b"visitor"].decode())
    return None


def _find_first_admission(diary: Diary) -> list[float]:
    """Return when a visitor was first inside, by the diary, because Redis lost the room's events.
    The list has one item or none."""
    first = next((e for e in diary.entries if e.state == "admitted" and e.token), None)
    return [] if first is None or is_admitted_without_redis(first) else [first.received]


def is_admitted_without_redis(entry: Entry) -> bool:
    """Return True if a replica admitted the visitor without Redis."""
    return entry.token is not None and entry.token.renewed_ms == 0


def _waits(diary: Diary, token: Token, called: Sequence[float]) -> list[_Wait]:
    """Return the intervals in which a visitor waited.

    An interval ends with a call in Redis' events, or else with the last poll to which the response
    was to wait. If Redis lost a call with its data, a new interval begins with the next such poll.
    """
    found: list[_Wait] = []
    stretch: list[Entry] = []

    def end_at(moment: float) -> None:
        if stretch:
            refresh = next((e.refresh_s for e in reversed(stretch) if e.refresh_s), 5.0)
            found.append(_Wait(diary.name, token.order, stretch[0].received, moment, refresh))
            stretch.clear()

    for entry in diary.entries:
        if entry.error or entry.status not in FINE or entry.what == "leave":
            continue
        turns = [at for at in called if stretch and stretch[-1].sent <= at <= entry.sent]
        if turns:
            end_at(turns[0])
        if entry.state != "waiting":
            end_at(stretch[-1].sent if stretch else 0)
            continue
        if stretch and entry.sent - stretch[-1].sent > _max_silence_s(stretch[-1]):
            # A visitor who does not poll for so long may lose the place.
            stretch.clear()
        stretch.append(entry)
    end_at(stretch[-1].sent if stretch else 0)
    return found


def _max_silence_s(entry: Entry) -> float:
    return (entry.refresh_s or 0) * 1.05 + SILENCE_S


def peak_inside(origin: Iterable[tuple[float, str]], diaries: Iterable[Diary]) -> int:
    """Return the highest number of visitors who were inside at the same time."""
    out: defaultdict[str, list[float]] = defaultdict(list)
    for diary in diaries:
        for entry in diary.entries:
            if entry.state == "waiting" and entry.token:
                out[entry.token.visitor].append(entry.sent)
    requests: defaultdict[str, list[float]] = defaultdict(list)
    for at, visitor in origin:
        requests[visitor].append(at)
    stays = []
    for visitor, moments in requests.items():
        moments.sort()
        breaks = sorted(out[visitor])
        groups: defaultdict[int, list[float]] = defaultdict(list)
        for at in moments:
            groups[bisect_left(breaks, at)].append(at)
        stays += [(group[0], group[-1]) for group in groups.values()]
    return peak_overlap(stays)


def recovery(diaries: Iterable[Diary], *, broken: float, mended: float) -> float:
    """Return the seconds from the end of the fault to the last response that was an error, had an
    unusual status, or said that the queue is paused."""
    last = max(
        (e.received for d in diaries for e in d.entries if e.received >= broken and _is_odd(e)),
        default=mended,
    )
    return max(0.0, last - mended)


def _is_odd(entry: Entry) -> bool:
    if entry.what == "leave":
        return False
    return bool(entry.error) or entry.status not in FINE or entry.paused


@dataclass(slots=True)
class Row:
    """A scenario's result, which is a row of the report."""

    scenario: str
    requests: int = 0
    failures: int = 0
    lost: int = 0
    inversions: int = 0
    peak: str = "–"
    recover_s: float | None = None
    #: Reasons why the scenario failed.
    broken: list[str] = field(default_factory=list)
    #: What was done and measured, for the report.
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: Set in rows of outages only.
    overtaking: Overtaking | None = None

    @property
    def held(self) -> bool:
        return not self.broken
