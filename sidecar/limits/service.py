"""Decides whether calls may proceed under a rate limit, even while Redis is unavailable. The calls
must have valid keys, costs and ids: the models of requests validate them."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from aiohttp import web

from sidecar.kit.errors import InputError, StoreError
from sidecar.kit.names import Named
from sidecar.kit.tasks import Background
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.model import Call, Decision, Outcome
from sidecar.limits.recent_decisions import RecentDecisions
from sidecar.limits.settings import UNLIMITED, LimitSettings
from sidecar.limits.store import LimitStore

#: The Retry-After in seconds for a key whose limit is 0, so that no retry can succeed.
NEVER_RETRY_S = 60

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limit:
    """A configured rate limit, with its state in Redis."""

    name: str
    settings: LimitSettings
    store: LimitStore
    metrics: LimitMetrics
    recent: RecentDecisions = field(default_factory=RecentDecisions)
    _releases: Background = field(default_factory=Background)

    async def acquire(self, call: Call) -> Decision:
        """Decide on one call. While Redis is unavailable, `on_store_failure` decides. Raises
        InputError if the call costs more than the limit ever grants."""
        try:
            decision = await self._acquire(call)
        except StoreError as error:
            decision = self._decide_without_redis(error)
        if decision.outcome is Outcome.REFUSED and not decision.at_us and decision.limit > 0:
            raise InputError(
                [f"cost: {call.cost} is more than is ever granted at once (limit {decision.limit})"]
            )
        self._count_outcomes([call], [decision])
        return decision

    async def _acquire(self, call: Call) -> Decision:
        """Ask the store for a decision. If the task is cancelled meanwhile, release the permit,
        unless the call has an id: the client may already have sent the same call again."""
        has_permits = self.settings.on_exceed == "pace" or self.settings.algorithm == "concurrency"
        if call.id or not has_permits:
            return await self.store.acquire(call)

        def release_permit(task: asyncio.Task[Decision]) -> None:
            if not task.cancelled() and task.exception() is None and task.result().permit:
                self.start_release(call.key, task.result().permit)

        acquiring = asyncio.create_task(self.store.acquire(call))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(release_permit)
            raise

    async def acquire_all(self, calls: Sequence[Call]) -> list[Decision]:
        """Decide on calls, in order. Refuse each call that costs more than is ever granted."""
        decisions = [
            self._decide_without_redis(decision) if isinstance(decision, StoreError) else decision
            for decision in await self.store.acquire_each(calls)
        ]
        self._count_outcomes(calls, decisions)
        return decisions

    async def release(self, key: str, permit: str) -> bool:
        """Release a permit. Return False if there was nothing to release. Raises StoreError."""
        is_released = await self.store.release(key, permit)
        if is_released:
            self.metrics.limit_releases.labels(self.name).inc()
        return is_released

    def start_release(self, key: str, permit: str) -> None:
        """Release a permit in the background. If this fails, the permit expires."""
        self._releases.start(self._try_release(key, permit))

    async def _try_release(self, key: str, permit: str) -> None:
        try:
            await self.release(key, permit)
        except StoreError as error:
            log.warning("permit_lost", limit=self.name, error=str(error))

    def _decide_without_redis(self, error: StoreError) -> Decision:
        log.debug("store_away", limit=self.name, error=str(error))
        admits = self.settings.on_store_failure == "admit"
        return Decision(Outcome.ADMITTED_ALONE if admits else Outcome.REFUSED_ALONE)

    def _count_outcomes(self, calls: Sequence[Call], decisions: Sequence[Decision]) -> None:
        self.recent.add(calls, decisions)
        for outcome, number in Counter(decision.outcome for decision in decisions).items():
            self.metrics.count_decisions(self.name, outcome, number)
            if outcome is Outcome.PACED:
                waits = self.metrics.limit_wait_seconds.labels(self.name)
                for decision in decisions:
                    if decision.outcome is outcome:
                        waits.observe(decision.wait_s)


class Limits(Named[Limit]):
    kind = "limit"


LIMITS = web.AppKey("limits", Limits)


def get_retry_after_s(decision: Decision) -> int:
    """Return the number of whole seconds, at least 1, after which to retry a refused call."""
    return max(1, math.ceil(decision.wait_s)) if decision.at_us else NEVER_RETRY_S


def make_rate_headers(limit: Limit, decision: Decision) -> dict[str, str]:
    """Return the headers RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers), or
    none if the key has no limit or Redis is unavailable. `w` is missing if the window is not a
    whole number of seconds. `t` is the time until a refused call may be retried, or otherwise until
    the whole limit is available."""
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
    if until_us:  # 0: the call is never granted
        rate += f";t={max(0, math.ceil((until_us - decision.now_us) / 1_000_000))}"
    return {"RateLimit-Policy": policy, "RateLimit": rate}
