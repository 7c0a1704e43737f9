"""A model of rate limits in plain Python, with which tests compare the scripts. Times are µs."""

from fractions import Fraction
from math import ceil, floor

from sidecar.limits.model import Decision, Outcome
from tests.support.limits import S

#: The window, as in SETTINGS.
W = S
#: The limit of each key.
LIMITS = {"a": 4, "b": 7}
#: How long the id of a call is remembered, as in SETTINGS.
REMEMBERED = 3 * S
SETTINGS = {"window": 1, "max_wait": 6, "idempotency_window": 3, "values": LIMITS}
#: If the clock goes back by at most this much, it counts as unchanged, unless a call waits.
BACK = S


class Key:
    """One rate-limited key: all its grants, and the level of its bucket after the latest grant."""

    def __init__(self, algorithm, paces):
        self.algorithm, self.paces = algorithm, paces
        #: Pairs of timestamp and cost.
        self.grants, self.level = [], Fraction(0)
        #: The timestamp of each permit by its cost and id, and released (timestamp, cost) pairs.
        self.permits, self.free = {}, []
        #: Permits up to this timestamp were granted before the limit became lower.
        self.lowered_until = 0

    def used_between(self, begins, ends=10**18):
        return sum(cost for at, cost in self.grants if begins <= at < ends)

    def last_granted(self):
        return self.grants[-1][0] if self.grants else 0

    def bucket_size(self, cost, limit):
        return max(1, cost) if self.algorithm == "leaky_bucket" else limit

    def level_at(self, moment, limit):
        """Return the level of the bucket at a timestamp, in units of cost."""
        level = self.level - Fraction((moment - self.last_granted()) * limit, W)
        most = level if self.algorithm == "leaky_bucket" else limit
        return max(Fraction(0), min(level, most))

    def first_fit(self, cost, limit, base):
        """Return the earliest timestamp, `base` or later, at which a call of this cost fits."""
        if self.algorithm == "fixed_window":
            while self.used_between(base - base % W, base - base % W + W) + cost > limit:
                base += W - base % W
            return base
        if self.algorithm == "sliding_window":
            moments = sorted({base, *(at + W for at, _ in self.grants if at + W > base)})
            return next(at for at in moments if self.used_between(at - W + 1) + cost <= limit)
        over = self.level_at(base, limit) + cost - self.bucket_size(cost, limit)
        return base + (max(0, ceil(over * W / limit)))

    def remaining_and_reset(self, limit, now, base):
        """Return how much could be granted now, and when the whole limit is free again."""
        if self.algorithm == "fixed_window":
            used = self.used_between(base - base % W)
            over = base - base % W + W if used else base
        elif self.algorithm == "sliding_window":
            used, over = self.used_between(base - W + 1), max(base, self.last_granted() + W)
        else:
            used = self.level_at(base, limit)
            over = base + (ceil(used * W / limit) if limit else 0)
        left = self.bucket_size(0, limit) - used
        return (max(0, floor(left)) if base <= now else 0), over

    def ask(self, ask, limit, now, *, made="", looks=False):
        """Decide on a call. Return the decision, without its permit.

        `made` is the id that the store makes for a call without one. If `looks`, the call only
        asks, and nothing is granted.
        """
        if limit < 0:
            return Decision(Outcome.UNLIMITED, now, now, reset_us=now)
        last = self.last_granted()
        present = last if not self.paces and now < last <= now + BACK else now
        base = max(present, last)

        def decide(outcome, at):
            latest = max(present, self.last_granted())
            left, over = self.remaining_and_reset(limit, present, latest)
            left = left if outcome is Outcome.GRANTED and limit else 0
            return Decision(outcome, now, at, limit, left, over if limit else now)

        known = self.permits.get((ask.cost, ask.id)) if ask.id else None
        if known is not None and known > now - REMEMBERED:
            return decide(Outcome.PACED if known > now else Outcome.GRANTED, known)
        if limit == 0 or ask.cost > self.bucket_size(ask.cost, limit):
            return decide(Outcome.REFUSED, 0)
        at = self.first_fit(ask.cost, limit, base)
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
                self.grants.append((at, ask.cost))
            self.remember((ask.cost, ask.id or made), now if at <= present else at, now)
        return decide(Outcome.GRANTED, now) if at <= present else decide(Outcome.PACED, at)

    def remember(self, permit, at, now):
        """Store a permit with its timestamp. Delete expired permits; they stay deleted even if the
        clock goes back."""
        if permit[1] == "":
            return
        is_made = permit[1].startswith("~")
        over = now - (0 if is_made else REMEMBERED)
        for known, moment in list(self.permits.items()):
            if known[1].startswith("~") == is_made and moment <= over:
                del self.permits[known]
        self.permits[permit] = at

    def release(self, permit, now):
        """Release a permit whose time has not come. Return False if there is none."""
        at = self.permits.get(permit)
        if at is None or at <= now:
            return False
        del self.permits[permit]
        if at <= self.lowered_until:
            return True
        self.free = [(at, permit[0]), *(pair for pair in self.free if pair[0] >= now)]
        return True

    def set_limit(self, before, limit, now):
        """Change the limit. If it becomes lower, times granted before are not granted again after
        their release."""
        is_lowered = limit >= 0 and (before < 0 or limit < before)
        if self.paces and is_lowered and self.last_granted() > now:
            self.free, self.lowered_until = [], self.last_granted()
