"""Limits that operators set at run time come back after Redis was emptied, as they were last."""

import asyncio
import random
import urllib.error
import urllib.request
from operator import itemgetter
from typing import Any

import pytest

from sidecar.limits.settings import UNLIMITED
from sidecar.limits.store import LimitStore
from tests.support.processes import wait_until
from tests.support.redis_servers import RedisServer
from tests.support.rooms import new_room_name
from tests.support.service import Service
from tests.support.site import ADMIN_TOKEN, answers, call

KEYS = "abc"


class Replicas:
    """Two replicas of one limit. A model says which change of each key Redis and each replica
    know: the number of the change, and the limit (None: a reset)."""

    def __init__(self, make, redis, clock) -> None:
        self.make, self.redis, self.clock, self.name = make, redis, clock, new_room_name()
        self.stores: list[LimitStore] = []
        self.knowledge: list[dict[str, tuple[int, int | None]]] = [{}, {}]
        self.in_redis: dict[str, tuple[int, int | None]] = {}
        self.changes = 0
        self.backup: tuple[dict[bytes, bytes], dict] | None = None
        for _ in range(2):
            self.stores.append(self.new_store())

    def new_store(self) -> LimitStore:
        return self.make("fixed_window", limit=9, name=self.name)

    async def set(self, n: int, key: str, limit: int | None) -> None:
        self.clock.now += 1000
        await self.stores[n].set_value(key, limit)
        self.changes += 1
        self.in_redis[key] = self.knowledge[n][key] = (self.changes, limit)

    async def refresh(self, n: int) -> None:
        lost = {
            key for key, (change, _) in self.knowledge[n].items()
            if change > self.in_redis.get(key, (0, None))[0]
        }  # fmt: skip
        assert await self.stores[n].refresh_values() == len(lost)
        for key in lost:
            self.in_redis[key] = self.knowledge[n][key]
        self.knowledge[n] = dict(self.in_redis)

    async def refresh_both(self, set_key: str, commands_before: int) -> None:
        """Refresh both replicas at the same time, while the second one sets a key, after so many
        other commands."""
        self.clock.now += 1000

        async def set_meanwhile() -> None:
            for _ in range(commands_before):
                await self.stores[1].peek(set_key)
            await self.stores[1].set_value(set_key, 3)

        await asyncio.gather(
            self.stores[0].refresh_values(), self.stores[1].refresh_values(), set_meanwhile()
        )
        self.changes += 1
        known = [self.in_redis, *self.knowledge, {set_key: (self.changes, 3)}]
        for key in {key for changes in known for key in changes}:
            self.in_redis[key] = max(
                (changes[key] for changes in known if key in changes), key=itemgetter(0)
            )
        for n in range(2):
            await self.stores[n].refresh_values()
            self.knowledge[n] = dict(self.in_redis)

    def restart(self, n: int) -> None:
        self.stores[n], self.knowledge[n] = self.new_store(), {}

    async def names(self) -> list[bytes]:
        pattern = f"waitroom:{{limit:{self.name}}}:*"
        return [name async for name in self.redis.scan_iter(pattern, count=1000)]

    async def lose(self) -> None:
        """Empty Redis."""
        if names := await self.names():
            await self.redis.delete(*names)
        self.in_redis = {}

    async def back_up(self) -> None:
        rows = {name: await self.redis.dump(name) for name in await self.names()}
        self.backup = rows, dict(self.in_redis)

    async def fail_over(self) -> None:
        """Let Redis have the data of the last backup again."""
        if self.backup is not None:
            rows, model = self.backup
            await self.lose()
            for name, row in rows.items():
                await self.redis.restore(name, 0, row)
            self.in_redis = dict(model)

    async def check(self) -> None:
        limits = {key: limit for key, (_, limit) in self.in_redis.items() if limit is not None}
        assert await self.stores[0].read_values() == limits
        for key in KEYS:
            decision = await self.stores[1].peek(key)
            assert decision.limit == limits.get(key, 9)


@pytest.fixture
def replicas(make, redis, clock):
    return Replicas(make, redis, clock)


