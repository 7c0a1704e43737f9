"""A model of leases in plain Python, by docs/leases.md, with which tests compare the scripts.

Times are in ms, and orders and fencing numbers in µs. Each call first updates the resources that it
names, and then handles its items in order. The time until the next heartbeat is random: the test
reports it with record_heartbeat(), and bound_refresh() returns its bounds.
"""

import math
from dataclasses import dataclass, field, replace

from sidecar.leases.model import LeaseOutcome
from sidecar.leases.redis_keys import lease_key, resource_key
from sidecar.leases.settings import LeaseSettings

GRANTED, WAITING, GONE, FULL, STALE, NOT_RENEWED = LeaseOutcome
#: The longest time until the next heartbeat, unless the settings fix the interval.
LONGEST_REFRESH_MS = 30_000
#: How many holders behind the head are told to poll when a slot is free, each a few ms later.
NEAR = 4
#: If the sweeps pause for longer than this and the claim window, no heartbeat was possible.
MAX_PAUSE_MS = 5_000


@dataclass
class ModelLease:
    """A lease, or a reservation if `fence` is None."""

    ends: int
    fence: int | None = None
    started: int = 0


@dataclass
class Place:
    """A place in the queue, with the time at which a heartbeat is due."""

    order: int
    due: int = 0


@dataclass
class ModelResource:
    """A resource: its leases and reservations by holder, and its queue."""

    holders: dict[str, ModelLease] = field(default_factory=dict)
    line: dict[str, Place] = field(default_factory=dict)

    def ranked(self) -> list[str]:
        return sorted(self.line, key=lambda holder: (self.line[holder].order, holder))


@dataclass(frozen=True)
class ModelReply:
    """The reply about one holder."""

    outcome: LeaseOutcome
    fence: int = 0
    started: int = 0
    expires: int = 0
    order: int = 0
    ahead: int = 0
    waiting: int = 0


@dataclass
class Replica:
    """What a replica knows about a lease template: since when it has existed, and the highest order
    or fencing number so far."""

    known: int | None = None
    last: int = 0


