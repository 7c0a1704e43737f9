"""Fail-open: decides which visitors a replica admits while Redis is unavailable, and until when."""

from dataclasses import dataclass, field, replace

from sidecar.rooms.pass_lifetime import compute_pass_end_ms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Pass, Ticket
from sidecar.visitors.tokens import new_visitor

#: The maximum number of unreported passes (issued or extended without Redis) that are stored.
MAX_UNREPORTED_PASSES = 20_000
#: The maximum number of passes to report to Redis in one batch.
REPORT_BATCH = 500


@dataclass(slots=True)
class Fallback:
    """Admits visitors at one replica without Redis, within limits from the last snapshot.

    With `on_store_failure = "bounded"` a replica admits its share of the slots that were free, and
    no faster than its share of new_users_per_minute. If visitors waited, no slot counts as free:
    these visitors are next, and their tickets stay valid until Redis is back. The replica assumes
    that as many visitors were admitted since the last snapshot as between the last two snapshots.
    """

    _slots: int = 0
    _replicas: int = 1
    _epoch: int = 0
    _rate_tokens: float = 0.0
    _rate_tokens_ms: int = 0
    _total_admissions: float = 0.0
    #: The passes to report to Redis, by visitor. If there are more than MAX_UNREPORTED_PASSES, each
    #: further pass is reported by its visitor's next request.
    _unreported_passes: dict[str, Pass] = field(default_factory=dict)

    def update_limits(self, snapshot: Snapshot, settings: RoomSettings) -> None:
        """Compute from a snapshot how many visitors this replica may admit without Redis."""
        self._replicas = max(1, snapshot.replicas)
        self._epoch = snapshot.epoch
        total_admissions = snapshot.counters.get("admitted", 0.0)
        admissions = max(0, int(total_admissions - self._total_admissions))
        self._total_admissions = total_admissions
        free_slots = max(0, settings.find_cap(snapshot.learned) - snapshot.active - admissions)
        has_queue = snapshot.waiting > 0 or settings.queue_all or snapshot.recovery_stage > 0
        self._slots = 0 if has_queue else free_slots // self._replicas
        self._rate_tokens, self._rate_tokens_ms = 1.0, snapshot.now_ms

    def count_admission(self) -> None:
        """Count a visitor whom Redis admitted into a slot that was free in the last snapshot."""
        self._slots -= 1

    def add_unreported_pass(self, pass_: Pass) -> None:
        passes = self._unreported_passes
        if pass_.visitor in passes or len(passes) < MAX_UNREPORTED_PASSES:
            passes[pass_.visitor] = pass_

    def take_unreported_passes(self, now_ms: int) -> list[Pass]:
        """Remove unreported passes, and return up to REPORT_BATCH of them that are still valid."""
        passes: list[Pass] = []
        while self._unreported_passes and len(passes) < REPORT_BATCH:
            _, pass_ = self._unreported_passes.popitem()
            if pass_.expires_ms > now_ms:
                passes.append(pass_)
        return passes

    def admit_newcomer(self, settings: RoomSettings, now_ms: int) -> Pass | None:
        if settings.queue_all or settings.on_store_failure == "wait":
            return None
        if settings.on_store_failure == "bounded":
            if self._slots < 1 or not self._take_rate_token(settings, now_ms):
                return None
            self._slots -= 1
        newcomer = Ticket(new_visitor(), now_ms * 1000, now_ms, self._epoch)
        return _make_pass(newcomer, settings, now_ms)

    def admit_from_queue(self, ticket: Ticket, settings: RoomSettings, now_ms: int) -> Pass | None:
        if settings.queue_all or settings.on_store_failure != "admit":
            return None
        return _make_pass(ticket, settings, now_ms)

    def extend_pass(self, pass_: Pass, settings: RoomSettings, now_ms: int) -> Pass | None:
        """Return the pass with a later end. Return None if more than half of a session_duration is
        left, or if the settings allow no later end. The new pass is due for renewal at once, so
        that it is reported to Redis as soon as possible."""
        length_ms = int(settings.session_duration * 1000)
        if settings.disable_session_renewal or pass_.expires_ms - now_ms > length_ms // 2:
            return None
        ends = compute_pass_end_ms(pass_.started_ms, now_ms, settings)
        return replace(pass_, renewed_ms=0, expires_ms=ends) if ends > pass_.expires_ms else None

    def _take_rate_token(self, settings: RoomSettings, now_ms: int) -> bool:
        if settings.new_users_per_minute is None:
            return True
        share = settings.new_users_per_minute / self._replicas
        tokens = self._rate_tokens + max(0, now_ms - self._rate_tokens_ms) * share / 60_000
        self._rate_tokens, self._rate_tokens_ms = min(max(1.0, share / 30), tokens), now_ms
        if self._rate_tokens < 1:
            return False
        self._rate_tokens -= 1
        return True


def _make_pass(ticket: Ticket, settings: RoomSettings, now_ms: int) -> Pass:
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
