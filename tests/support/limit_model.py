"""A model of rate limits in plain Python."""

from fractions import Fraction
from math import ceil, floor

from sidecar.limits.model import Decision, Outcome
from tests.support.limits import S

W = S
LIMITS = {"a": 4, "b": 7}
REMEMBERED = 3 * S
SETTINGS = {"window": 1, "max_wait": 6, "idempotency_window": 3, "values": LIMITS}
#: A clock that goes back by at most this much counts as unchanged, unless a call waits, µs.
BACK = S


class Key:
    """All grants of one key, and the level of its bucket after the latest grant."""

    def __init__(self, algorithm, paces):
        self.algorithm, self.paces = algorithm, paces
        self.promises, self.level = [], Fraction(0)
        self.permits, self.free = {}, []
        self.lowered_until = 0

    def used(self, begins, ends=10**18):
        return sum(cost for at, cost in self.promises if begins <= at < ends)

    def last(self):
        return self.promises[-1][0] if self.promises else 0

    def size(self, cost, limit):
        return max(1, cost) if self.algorithm == "leaky_bucket" else limit

    def level_at(self, moment, limit):
        """Return the level of the bucket in units of cost, at most as high as the limit allows."""
        level = self.level - Fraction((moment - self.last()) * limit, W)
        most = level if self.algorithm == "leaky_bucket" else limit
        return max(Fraction(0), min(level, most))

    def first(self, cost, limit, base):
        """Return the earliest timestamp from `base` on at which `cost` fits."""
        if self.algorithm == "fixed_window":
            while self.used(base - base % W, base - base % W + W) + cost > limit:
                base += W - base % W
            return base
        if self.algorithm == "sliding_window":
            moments = sorted({base, *(at + W for at, _ in self.promises if at + W > base)})
            return next(at for at in moments if self.used(at - W + 1) + cost <= limit)
        over = self.level_at(base, limit) + cost - self.size(cost, limit)
        return base + (max(0, ceil(over * W / limit)))

    def standing(self, limit, now, base):
        """Return how much could be granted now, and when the whole limit is free again."""
        if self.algorithm == "fixed_window":
            used = self.used(base - base % W)
            over = base - base % W + W if used else base
        elif self.algorithm == "sliding_window":
            used, over = self.used(base - W + 1), max(base, self.last() + W)
        else:
            used = self.level_at(base, limit)
            over = base + (ceil(used * W / limit) if limit else 0)
        left = self.size(0, limit) - used
        return (max(0, floor(left)) if base <= now else 0), over

    def ask(self, ask, limit, now, *, made="", looks=False):
        """Return the decision without its permit. `made` is the id of a call that brings none."""
        if limit < 0:
            return Decision(Outcome.UNLIMITED, now, now, reset_us=now)
        last = self.last()
        present = last if not self.paces and now < last <= now + BACK else now
        base = max(present, last)

        def decide(outcome, at):
            left, over = self.standing(limit, present, max(present, self.last()))
            left = left if outcome is Outcome.GRANTED and limit else 0
            return Decision(outcome, now, at, limit, left, over if limit else now)

        known = self.permits.get((ask.cost, ask.id)) if ask.id else None
        if known is not None and known > now - REMEMBERED:
            return decide(Outcome.PACED if known > now else Outcome.GRANTED, known)
        if limit == 0 or ask.cost > self.size(ask.cost, limit):
            return decide(Outcome.REFUSED, 0)
        at = self.first(ask.cost, limit, base)
        free = [moment for moment, cost in self.free if (cost, self.paces) == (ask.cost, True)]
        free = [moment for moment in free if moment >= now]
        at = min(free, default=at)
        longest = SETTINGS["max_wait"] * S if self.paces else 0
        if at > present + longest:
            return decide(Outcome.REFUSED, at - longest)
        if not looks:
            if free:
                self.free.remove((at, ask.cost))
            else:
                level = self.level_at(base, limit) - Fraction((at - base) * limit, W)
                self.level = max(Fraction(0), level) + ask.cost
                self.promises.append((at, ask.cost))
            self.remember((ask.cost, ask.id or made), now if at <= present else at, now)
        return decide(Outcome.GRANTED, now) if at <= present else decide(Outcome.PACED, at)

    def remember(self, permit, at, now):
        """Remember a permit, and delete expired permits for good, even if the clock goes back."""
        if permit[1] == "":
            return
        is_made = permit[1].startswith("~")
        over = now - (0 if is_made else REMEMBERED)
        for known, moment in list(self.permits.items()):
            if known[1].startswith("~") == is_made and moment <= over:
                del self.permits[known]
        self.permits[permit] = at

    def release(self, permit, now):
        at = self.permits.get(permit)
        if at is None or at <= now:
            return False
        del self.permits[permit]
        if at <= self.lowered_until:
            return True
        self.free = [(at, permit[0]), *(one for one in self.free if one[0] >= now)]
        return True

    def set_limit(self, before, limit, now):
        """Change the limit. After a lower limit, no earlier promised time is granted again."""
        is_lowered = limit >= 0 and (before < 0 or limit < before)
        if self.paces and is_lowered and self.last() > now:
            self.free, self.lowered_until = [], self.last()