@pytest.mark.parametrize("seed", range(6))
async def test_the_latest_change_that_anybody_remembers_holds(replicas, seed, store_url):
    """In a random run of changes, resets, losses, failovers and restarts, Redis has after each
    refresh the latest change of each key that Redis or the replica knew, and never an older one."""
    numbers = random.Random(seed)
    has_dump = store_url != "memory://"
    for _ in range(250):
        n = numbers.randrange(2)
        acts = [
            *["set"] * 6,
            *["reset"] * 3,
            *["refresh"] * 6,
            *["lose, both"] * 4,
            "lose",
            "restart",
        ]
        match numbers.choice(acts + ["back up", "fail over"] * has_dump):
            case "set":
                await replicas.set(n, numbers.choice(KEYS), numbers.choice([0, 1, 5, UNLIMITED]))
            case "reset":
                await replicas.set(n, numbers.choice(KEYS), None)
            case "refresh":
                await replicas.refresh(n)
            case "lose, both":
                await replicas.lose()
                await replicas.refresh_both(numbers.choice(KEYS), numbers.randrange(6))
            case "lose":
                await replicas.lose()
            case "restart":
                replicas.restart(n)
            case "back up":
                await replicas.back_up()
            case "fail over":
                await replicas.fail_over()
        await replicas.check()


async def test_a_clock_that_was_set_back_makes_no_change_older(replicas, clock):
    """A change by a replica that knows a later revision goes before that one, whatever the time."""
    await replicas.set(0, "a", 5)
    await replicas.refresh(1)
    await replicas.lose()
    clock.now -= 3_600_000_000
    await replicas.set(0, "a", 4)
    await replicas.refresh(1)
    assert await replicas.stores[1].read_values() == {"a": 4}


async def test_more_changes_than_one_request_reads(replicas, monkeypatch):
    """A replica reads and restores them all."""
    monkeypatch.setattr("sidecar.limits.store.CHANGES_LIMIT", 4)
    names = [f"k{n}" for n in range(21)]
    for n, name in enumerate(names):
        await replicas.set(0, name, n)
    await replicas.refresh(1)
    replicas.restart(0)
    await replicas.lose()
    await replicas.refresh(1)
    await replicas.refresh(0)
    assert await replicas.stores[0].read_values() == {name: n for n, name in enumerate(names)}


async def test_limits_that_an_earlier_version_set_are_remembered_too(replicas, redis):
    """They have no revision yet. A digest that is lost is counted again."""
    key = f"waitroom:{{limit:{replicas.name}}}:values"
    await redis.hset(key, mapping={"a": 3, "b": 4})
    store = replicas.stores[0]
    for _ in range(2):
        assert await store.refresh_values() == 0
    await redis.delete(f"waitroom:{{limit:{replicas.name}}}:digest")
    for _ in range(2):
        assert await store.refresh_values() == 0
    await replicas.lose()
    assert await store.refresh_values() == 2
    assert await store.read_values() == {"a": 3, "b": 4}


RULES = f"""
admin_token = "{ADMIN_TOKEN}"
limits.pay = {{algorithm = "fixed_window", limit = 9, window = "1h", key = "{{n}}"}}
"""


def change(url: str, method: str, path: str, limit: int | None = None) -> dict[str, Any]:
    """Send a request of an operator to a replica."""
    body = None if limit is None else {"limit": limit}
    changed: dict[str, Any] = call(method, f"{url}/v1/limits/pay{path}", ADMIN_TOKEN, body)
    return changed


def read_set(url: str) -> dict[str, int]:
    """Return the limits that were set at run time, or {} while Redis is unavailable."""
    try:
        return change(url, "GET", "/values")["set"]
    except urllib.error.HTTPError:
        return {}


def test_replicas_restore_what_redis_has_lost():
    """One of two replicas is killed, Redis is emptied, and the killed one starts again and gets a
    change. The other one restores the rest, and no value from before a reset."""
    with RedisServer() as redis, Service(RULES, store=redis.url) as service:
        first, second = service.urls
        change(first, "PUT", "/values/a", 2)
        change(first, "PUT", "/values/b", 3)
        change(first, "PUT", "/values/c", 4)
        change(first, "DELETE", "/values/b")
        service.replicas[1].kill()
        redis.cli("flushall")
        service.replicas[1].start()
        wait_until(lambda: answers(f"{second}/readyz"), "the replica", of=service.replicas[1])
        change(second, "PUT", "/values/c", 1)
        wanted = {"a": 2, "c": 1}
        wait_until(lambda: read_set(second) == wanted, "the limits")
        assert change(second, "GET", "?n=a")["remaining"] == 2
        redis.cli("flushall")
        wait_until(lambda: read_set(first) == wanted, "the limits again")
