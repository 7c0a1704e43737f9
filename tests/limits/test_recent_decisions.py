"""How calls were decided in the last hours, by minute, and whose calls were refused most."""

import json
import time
from collections import Counter

import pytest

from sidecar.limits.model import Call, Decision, Outcome
from sidecar.limits.recent_decisions import (
    KEY_MINUTES_KEPT,
    KEYS_COUNTED,
    KEYS_WRITTEN,
    MINUTES_KEPT,
    RecentDecisions,
    sum_counts_by_minute,
    sum_refused_keys,
)
from sidecar.limits.redis_keys import recent_decisions_key
from sidecar.limits.service import LIMITS
from tests.support.limits import S

MINUTE = 60 * S


async def decide(store, recent, *calls):
    decisions = await store.acquire_each(calls)
    recent.add(calls, decisions)
    return decisions


@pytest.fixture
def start(clock):
    """The first minute, which begins now."""
    clock.now = clock.now // MINUTE * MINUTE
    return clock.now // MINUTE


async def test_minutes_of_all_replicas_are_added_up(replicas, clock, start):
    """Each replica writes its own, as often as it likes; a write that is repeated counts once."""
    stores = replicas("fixed_window", limit=2, window=60)
    recents = [RecentDecisions() for _ in stores]
    for minute in range(3):
        for store, recent in zip(stores, recents, strict=True):
            await decide(store, recent, Call("a"), Call("b"))
            await store.write_recent_decisions(recent)
            await decide(store, recent, Call("a"))
            await store.write_recent_decisions(recent)
            if minute == 1:  # the reply was lost, so that the same is written again
                for number, counted in list(recent._minutes.items()):
                    args = recent.format_args(number, counted)
                    key = recent_decisions_key(store._name)
                    await store._scripts.call("count", [key], args)
        clock.now += MINUTE
    now_us, fields = await stores[0].read_recent_decisions()
    assert now_us == clock.now
    # Of a the first two are allowed, and of b too: 4 of 12 in each minute.
    assert sum_counts_by_minute(fields) == {start + n: [4, 0, 8] for n in range(3)}
    assert dict(sum_refused_keys(fields, start)) == {"a": 18, "b": 6}
    assert dict(sum_refused_keys(fields, start + 2)) == {"a": 6, "b": 2}
    assert all(recent.take_unwritten_minutes() == [] for recent in recents)


async def test_what_is_old_goes(make, clock, start, redis):
    """Counts are kept for three hours, keys for one, and all expires if nobody calls."""
    store, recent = make("fixed_window", limit=0, window=60), RecentDecisions()
    for minute in (0, 1, MINUTES_KEPT):
        clock.now = (start + minute) * MINUTE
        await decide(store, recent, Call("a"))
        await store.write_recent_decisions(recent)
    _, fields = await store.read_recent_decisions()
    assert sorted(sum_counts_by_minute(fields)) == [start + 1, start + MINUTES_KEPT]
    assert [name for name in fields if name.endswith(" keys")] == [
        name + " keys" for name in fields if name.startswith(f"{start + MINUTES_KEPT} ")
        and not name.endswith("keys")
    ]  # fmt: skip
    assert KEY_MINUTES_KEPT < MINUTES_KEPT
    left_ms = await redis.pttl(recent_decisions_key(store._name))
    assert 0 < left_ms <= MINUTES_KEPT * 60_000 + 10_000


async def test_without_redis_it_is_counted_and_written_later(make, clock):
    """A decision that was made without Redis is of the minute of this machine."""
    store, recent = make("fixed_window", limit=5, window=60), RecentDecisions()
    clock.now = time.time_ns() // 1000
    recent.add([Call("a")], [Decision(Outcome.REFUSED_ALONE)])
    recent.add([Call("b")], [Decision(Outcome.ADMITTED_ALONE)])
    [(number, minute)] = recent.take_unwritten_minutes()
    assert minute.counts == [1, 0, 1]
    await store.write_recent_decisions(recent)
    _, fields = await store.read_recent_decisions()
    assert sum_counts_by_minute(fields) == {number: [1, 0, 1]}


def test_memory_is_bounded():
    """Of very many keys the ones that are refused most are found, in bounded memory."""
    recent, refused = RecentDecisions(), Decision(Outcome.REFUSED, MINUTE)
    calls = [Call("often") if n % 5 else Call("seldom") for n in range(1000)]
    calls += [Call(f"once {n}") for n in range(20 * KEYS_COUNTED)]
    recent.add(calls, [refused] * len(calls))
    [(number, minute)] = recent.take_unwritten_minutes()
    assert len(minute.refused_keys) <= KEYS_COUNTED
    _, _, counts, keys, *_ = recent.format_args(number, minute)
    assert counts == f"0 0 {len(calls)}"
    written = json.loads(str(keys))
    assert len(written) == KEYS_WRITTEN
    assert Counter(written).most_common(2) == [("often", 800), ("seldom", 200)]


async def test_the_api_lists_them(service):
    """Every minute of three hours, the empty ones too, and the keys."""
    limit = {"algorithm": "fixed_window", "limit": 2, "window": "1d"}
    site = await service(limit=limit)
    for key, calls in (("x", 3), ("y", 5)):
        for _ in range(calls):
            await site.ask("POST", "/limits/{name}/acquire", {"key": key})
    limit = site.ops.server.app[LIMITS].get(site.name)
    await limit.store.write_recent_decisions(limit.recent)
    said = await site.fetch("GET", "/limits/{name}/recent")
    assert len(said["minutes"]) == MINUTES_KEPT
    assert [sum(minute[name] for minute in said["minutes"][-2:])
            for name in ("allowed", "paced", "refused")] == [4, 0, 4]  # fmt: skip
    assert said["refused_keys"] == [{"key": "y", "refused": 3}, {"key": "x", "refused": 1}]
