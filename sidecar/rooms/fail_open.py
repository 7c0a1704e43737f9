"""Fail-open: which visitors a replica admits while Redis is unavailable, and for how long."""

from dataclasses import dataclass, field, replace

from sidecar.rooms.pass_lifetime import compute_pass_end_ms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Pass, Ticket
from sidecar.visitors.tokens import new_visitor

#: The most unreported passes that a replica keeps: passes that it gave or extended without Redis.
MAX_UNREPORTED = 20_000
#: Passes that a replica reports to Redis in one batch.
REPORT_BATCH = 500


@dataclass(slots=True)
class Fallback:
    """The admissions of one replica without Redis, bounded by the last snapshot.

    With `on_store_failure = "bounded"` a replica admits its share of the slots that were free, and
    no faster than its share of new_users_per_minute. If visitors waited, no slot counts as free:
    these visitors are next, and their tickets stay valid until Redis is back. The replica assumes
    that as many visitors were admitted since the last snapshot as between the last two snapshots.
    """

    _slots: int = 0
    _replicas: int = 1
    _epoch: int = 0
    _tokens: float = 0.0
    _tokens_ms: int = 0
    _admitted: float = 0.0
    #: The passes that Redis does not know, by visitor. A pass beyond MAX_UNREPORTED is reported
    #: with its visitor's next request.
    _unreported: dict[str, Pass] = field(default_factory=dict)

    def learn(self, snapshot: Snapshot, settings: RoomSettings) -> None:
        """Compute from a snapshot how many visitors this replica may admit without Redis."""
        self._replicas = max(1, snapshot.replicas)
        self._epoch = snapshot.epoch
        admitted = snapshot.counters.get("admitted", 0.0)
        recently_admitted = max(0, int(admitted - self._admitted))
        self._admitted = admitted
        free = max(0, settings.total_active_users - snapshot.active - recently_admitted)
        has_queue = snapshot.waiting > 0 or settings.queue_all or snapshot.recovery_stage > 0
        self._slots = 0 if has_queue else free // self._replicas
        self._tokens, self._tokens_ms = 1.0, snapshot.now_ms

    def count_admission(self) -> None:
        """Count a visitor whom Redis admitted to a slot that was free in the last snapshot."""
        self._slots -= 1

    def keep(self, pass_: Pass) -> None:
        """Keep a pass until it is reported to Redis."""
        if pass_.visitor in self._unreported or len(self._unreported) < MAX_UNREPORTED:
            self._unreported[pass_.visitor] = pass_

    def take_unreported(self, now_ms: int) -> list[Pass]:
        """Remove up to REPORT_BATCH kept passes and return those that are still valid."""
        passes: list[Pass] = []
        while self._unreported and len(passes) < REPORT_BATCH:
            _, pass_ = self._unreported.popitem()
            if pass_.expires_ms > now_ms:
                passes.append(pass_)
        return passes

    def admit_newcomer(self, settings: RoomSettings, now_ms: int) -> Pass | None:
        """Return a pass for a newcomer, or None if the newcomer must wait."""
        if settings.queue_all or settings.on_store_failure == "wait":
            return None
        if settings.on_store_failure == "bounded":
            if self._slots < 1 or not self._take_token(settings, now_ms):
                return None
            self._slots -= 1
        newcomer = Ticket(new_visitor(), now_ms * 1000, now_ms, self._epoch)
        return _new_pass(newcomer, settings, now_ms)

    def admit_waiting(self, ticket: Ticket, settings: RoomSettings, now_ms: int) -> Pass | None:
        """Return a pass for a waiting visitor, or None if the visitor must keep waiting."""
        if settings.queue_all or settings.on_store_failure != "admit":
            return None
        return _new_pass(ticket, settings, now_ms)

    def extend(self, pass_: Pass, settings: RoomSettings, now_ms: int) -> Pass | None:
        """Return the pass with a later end, or None if more than half of a session_duration is left
        or the end cannot be later. The new pass is due for renewal at once, so that Redis gets it
        as soon as possible."""
        length_ms = int(settings.session_duration * 1000)
        if settings.disable_session_renewal or pass_.expires_ms - now_ms > length_ms // 2:
            return None
        ends = compute_pass_end_ms(pass_.started_ms, now_ms, settings)
        return replace(pass_, renewed_ms=0, expires_ms=ends) if ends > pass_.expires_ms else None

    def _take_token(self, settings: RoomSettings, now_ms: int) -> bool:
        if settings.new_users_per_minute is None:
            return True
        share = settings.new_users_per_minute / self._replicas
        filled = self._tokens + max(0, now_ms - self._tokens_ms) * share / 60_000
        self._tokens, self._tokens_ms = min(max(1.0, share / 30), filled), now_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _new_pass(ticket: Ticket, settings: RoomSettings, now_ms: int) -> Pass:
    """Return a pass that is due for renewal at once, so that the renewal reports it to Redis."""
    return Pass(
        ticket.visitor,
        ticket.order,
        ticket.joined_ms,
        ticket.epoch,
        started_ms=now_ms,
        renewed_ms=0,
        expires_ms=compute_pass_end_ms(now_ms, now_ms, settings),
    )
