"""Parses the replies of the Lua scripts in rooms/lua."""

import json
from dataclasses import dataclass
from typing import Any

from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.hold import RESUME_MS
from sidecar.rooms.messages import join_message
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.model import Phase, QueueOutcome, Standing

#: The field of the hash `stats` that stores the time until which the shield stays up.
SHIELD_FIELD = "shield_until_ms"
#: The kinds of replies about one visitor, and the number of values in each. The first is the kind.
_WAITING, _WAITING_LONG, _ADMITTED, _GIVEN_UP = 0, 2, 1, -4
_VALUE_COUNTS = {_WAITING: 5, _WAITING_LONG: 10, _ADMITTED: 4}
_OUTCOMES = {outcome.value: outcome for outcome in QueueOutcome} | {
    _WAITING_LONG: QueueOutcome.WAITING,
    _GIVEN_UP: QueueOutcome.GONE,
}
#: The phases. The index of a phase is its number in the Lua scripts (rooms/lua/parts/openings.lua).
_PHASES = (Phase.CLOSED, Phase.OPEN, Phase.PREQUEUE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a room in Redis at one time."""

    now_ms: int
    waiting: int
    active: int
    #: How many of the active visitors were called and have not arrived yet.
    provisional: int
    epoch: int
    revision: int
    #: A newcomer's wait estimate. None if it is unknown.
    wait_ms: int | None
    #: Settings changed at run time, by name.
    overrides: dict[str, Any]
    counters: dict[str, float]
    #: The time of the revocation in ms, by visitor.
    revoked: dict[str, int]
    #: The time in ms until which the shield is up; 0 if the shield was never up.
    shield_until_ms: int
    #: When the room's first script ran in this Redis, in ms.
    born_ms: int
    #: When the last recovery from a data loss began, and when calls begin again, in ms; 0 if never.
    recovery_ms: int
    recovers_until_ms: int
    #: The stage of the recovery, as in Standing.
    recovery_stage: int
    #: How many replicas read the room in the last seconds.
    replicas: int
    #: How many entries the event stream has, and the time of the oldest in ms; 0 if it is empty.
    events: int = 0
    oldest_event_ms: int = 0
    phase: Phase = Phase.OPEN
    #: For each sub-queue, its length and a newcomer's wait in ms, or None if that is unknown.
    lines: tuple[tuple[int, int | None], ...] = ()
    #: How many revoked passes and spent tickets Redis stores.
    remembered: int = 0
    #: What an adaptive room has learned of its site. None: nothing yet.
    learned: Learned | None = None

    @property
    def rollbacks(self) -> float:
        """How often Redis came back with older data than before."""
        return self.counters.get("behind", 0)

    def drop_expired_revocations(self, revoked: dict[str, int], session_ms: int) -> dict[str, int]:
        """Return the revocations (visitor -> time in ms) of passes that may still be valid. Return
        all while passes may be valid that were issued with a longer session_duration."""
        if self.counters.get("last_end", 0) > self.now_ms + session_ms:
            return revoked
        return {v: at for v, at in revoked.items() if at >= self.now_ms - session_ms}


@dataclass(frozen=True, slots=True)
class Sweep:
    """How much a sweep removed, how many visitors it called, and whether more is left to remove."""

    waiting: int
    sessions: int
    revocations: int
    called: int
    has_more: bool


def read_snapshot(reply: Any) -> Snapshot:
    """Parse the reply with the state of a room (rooms/lua/snapshot.lua)."""
    now, waiting, active, provisional, epoch, revision, wait, config, stats, *rest = reply
    revoked, stage, recovers_until, replicas, events, oldest, phase, lines, remembered, look = rest
    overrides = {
        name: json.loads(value)
        for name, value in _to_pairs([*config, *look])
        if name not in {"epoch", "revision"}
    }
    learned = overrides.pop("learned", None)
    if (overrides.get("hold") or {}).get("until", now) + RESUME_MS < now:
        del overrides["hold"]
    counters = {name: float(value) for name, value in _to_pairs(stats)}
    return Snapshot(
        now_ms=now,
        waiting=waiting,
        active=active,
        provisional=provisional,
        epoch=epoch,
        revision=revision,
        wait_ms=None if wait < 0 else wait,
        overrides=join_message(overrides),
        learned=None if learned is None else Learned.from_json(learned),
        shield_until_ms=int(counters.pop(SHIELD_FIELD, 0)),
        counters=counters,
        revoked={name: int(float(value)) for name, value in _to_pairs(revoked)},
        born_ms=int(counters["born"]),
        recovery_ms=int(counters.get("recovery", 0)),
        recovers_until_ms=recovers_until,
        recovery_stage=stage,
        replicas=replicas,
        events=events,
        oldest_event_ms=int(text(oldest).partition("-")[0] or 0),
        phase=_PHASES[phase],
        lines=tuple(
            (visitors, None if wait < 0 else wait)
            for visitors, wait in zip(lines[::2], lines[1::2], strict=True)
        ),
        remembered=remembered,
    )


def read_standings(reply: Any) -> list[Standing]:
    """Parse the reply with the standing of each visitor of a batch (rooms/lua/parts/standing.lua).
    The code reads values by position, which is fastest, because it runs for every poll."""
    now, waiting, _active, epoch, stage, spread, phase = reply[:7]
    spread, phase = spread / 1000, _PHASES[phase]
    standings = []
    at, end = 7, len(reply)
    while at < end:
        kind = reply[at]
        order = started = expires = ahead = refresh = wait = limited = classed = 0
        line = line_waiting = -1
        calls = 0
        width = 5 if kind == _WAITING else _VALUE_COUNTS.get(kind, 2)
        if kind == _WAITING:
            _, order, ahead, refresh, wait = reply[at : at + 5]
            calls = ahead
        elif kind == _WAITING_LONG:
            _, order, ahead, refresh, wait, limited, calls, line, line_waiting, classed = reply[
                at : at + 10
            ]
        elif kind == _ADMITTED:
            _, order, started, expires = reply[at : at + 4]
        else:
            refresh, wait = reply[at + 1], -1
            order = int(kind == _GIVEN_UP)
        at += width
        standings.append(
            Standing(
                _OUTCOMES[kind],
                now,
                int(order),
                started,
                expires,
                ahead,
                waiting,
                refresh,
                None if wait < 0 else wait,
                spread,
                limited,
                stage,
                epoch,
                phase,
                calls,
                None if line < 0 else line,
                None if line < 0 else line_waiting,
                classed == 1,
            )
        )
    return standings


def _to_pairs(flat: list[Any]) -> list[tuple[str, str]]:
    texts = [text(value) for value in flat]
    return list(zip(texts[::2], texts[1::2], strict=True))
