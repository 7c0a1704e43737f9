"""Rate limits: the decision on a call, also while Redis is unavailable."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from sidecar.kit.errors import ConfigError, StoreError
from sidecar.kit.names import Named
from sidecar.kit.tasks import Background
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.model import Ask, Decision, Outcome
from sidecar.limits.settings import (
    MAX_COST,
    MAX_KEY_LENGTH,
    PERMIT_ID,
    UNLIMITED,
    LimitSettings,
    is_key,
)
from sidecar.limits.store import LimitStore

#: For a key whose limit is 0, seconds.
NEVER_RETRY_S = 60

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule as this replica sees it."""

    name: str
    settings: LimitSettings
    store: LimitStore
    metrics: LimitMetrics
    _giving_back: Background = field(default_factory=Background)

    async def acquire(self, ask: Ask) -> Decision:
        """What the rule says of one call; without the store, what `on_store_failure` says.

        Raises ConfigError for what no call may be: a cost or an id that is not allowed, or more
        than could ever be granted.
        """
        check(ask)
        try:
            if ask.id or not self.is_booking:
                decision = await self.store.acquire(ask)
            else:
                decision = await self._acquire_for_one_who_may_go(ask)
        except StoreError as error:
            decision = self._alone(error)
        if decision.outcome is Outcome.REFUSED and not decision.at_us and decision.limit > 0:
            raise ConfigError(
                [f"cost: {ask.cost} is more than is ever granted at once (limit {decision.limit})"]
            )
        self._count([decision])
        return decision

    @property
    def is_booking(self) -> bool:
        """Whether a permit is something to give back."""
        return self.settings.on_exceed == "pace" or self.settings.algorithm == "concurrency"

    async def _acquire_for_one_who_may_go(self, ask: Ask) -> Decision:
        """Where the caller is gone before the store has answered, nobody knows of the permit.
        (One that has the caller's own name is theirs: they may be back for it already.)"""
        asked = asyncio.create_task(self.store.acquire(ask))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda task: self._give_back_unseen(ask.key, task))
            raise

    def _give_back_unseen(self, key: str, asked: asyncio.Task[Decision]) -> None:
        if not asked.cancelled() and asked.exception() is None and asked.result().permit:
            self.give_back(key, asked.result().permit)

    async def acquire_all(self, asks: Sequence[Ask]) -> list[Decision]:
        """The same for many, in order."""
        for ask in asks:
            check(ask)
        decisions = [
            self._alone(decision) if isinstance(decision, StoreError) else decision
            for decision in await self.store.acquire_each(asks)
        ]
        self._count(decisions)
        return decisions

    async def release(self, key: str, permit: str) -> bool:
        """Whether there was something to give back: a moment to come, or a permit of a concurrency
        limit. Raises StoreError."""
        is_given_back = await self.store.release(key, permit)
        if is_given_back:
            self.metrics.limit_releases.labels(self.name).inc()
        return is_given_back

    def give_back(self, key: str, permit: str) -> None:
        """The same for a caller who went away: nobody waits for it. What fails ends by itself."""
        self._giving_back.start(self._give_back(key, permit))

    async def _give_back(self, key: str, permit: str) -> None:
        try:
            await self.release(key, permit)
        except StoreError as error:
            log.warning("permit_lost", limit=self.name, error=str(error))

    def _alone(self, error: StoreError) -> Decision:
        log.debug("store_away", limit=self.name, error=str(error))
        admits = self.settings.on_store_failure == "admit"
        return Decision(Outcome.ADMITTED_ALONE if admits else Outcome.REFUSED_ALONE)

    def _count(self, decisions: Sequence[Decision]) -> None:
        for outcome, number in Counter(decision.outcome for decision in decisions).items():
            self.metrics.count_decisions(self.name, outcome, number)
            if outcome is Outcome.PACED:
                waits = self.metrics.limit_wait_seconds.labels(self.name)
                for decision in decisions:
                    if decision.outcome is outcome:
                        waits.observe(decision.wait_s)


class Limits(Named[Limit]):
    kind = "limit"


def check(ask: Ask) -> None:
    if 1 <= ask.cost <= MAX_COST and not ask.id and is_key(ask.key):
        return
    problems = []
    if not 1 <= ask.cost <= MAX_COST:
        problems.append(f"cost: a whole number from 1 to {MAX_COST} (got {ask.cost})")
    if ask.id and not PERMIT_ID.match(ask.id):
        problems.append("id: 1 to 64 letters, digits and . _ - : @ +")
    if not is_key(ask.key):
        problems.append(f"key: at most {MAX_KEY_LENGTH} characters, ASCII without spaces")
    if problems:
        raise ConfigError(problems)


def retry_after_s(decision: Decision) -> int:
    """Of a refusal: whole seconds, 1 at least."""
    return max(1, math.ceil(decision.wait_s)) if decision.at_us else NEVER_RETRY_S


def headers(limit: Limit, decision: Decision) -> dict[str, str]:
    """RateLimit-Policy and RateLimit as the IETF's draft has them
    (draft-ietf-httpapi-ratelimit-headers); none where nothing is limited, or nobody knows.

    A window has whole seconds there, or is left out (`w`). `t` is not beyond Retry-After: of a
    refusal it is when to ask again, else when all of the limit is free again.
    """
    if decision.limit == UNLIMITED or not decision.now_us:
        return {}
    policy = f'"{limit.name}";q={decision.limit}'
    window = limit.settings.window
    if limit.settings.algorithm == "concurrency":
        policy += ';qu="concurrent-requests"'
    elif window is not None and window == int(window):
        policy += f";w={int(window)}"
    rate = f'"{limit.name}";r={decision.remaining}'
    until_us = decision.reset_us if decision.is_allowed else decision.at_us
    if until_us:  # else there is no moment at which it might be granted
        rate += f";t={max(0, math.ceil((until_us - decision.now_us) / 1_000_000))}"
    return {"RateLimit-Policy": policy, "RateLimit": rate}
