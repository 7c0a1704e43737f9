"""The verdict on a run, from its diaries. Pure functions, so that tests need no run.

Terms, as in docs/reliability.md:

* A *failure* is a response that did not arrive within 5 s, or a status other than 200 and 202
  that the fault does not excuse (`Excuse`).
* A *place is lost* when a visitor with a ticket gets another one, or is told that they have
  none; a *session is lost* when a visitor inside is told to wait, or gets another identity. Both
  count in one column.
* An *inversion* is a visitor X who was overtaken: another visitor who joined after X was called
  (or admitted at once) while X was in the queue, more than one refresh of X before X was called.
  Orders are read from cookies, calls from Redis' stream of events. Admissions by a replica without
  Redis (`on_store_failure`) are no calls.
* `overtaking` after an *outage* is stricter: there is no tolerance.
* A *holder* is inside from the first request that the site itself answered to the last, by the
  site's log. A holder who was told to wait in between was outside from the last response before
  that to the first after it. The *peak* is the most holders inside at one moment.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtest.verdict import peak_overlap
from tests.faults.diary import PASS, TICKET, Diary, Entry, Token

FINE = {200, 202}
#: A visitor who misses a poll for longer than this loses the place by right (claim_window).
SILENCE_S = 30.0


class Call(NamedTuple):
    """A visitor who was called, or admitted at once, by Redis."""

    at: float
    visitor: str


@dataclass(frozen=True, slots=True)
class Excuse:
    """A status that is right from `begin` to `end`, while something is broken."""

    begin: float
    end: float
    status: int
    #: Selects responses; all must be Waitroom's (its page, or a problem document).
    whom: Callable[[Entry], bool] = lambda _: True

    def covers(self, entry: Entry) -> bool:
        return (
            entry.status == self.status
            and entry.ours
            and self.begin <= entry.received
            and entry.sent <= self.end
            and self.whom(entry)
        )


@dataclass(slots=True)
class Evidence:
    diaries: Sequence[Diary]
    cap: int
    calls: Sequence[Call] = ()
    #: (moment, visitor) of each request that reached the site itself.
    origin: Sequence[tuple[float, str]] = ()
    #: Numbers of sessions, as the ops listener reported them from time to time.
    sessions: Sequence[int] = ()
    excuses: Sequence[Excuse] = ()
    #: When the fault began and ended.
    broken: float = 0.0
    mended: float = 0.0


@dataclass(slots=True)
class Verdict:
    requests: int
    failures: list[str]
    lost: list[str]
    inversions: list[str]
    #: The most holders inside at once; the most sessions that the ops listener reported.
    peak: int
    sessions: int
    cap: int
    #: Seconds from the end of the fault to the last unusual response.
    recover_s: float

    def problems(self) -> list[str]:
        found = [f"{said[0]} ({len(said)} in all)" for said in self._lists() if said]
        if not self.requests:
            found.append("nobody asked for anything")
        for what, most in (("inside at once", self.peak), ("sessions", self.sessions)):
            if most > self.cap:
                found.append(f"{most} {what}, cap {self.cap}")
        return found

    def _lists(self) -> list[list[str]]:
        return [self.failures, self.lost, self.inversions]


def judge(seen: Evidence) -> Verdict:
    return Verdict(
        requests=sum(len(diary.entries) for diary in seen.diaries),
        failures=[said for diary in seen.diaries for said in failures(diary, seen.excuses)],
        lost=[said for diary in seen.diaries for said in losses(diary)],
        inversions=inversions(seen.diaries, seen.calls),
        peak=peak_inside(seen.origin, seen.diaries),
        sessions=max(seen.sessions, default=0),
        cap=seen.cap,
        recover_s=recovery(seen),
    )


def failures(diary: Diary, excuses: Iterable[Excuse] = ()) -> list[str]:
    found = []
    for entry in diary.entries:
        if entry.error:
            found.append(f"{diary.name} {entry.what} at {entry.sent:.3f}: {entry.error}")
        elif entry.status not in FINE and not any(each.covers(entry) for each in excuses):
            found.append(f"{diary.name} {entry.what} at {entry.sent:.3f}: status {entry.status}")
    return found


def losses(diary: Diary) -> list[str]:
    """Return the moments at which a visitor had less than after the response before."""
    found = []
    held: Token | None = None
    for entry in diary.entries:
        if entry.what == "leave":
            break
        if entry.error or entry.status not in FINE:
            continue
        if held is not None and (said := _worse(held, entry)):
            found.append(f"{diary.name} {entry.what} at {entry.sent:.3f}: {said}")
        held = entry.token
    return found


def _worse(held: Token, entry: Entry) -> str:
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
    """A time in which a visitor waited and was certainly not called."""

    name: str
    order: int
    begin: float
    end: float
    refresh_s: float


def inversions(
    diaries: Iterable[Diary], calls: Iterable[Call], *, tolerance: float = 1.0
) -> list[str]:
    """Return a line for each visitor who was overtaken. `tolerance` is in refreshes."""
    called: defaultdict[str, list[float]] = defaultdict(list)
    for call in calls:
        called[call.visitor].append(call.at)
    waits, turns = [], []
    for diary in diaries:
        token = next((e.token for e in diary.entries if e.token), None)
        if token is None:
            continue
        moments = sorted(called[token.visitor]) or _let_in(diary)
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
    """What an outage cost those who waited before it."""

    #: How many of them were overtaken by people who stood behind them, and by how many at most.
    people: int = 0
    worst: int = 0
    #: How many of them were overtaken by somebody who came after it.
    by_newcomers: int = 0
    #: How many of them were called after it.
    called: int = 0
    #: From its end to the first call of anybody.
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


def overtaking(
    diaries: Iterable[Diary], calls: Iterable[Call], *, broken: float, mended: float
) -> Overtaking:
    """`calls` are in the store's order. Who was called and did not come in time is called again:
    the last call counts."""
    held = [diary.held_at(broken) for diary in diaries]
    orders = {token.visitor: token.order for token in held if token and token.kind == TICKET}
    after = [call for call in calls if call.at > broken]
    turns = {call.visitor: turn for turn, call in enumerate(after)}
    found = Overtaking(called=len(turns.keys() & orders.keys()))
    if after:
        found.first_call_s = max(0.0, min(call.at for call in after) - mended)
    for visitor, order in orders.items():
        own = turns.get(visitor, len(after))
        ahead = [other for other, turn in turns.items() if turn < own]
        behind = sum(orders.get(other, 0) > order for other in ahead)
        found.people += behind > 0
        found.worst = max(found.worst, behind)
        found.by_newcomers += any(other not in orders for other in ahead)
    return found


def _let_in(diary: Diary) -> list[float]:
    """Return when a visitor was first inside, by the diary, as Redis' events are gone."""
    first = next((e for e in diary.entries if e.state == "admitted" and e.token), None)
    return [] if first is None or is_let_in_alone(first) else [first.received]


