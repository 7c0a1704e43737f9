"""Leases in plain Python, as docs/leases.md promises them. Times in ms, numbers in µs.

Each call settles the resources that it names, then answers one item after the other. What is
random (when to ask again) is told to the model by `told`, within the bounds that `bounds` gives.
"""

import math
from dataclasses import dataclass, field, replace

from sidecar.leases.model import LeaseOutcome
from sidecar.leases.redis_keys import lease_key, resource_key
from sidecar.leases.settings import LeaseSettings

GRANTED, WAITING, GONE, FULL, STALE, NOT_RENEWED = (
    LeaseOutcome.GRANTED,
    LeaseOutcome.WAITING,
    LeaseOutcome.GONE,
    LeaseOutcome.FULL,
    LeaseOutcome.STALE,
    LeaseOutcome.NOT_RENEWED,
)
#: Nobody is told to come later than this, but by a fixed interval.
LONGEST_MS = 30_000
#: So many behind the next in line look when the next slot is free, a few ms after one another.
NEAR = 4
#: Without a sweep for longer than this, and than the claim window, nobody could ask.
AWAY_MS = 5_000


@dataclass
class Held:
    """A lease; a turn where `fence` is None."""

    ends: int
    fence: int | None = None
    started: int = 0


@dataclass
class Place:
    order: int
    due: int = 0


@dataclass
class Spot:
    """A resource."""

    holders: dict[str, Held] = field(default_factory=dict)
    line: dict[str, Place] = field(default_factory=dict)

    def ranked(self) -> list[str]:
        return sorted(self.line, key=lambda holder: (self.line[holder].order, holder))


@dataclass(frozen=True)
class Said:
    """What is told of one holder."""

    outcome: LeaseOutcome
    fence: int = 0
    started: int = 0
    expires: int = 0
    order: int = 0
    ahead: int = 0
    waiting: int = 0


@dataclass
class Replica:
    """What one remembers of the template: since when it was there, the highest number."""

    known: int | None = None
    last: int = 0