class Model:
    """The leases of one lease template."""

    def __init__(self, settings: LeaseSettings) -> None:
        self.capacity = settings.capacity
        self.max_waiting = settings.max_waiting
        self.renewable = settings.renewable
        self.term = round(settings.term * 1000)
        self.max_term = None if settings.max_term is None else round(settings.max_term * 1000)
        self.claim = round(settings.claim_window * 1000)
        self.timeout = round(settings.heartbeat_timeout * 1000)
        #: The calls that were published: "resource holder".
        self.published: list[str] = []
        fixed = settings.heartbeat_interval
        self.interval = None if fixed is None else round(fixed * 1000)
        self.lose()

    def lose(self) -> None:
        """Forget everything, as Redis does when it is emptied."""
        self.resources: dict[str, ModelResource] = {}
        self.born: int | None = None
        self.recovers: int | None = None
        self.last = 0
        self.seen: int | None = None
        self.back = 0

    # Calls ---------------------------------------------------------------------------------

    def ask(self, now, replica, items) -> list[ModelReply]:
        """Request leases. An item is: resource, holder, may_join, and an order or None."""
        self._begin(now, replica)
        for resource, holder, *_ in items:
            place = self._resource(resource).line.get(holder)
            if place and place.due + self.claim < now:
                place.due = now
        for resource in dict.fromkeys(item[0] for item in items):
            self._settle(resource)
            for holder in dict.fromkeys(item[1] for item in items if item[0] == resource):
                held = self._resource(resource).holders.get(holder)
                if held and held.fence is None:
                    self._grant(self._resource(resource), holder)
        return self._end(replica, [self._ask(*item) for item in items])

    def _ask(self, resource, holder, may_join, order) -> ModelReply:
        spot = self._resource(resource)
        held = spot.holders.get(holder)
        if held:
            return _reply_about(GRANTED, held)
        if holder not in spot.line:
            is_back = order is not None and self._is_restorable(order)
            if not may_join and not is_back:
                return ModelReply(GONE)
            if len(spot.holders) < self.capacity and not spot.line and not self.is_recovering:
                return self._grant(spot, holder)
            if not is_back and self.max_waiting is not None and self.max_waiting <= len(spot.line):
                return ModelReply(FULL, waiting=len(spot.line))
            if is_back:
                self.last = max(self.last, order)
            spot.line[holder] = Place(order if is_back else self._number())
        place = spot.line[holder]
        ahead = spot.ranked().index(holder)
        return ModelReply(WAITING, order=place.order, ahead=ahead, waiting=len(spot.line))

    def _grant(self, spot, holder) -> ModelReply:
        held = ModelLease(self.now + self.term, self._number(), self.now)
        spot.holders[holder] = held
        return _reply_about(GRANTED, held)

    def renew(self, now, replica, items) -> list[ModelReply]:
        """Renew leases. An item is: resource, holder, fence."""
        self._begin(now, replica)
        for resource in {item[0] for item in items}:
            self._settle(resource)
        return self._end(replica, [self._renew(*item) for item in items])

    def _renew(self, resource, holder, fence) -> ModelReply:
        spot = self._resource(resource)
        held = spot.holders.get(holder)
        is_lost = self.is_recovering and 0 < fence < self.born * 1000
        if (held is None or held.fence is None) and is_lost:
            return self._restore(spot, holder, fence)
        if held is None or held.fence != fence:
            return ModelReply(STALE)
        if not self.renewable:
            return _reply_about(GRANTED if is_lost else NOT_RENEWED, held)
        if self.max_term is not None and held.ends >= held.started + self.max_term:
            return _reply_about(NOT_RENEWED, held)
        held.ends = max(held.ends, self._get_renewed_end(held.started))
        return _reply_about(GRANTED, held)

    def _restore(self, spot, holder, fence) -> ModelReply:
        started = fence // 1000
        ends = self._get_renewed_end(started) if self.renewable else started + self.term
        others = spot.holders.keys() - {holder}
        if ends <= self.now:
            return ModelReply(STALE)
        if len(others) >= self.capacity:
            # With one slot only the newest lease can be valid.
            (other, *_) = others
            theirs = spot.holders[other].fence
            if self.capacity > 1 or theirs is None or theirs >= fence:
                return ModelReply(STALE)
            del spot.holders[other]
        spot.line.pop(holder, None)
        spot.holders[holder] = ModelLease(ends, fence, started)
        self.last = max(self.last, fence)
        return _reply_about(GRANTED, spot.holders[holder])

    def _get_renewed_end(self, started) -> int:
        ends = self.now + self.term
        return ends if self.max_term is None else min(ends, started + self.max_term)

    def release(self, now, replica, items) -> list[ModelReply]:
        """Release leases. An item is: resource, holder, and a fence or None."""
        self._begin(now, replica)
        resources = {item[0] for item in items}
        for resource in resources:
            self._expire(self._resource(resource))
        replies = [self._release(*item) for item in items]
        for resource in resources:
            self._settle(resource)
        return self._end(replica, replies)

    def _release(self, resource, holder, fence) -> ModelReply:
        spot = self._resource(resource)
        held = spot.holders.get(holder)
        if fence is not None:
            if held is None or held.fence is None:
                return ModelReply(GONE)
            if held.fence != fence:
                return ModelReply(STALE)
        had = spot.holders.pop(holder, None) or spot.line.pop(holder, None)
        return ModelReply(GRANTED if had else GONE)

    def sweep(self, now, replica, looked) -> list[str]:
        """Sweep, and return the resources that were due. If `looked` is 0, the store swept none."""
        self.now = now
        due = [name for name in self.resources if self.find_next_time(name) <= now]
        self._begin(now, replica)
        if looked:
            for resource in due:
                self._settle(resource)
        if self.seen is None or now - self.seen >= 1000:
            self.seen = now
        self._end(replica, [])
        return due

    def record_heartbeat(self, resource, holder, refresh) -> None:
        """Record that the store told a waiting holder to poll again in `refresh` ms."""
        self.resources[resource].line[holder].due = self.now + refresh

    # What the state implies ------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        return self.recovers is not None and self.now < self.recovers

    def find_free_time(self, resource, ahead) -> int:
        """Return when a slot becomes free for a holder with `ahead` others ahead, if nobody
        leaves."""
        spot = self.resources.get(resource, ModelResource())
        ends = sorted(held.ends for held in spot.holders.values())
        opens = self.recovers if self.is_recovering and self.recovers else 0
        slot = ahead % self.capacity
        return max(opens, ends[slot]) if slot < len(ends) else opens

    def bound_refresh(self, resource, ahead) -> tuple[int, int]:
        """Return the shortest and the longest time, in ms, until a waiting holder's next poll."""
        fixed = self.interval
        most = min(fixed or LONGEST_REFRESH_MS, self.timeout // 2)
        least = min(fixed or 1000, self.timeout // 2)
        behind = ahead - self.capacity + 1
        if behind <= 0:
            most = min(most, fixed or 2000)
        if behind <= NEAR:
            most = min(most, self.find_free_time(resource, ahead) - self.now + 5 * max(0, behind))
            least = 1
        return least, most

    def find_next_time(self, resource) -> int:
        """Return when the next lease, reservation or place of a resource ends."""
        spot = self.resources[resource]
        moments = [held.ends for held in spot.holders.values()]
        moments += [self.due_at(place) + self.timeout + 1 for place in spot.line.values()]
        if spot.line and len(spot.holders) < self.capacity:
            moments.append(max(self.now, self.recovers or 0))
        return min(moments)

    def is_alive(self, place) -> bool:
        return self.due_at(place) + self.claim >= self.now

    def due_at(self, place) -> int:
        """Return when a heartbeat is due. It is never due before the last pause of the sweeps
        ended."""
        return max(place.due, self.back)

    # Helpers ---------------------------------------------------------------------------------

    def _begin(self, now, replica) -> None:
        self.now = now
        self.born = now if self.born is None else min(self.born, now)
        is_known = replica.known is not None and replica.known < self.born
        if is_known and self.recovers is None:
            self.recovers = self.born + self.term
        if self.recovers is not None:
            self.recovers = min(self.recovers, now + self.term)
        if self.seen is not None and now - self.seen > max(MAX_PAUSE_MS, self.claim):
            self.back = self.seen = now
        self.last = max(self.last, replica.last)

    def _end(self, replica, replies) -> list[ModelReply]:
        replica.known = self.born if replica.known is None else min(replica.known, self.born)
        replica.last = max([replica.last, *(max(each.fence, each.order) for each in replies)])
        self.resources = {name: s for name, s in self.resources.items() if s.holders or s.line}
        return replies

    def _resource(self, resource) -> ModelResource:
        return self.resources.setdefault(resource, ModelResource())

    def _number(self) -> int:
        self.last = max(self.now * 1000, self.last + 1)
        return self.last

    def _is_restorable(self, order) -> bool:
        longest = min(self.interval or LONGEST_REFRESH_MS, self.timeout // 2) + self.claim
        return 0 < order < self.born * 1000 and self.now < self.born + max(self.term, longest)

    def _settle(self, resource) -> None:
        spot = self._resource(resource)
        self._expire(spot)
        spot.line = {
            h: p for h, p in spot.line.items() if self.due_at(p) + self.timeout >= self.now
        }
        while spot.line and len(spot.holders) < self.capacity and not self.is_recovering:
            head = spot.ranked()[0]
            place = spot.line.pop(head)
            if self.is_alive(place):
                spot.holders[head] = ModelLease(max(self.due_at(place), self.now) + self.claim)
                self.published.append(f"{resource} {head}")

    def _expire(self, spot) -> None:
        for held in spot.holders.values():
            if held.fence is None and held.ends <= self.back and self.now < self.back + self.claim:
                held.ends = self.back + self.claim  # The holder could not take the lease before.
        spot.holders = {name: held for name, held in spot.holders.items() if held.ends > self.now}


def _reply_about(outcome, held) -> ModelReply:
    return ModelReply(outcome, held.fence, held.started, held.ends)


# Guarantees, checked without the model -----------------------------------------------------------


@dataclass
class StoredResource:
    """The stored state of a resource: the scores and facts of its keys in Redis."""

    ends: int
    holders: dict[str, int]
    fences: dict[str, int]
    started: dict[str, int]
    line: dict[str, int]
    due: dict[str, int]


async def look(redis, template, resources) -> dict[str, StoredResource]:
    """Read the stored state of those `resources` about which Redis stores anything."""
    async with redis.pipeline(transaction=False) as asks:
        asks.zrange(lease_key(template, "resources"), 0, -1)
        asks.zrange(lease_key(template, "ends"), 0, -1, withscores=True)
        for name in resources:
            asks.zrange(resource_key(template, name, "holders"), 0, -1, withscores=True)
            asks.hgetall(resource_key(template, name, "facts"))
            asks.zrange(resource_key(template, name, "line"), 0, -1, withscores=True)
            asks.zrange(resource_key(template, name, "due"), 0, -1, withscores=True)
        names, ends, *rest = await asks.execute()
    ends = _scores(ends)
    seen = {}
    for n, name in enumerate(resources):
        holders, facts, line, due = rest[4 * n : 4 * n + 4]
        if not (name in ends or name.encode() in names or holders or facts or line or due):
            continue
        assert name in ends
        assert name.encode() in names
        facts = {who.decode(): fact.split() for who, fact in facts.items()}
        fences = {who: int(fact[0]) for who, fact in facts.items()}
        started = {who: int(fact[1]) for who, fact in facts.items()}
        sets = [_scores(rows) for rows in (holders, line, due)]
        seen[name] = StoredResource(ends[name], sets[0], fences, started, *sets[1:])
    return seen


def _scores(rows) -> dict[str, int]:
    return {member.decode(): int(score) for member, score in rows}


NO_RESOURCE = StoredResource(0, {}, {}, {}, {}, {})


def check(
    model: Model, before: StoredResource, after: StoredResource, *, named: bool, released: set[str]
) -> None:
    """Check the guarantees for one resource after one call.

    Args:
        named: Whether the call named the resource.
        released: Holders who left in this call.
    """
    now, claim = model.now, model.claim
    assert len(after.holders) <= model.capacity, "more holders than slots"
    if not named:
        assert replace(after, ends=before.ends) == before, "changed by a call for another resource"
        return
    assert after.fences.keys() <= after.holders.keys()
    assert after.line.keys() == after.due.keys()
    assert not after.line.keys() & after.holders.keys(), "a holder waits"
    assert all(ends > now for ends in after.holders.values()), "a lease has expired"
    if not model.is_recovering:
        assert not after.line or len(after.holders) == model.capacity, "a slot is idle"
    alive = {who: order for who, order in before.line.items() if before.due[who] + claim >= now}
    for who in alive.keys() - released:
        assert who in after.line or who in after.holders, (
            "a place is lost although its holder polls"
        )
        if who in after.holders and who not in after.fences:
            assert after.holders[who] >= before.due[who] + claim, "the reservation ends too soon"
    newly = {w for w in after.holders if before.holders.get(w, 0) <= now}
    # A reservation that ended in a pause, when nobody could poll, begins again.
    turns = before.holders.keys() - before.fences.keys()
    ended = {w for w in turns & newly if before.holders[w] <= model.back}
    anew = ended if now < model.back + claim else set()
    assert all(w in after.fences or after.holders[w] == model.back + claim for w in anew)
    newly -= anew
    passed = [order for who, order in alive.items() if who in after.line]
    if passed and not model.is_recovering:
        assert all(before.line.get(who, math.inf) <= min(passed) for who in newly), "overtaken"