def is_let_in_alone(entry: Entry) -> bool:
    """Return True for an admission without Redis, whose pass must be renewed at once."""
    return entry.token is not None and entry.token.renewed_ms == 0


def _waits(diary: Diary, token: Token, called: Sequence[float]) -> list[_Wait]:
    """Return the times in which a visitor was told to wait. Each ends with a call in Redis' events
    or the last poll that was answered with "wait". A visitor whose call was lost with Redis' data
    waits again from the next such response on."""
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
        if stretch and entry.sent - stretch[-1].sent > _patience(stretch[-1]):
            stretch.clear()  # silent for too long: the place was lost by right
        stretch.append(entry)
    end_at(stretch[-1].sent if stretch else 0)
    return found


def _patience(entry: Entry) -> float:
    return (entry.refresh_s or 0) * 1.05 + SILENCE_S


def peak_inside(origin: Iterable[tuple[float, str]], diaries: Iterable[Diary]) -> int:
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


def recovery(seen: Evidence) -> float:
    """Return the seconds from the end of the fault to the last error, excuse or paused queue."""
    last = max(
        (e.received for d in seen.diaries for e in d.entries
         if e.received >= seen.broken and _is_odd(e)),
        default=seen.mended,
    )  # fmt: skip
    return max(0.0, last - seen.mended)


def _is_odd(entry: Entry) -> bool:
    if entry.what == "leave":
        return False
    return bool(entry.error) or entry.status not in FINE or entry.paused


@dataclass(slots=True)
class Row:
    """One line of the report."""

    scenario: str
    requests: int = 0
    failures: int = 0
    lost: int = 0
    inversions: int = 0
    peak: str = "–"
    recover_s: float | None = None
    #: Why it does not hold, if it does not.
    broken: list[str] = field(default_factory=list)
    #: What was done, and further figures.
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: In rows of outages.
    overtaking: Overtaking | None = None

    @property
    def held(self) -> bool:
        return not self.broken