class Model:
    """A template."""

    def __init__(self, settings: LeaseSettings) -> None:
        self.capacity = settings.capacity
        self.max_waiting = settings.max_waiting
        self.renewable = settings.renewable
        self.term = round(settings.term * 1000)
        self.max_term = None if settings.max_term is None else round(settings.max_term * 1000)
        self.claim = round(settings.claim_window * 1000)
        self.timeout = round(settings.heartbeat_timeout * 1000)
        fixed = settings.heartbeat_interval
        self.interval = None if fixed is None else round(fixed * 1000)
        self.lose()

    def lose(self) -> None:
        """The store is emptied."""
        self.spots: dict[str, Spot] = {}
        self.born: int | None = None
        self.recovers: int | None = None
        self.last = 0
        self.seen: int | None = None
        self.back = 0

    # Calls ---------------------------------------------------------------------------------

    def ask(self, now, replica, items) -> list[Said]:
        """Items: resource, holder, may_join, order or None."""
        self._begin(now, replica)
        for resource, holder, *_ in items:
            place = self._spot(resource).line.get(holder)
            if place and place.due + self.claim < now:
                place.due = now
        for resource in dict.fromkeys(item[0] for item in items):
            self._settle(resource)
            for holder in dict.fromkeys(item[1] for item in items if item[0] == resource):
                held = self._spot(resource).holders.get(holder)
                if held and held.fence is None:
                    self._grant(self._spot(resource), holder)
        return self._end(replica, [self._ask(*item) for item in items])

    def _ask(self, resource, holder, may_join, order) -> Said:
        spot = self._spot(resource)
        held = spot.holders.get(holder)
        if held:
            return _holds(GRANTED, held)
        if holder not in spot.line:
            is_back = order is not None and self._is_believed(order)
            if not may_join and not is_back:
                return Said(GONE)
            if len(spot.holders) < self.capacity and not spot.line and not self.is_recovering:
                return self._grant(spot, holder)
            if not is_back and self.max_waiting is not None and self.max_waiting <= len(spot.line):
                return Said(FULL, waiting=len(spot.line))
            if is_back:
                self.last = max(self.last, order)
            spot.line[holder] = Place(order if is_back else self._number())
        place = spot.line[holder]
        ahead = spot.ranked().index(holder)
        return Said(WAITING, order=place.order, ahead=ahead, waiting=len(spot.line))

    def _grant(self, spot, holder) -> Said:
        held = Held(self.now + self.term, self._number(), self.now)
        spot.holders[holder] = held
        return _holds(GRANTED, held)

    def renew(self, now, replica, items) -> list[Said]:
        """Items: resource, holder, fence."""
        self._begin(now, replica)
        for resource in {item[0] for item in items}:
            self._settle(resource)
        return self._end(replica, [self._renew(*item) for item in items])

    def _renew(self, resource, holder, fence) -> Said:
        spot = self._spot(resource)
        held = spot.holders.get(holder)
        is_lost = self.is_recovering and 0 < fence < self.born * 1000
        if (held is None or held.fence is None) and is_lost:
            return self._restore(spot, holder, fence)
        if held is None or held.fence != fence:
            return Said(STALE)
        if not self.renewable:
            return _holds(GRANTED if is_lost else NOT_RENEWED, held)
        if self.max_term is not None and held.ends >= held.started + self.max_term:
            return _holds(NOT_RENEWED, held)
        held.ends = max(held.ends, self._renewed(held.started))
        return _holds(GRANTED, held)

    def _restore(self, spot, holder, fence) -> Said:
        started = fence // 1000
        ends = self._renewed(started) if self.renewable else started + self.term
        others = spot.holders.keys() - {holder}
        if ends <= self.now:
            return Said(STALE)
        if len(others) >= self.capacity:
            # Of one slot only the newest lease can be the true one.
            (other, *_) = others
            theirs = spot.holders[other].fence
            if self.capacity > 1 or theirs is None or theirs >= fence:
                return Said(STALE)
            del spot.holders[other]
        spot.line.pop(holder, None)
        spot.holders[holder] = Held(ends, fence, started)
        self.last = max(self.last, fence)
        return _holds(GRANTED, spot.holders[holder])

    def _renewed(self, started) -> int:
        ends = self.now + self.term
        return ends if self.max_term is None else min(ends, started + self.max_term)

    def release(self, now, replica, items) -> list[Said]:
        """Items: resource, holder, fence or None."""
        self._begin(now, replica)
        resources = {item[0] for item in items}
        for resource in resources:
            self._expire(self._spot(resource))
        said = [self._release(*item) for item in items]
        for resource in resources:
            self._settle(resource)
        return self._end(replica, said)

    def _release(self, resource, holder, fence) -> Said:
        spot = self._spot(resource)
        held = spot.holders.get(holder)
        if fence is not None:
            if held is None or held.fence is None:
                return Said(GONE)
            if held.fence != fence:
                return Said(STALE)
        had = spot.holders.pop(holder, None) or spot.line.pop(holder, None)
        return Said(GRANTED if had else GONE)

    def sweep(self, now, replica, looked) -> list[str]:
        """The resources at which something had to be done; at `looked` the sweep had a look."""
        self.now = now
        due = [name for name in self.spots if self.next_moment(name) <= now]
        self._begin(now, replica)
        if looked:
            for resource in due:
                self._settle(resource)
        if self.seen is None or now - self.seen >= 1000:
            self.seen = now
        self._end(replica, [])
        return due

    def told(self, resource, holder, refresh) -> None:
        """Somebody who waits was told to ask again in so many ms."""
        self.spots[resource].line[holder].due = self.now + refresh

    # What follows from it --------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        return self.recovers is not None and self.now < self.recovers

    def free_from(self, resource, ahead) -> int:
        """When the slot that somebody with so many ahead waits for is free, if nobody leaves."""
        spot = self.spots.get(resource, Spot())
        ends = sorted(held.ends for held in spot.holders.values())
        opens = self.recovers if self.is_recovering and self.recovers else 0
        slot = ahead % self.capacity
        return max(opens, ends[slot]) if slot < len(ends) else opens

    def bounds(self, resource, ahead) -> tuple[int, int]:
        """Within which somebody who waits is told to ask again."""
        fixed = self.interval
        most = min(fixed or LONGEST_MS, self.timeout // 2)
        least = min(fixed or 1000, self.timeout // 2)
        behind = ahead - self.capacity + 1
        if behind <= 0:
            most = min(most, fixed or 2000)
        if behind <= NEAR:
            most = min(most, self.free_from(resource, ahead) - self.now + 5 * max(0, behind))
            least = 1
        return least, most

    def next_moment(self, resource) -> int:
        """When something happens there by itself."""
        spot = self.spots[resource]
        moments = [held.ends for held in spot.holders.values()]
        moments += [self.due_at(place) + self.timeout + 1 for place in spot.line.values()]
        if spot.line and len(spot.holders) < self.capacity:
            moments.append(max(self.now, self.recovers or 0))
        return min(moments)

    def is_alive(self, place) -> bool:
        return self.due_at(place) + self.claim >= self.now

    def due_at(self, place) -> int:
        """While nobody could ask, nobody was silent."""
        return max(place.due, self.back)

    # How -------------------------------------------------------------------------------------

    def _begin(self, now, replica) -> None:
        self.now = now
        self.born = now if self.born is None else min(self.born, now)
        is_known = replica.known is not None and replica.known < self.born
        if is_known and self.recovers is None:
            self.recovers = self.born + self.term
        if self.recovers is not None:
            self.recovers = min(self.recovers, now + self.term)
        if self.seen is not None and now - self.seen > max(AWAY_MS, self.claim):
            self.back = self.seen = now
        self.last = max(self.last, replica.last)

    def _end(self, replica, said) -> list[Said]:
        replica.known = self.born if replica.known is None else min(replica.known, self.born)
        replica.last = max([replica.last, *(max(one.fence, one.order) for one in said)])
        self.spots = {name: s for name, s in self.spots.items() if s.holders or s.line}
        return said

    def _spot(self, resource) -> Spot:
        return self.spots.setdefault(resource, Spot())

    def _number(self) -> int:
        self.last = max(self.now * 1000, self.last + 1)
        return self.last

    def _is_believed(self, order) -> bool:
        longest = min(self.interval or LONGEST_MS, self.timeout // 2) + self.claim
        return 0 < order < self.born * 1000 and self.now < self.born + max(self.term, longest)

    def _settle(self, resource) -> None:
        spot = self._spot(resource)
        self._expire(spot)
        spot.line = {
            h: p for h, p in spot.line.items() if self.due_at(p) + self.timeout >= self.now
        }
        while spot.line and len(spot.holders) < self.capacity and not self.is_recovering:
            head = spot.ranked()[0]
            place = spot.line.pop(head)
            if self.is_alive(place):
                spot.holders[head] = Held(max(self.due_at(place), self.now) + self.claim)

    def _expire(self, spot) -> None:
        for held in spot.holders.values():
            if held.fence is None and held.ends <= self.back and self.now < self.back + self.claim:
                held.ends = self.back + self.claim  # they could not come
        spot.holders = {name: held for name, held in spot.holders.items() if held.ends > self.now}


def _holds(outcome, held) -> Said:
    return Said(outcome, held.fence, held.started, held.ends)


# What is promised, whatever the model says -------------------------------------------------------


@dataclass
class Seen:
    """A resource as it is in the store."""

    ends: int
    holders: dict[str, int]
    fences: dict[str, int]
    started: dict[str, int]
    line: dict[str, int]
    due: dict[str, int]


async def look(redis, template, resources) -> dict[str, Seen]:
    """Those of which anything is in the store: by the sets that name them, or by any other key."""
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
        seen[name] = Seen(ends[name], sets[0], fences, started, *sets[1:])
    return seen


def _scores(rows) -> dict[str, int]:
    return {member.decode(): int(score) for member, score in rows}


NOTHING = Seen(0, {}, {}, {}, {}, {})


def check(model: Model, before: Seen, after: Seen, *, named: bool, released: set[str]) -> None:
    """One step, in which a script was asked about the resource, or was not (`named`)."""
    now, claim = model.now, model.claim
    assert len(after.holders) <= model.capacity, "exact cap"
    if not named:
        assert replace(after, ends=before.ends) == before, "nobody else's calls touch it"
        return
    assert after.fences.keys() <= after.holders.keys()
    assert after.line.keys() == after.due.keys()
    assert not after.line.keys() & after.holders.keys(), "one place"
    assert all(ends > now for ends in after.holders.values()), "what is over is over"
    if not model.is_recovering:
        assert not after.line or len(after.holders) == model.capacity, "no idle slot"
    alive = {who: order for who, order in before.line.items() if before.due[who] + claim >= now}
    for who in alive.keys() - released:
        assert who in after.line or who in after.holders, "who asks in time is not passed over"
        if who in after.holders and who not in after.fences:
            assert after.holders[who] >= before.due[who] + claim, "and finds it when they come"
    newly = {w for w in after.holders if before.holders.get(w, 0) <= now}
    # A turn that ended while nobody could come begins anew, and may be taken at once.
    turns = before.holders.keys() - before.fences.keys()
    ended = {w for w in turns & newly if before.holders[w] <= model.back}
    anew = ended if now < model.back + claim else set()
    assert all(w in after.fences or after.holders[w] == model.back + claim for w in anew)
    newly -= anew
    passed = [order for who, order in alive.items() if who in after.line]
    if passed and not model.is_recovering:
        assert all(before.line.get(who, math.inf) <= min(passed) for who in newly), "order"
