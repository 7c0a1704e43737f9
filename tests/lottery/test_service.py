"""One secret for all replicas while keys change, and one published list."""

import asyncio
import hashlib
import random
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from sidecar.lottery.commitment import (
    compute_commitment,
    compute_lot,
    derive_secret,
    format_list,
    sort_by_lot,
)
from sidecar.lottery.service import Draws
from sidecar.lottery.store import PAGE, DrawsStore, ListDigest
from sidecar.rooms.event_changes import find_event_change_problems
from sidecar.rooms.redis_keys import room_key
from tests.support.draws import HOUR_MS, START_MS, make_event, make_ids
from tests.support.rooms import new_room_name

OLD, NEW = "o" * 32, "n" * 32
EVENT = make_event()
KEY = EVENT.draw_key


@dataclass
class Seen:
    """The part of a snapshot that draws read."""

    now_ms: int = START_MS - HOUR_MS
    born_ms: int = START_MS - 9 * HOUR_MS
    recovery_stage: int = 0


class Shop:
    """A room's keys in Redis."""

    def __init__(self, redis) -> None:
        self.name = new_room_name()
        self.redis = redis

    def store(self) -> DrawsStore:
        return DrawsStore(self.redis, self.name, timeout_s=5)

    def key(self, name: str) -> str:
        return room_key(self.name, name)

    async def fill(self, ids: list[str], secret: str, *, begins: int = START_MS) -> list[str]:
        """Fill the list as a pre-queue does. Return the ids in the order of their lots."""
        for at in range(0, len(ids), 10_000):
            scores = {one: compute_lot(secret, one) - 2**53 for one in ids[at : at + 10_000]}
            await self.redis.zadd(self.key("drawn"), scores)
        stats = {"born": Seen.born_ms, "drawn_from": begins}
        await self.redis.hset(self.key("stats"), mapping=stats)
        return sort_by_lot(secret, ids)


@pytest.fixture
def shop(redis):
    return Shop(redis)


async def digest_of(store: DrawsStore, **more) -> ListDigest | None:
    asked = {"begins_ms": START_MS, "born_ms": Seen.born_ms, "wait_s": 30, **more}
    return await store.find_digest(KEY, **asked)


# Which secret -------------------------------------------------------------------------------------


def test_the_key_that_signs_makes_the_secret():
    """Without a published commitment the signing key makes the secret, and with it the lots."""
    draws = Draws("shop", [OLD, NEW], None)
    secret = derive_secret(NEW, "shop", EVENT)
    assert draws.get_secret(EVENT) == secret
    assert draws.get_commitment(EVENT) == compute_commitment(secret)
    assert draws.compute_lot(EVENT, "a" * 22) == compute_lot(secret, "a" * 22)
    assert not draws.has_agreed_secret(EVENT)


def test_the_published_commitment_chooses_the_key():
    """A published commitment chooses the key, even after another secret was used; an emptied Redis
    takes nothing back."""
    draws = Draws("shop", [OLD, NEW], None)
    assert draws.get_secret(EVENT) == derive_secret(NEW, "shop", EVENT)
    published = compute_commitment(derive_secret(OLD, "shop", EVENT))
    for learnt in ({KEY: published}, {}):
        draws.record_commitments(learnt)
        assert draws.get_secret(EVENT) == derive_secret(OLD, "shop", EVENT)
        assert draws.get_commitment(EVENT) == published
        assert draws.has_agreed_secret(EVENT)
    other = make_event("winter")
    assert draws.get_secret(other) == derive_secret(NEW, "shop", other)


def test_a_key_that_is_gone_is_an_error_in_the_log():
    """A missing key is logged as an error with a hint; the commitment stays, and the signing key
    draws."""
    draws = Draws("shop", [NEW], None)
    published = compute_commitment(derive_secret(OLD, "shop", EVENT))
    draws.record_commitments({KEY: published})
    with capture_logs() as logs:
        secrets = {draws.get_secret(EVENT) for _ in range(3)}
    assert secrets == {derive_secret(NEW, "shop", EVENT)}
    assert draws.get_commitment(EVENT) == published
    (line,) = logs
    assert (line["log_level"], line["event"], line["room"]) == ("error", "draw_key_missing", "shop")
    assert (line["draw_of"], line["commitment"]) == ("autumn", published)
    assert "put that key back" in line["hint"]


async def test_replicas_with_other_keys_agree(shop):
    """Replicas in different steps of a change of keys follow the published commitment."""
    replicas = [Draws(shop.name, keys, shop.store()) for keys in ([OLD], [NEW, OLD], [OLD, NEW])]
    for draws in replicas:
        await draws.publish([EVENT], Seen())
    secret = derive_secret(OLD, shop.name, EVENT)
    assert {draws.get_secret(EVENT) for draws in replicas} == {secret}
    assert await shop.store().read_published() == {KEY: compute_commitment(secret)}


async def test_an_emptied_store_is_told_again(shop):
    """After Redis was emptied the same commitment is published again."""
    draws = Draws(shop.name, [OLD, NEW], shop.store())
    published = compute_commitment(derive_secret(OLD, shop.name, EVENT))
    await shop.store().publish(KEY, published)
    await draws.publish([EVENT], Seen())
    await shop.redis.delete(shop.key("draws"))
    await draws.publish([EVENT], Seen(born_ms=START_MS - HOUR_MS))
    assert await shop.store().read_published() == {KEY: published}


async def test_without_a_pre_queue_nothing_is_asked(shop):
    """Without a pre-queue a refresh asks Redis nothing."""
    plain = make_event(prequeue_from=None)
    await Draws(shop.name, [OLD], None).publish([plain], Seen(now_ms=START_MS + 9 * HOUR_MS))


# What an operator may change ----------------------------------------------------------------------

MINUTE = 60_000
ON, OPENED, OVER = START_MS + MINUTE, EVENT.opens_at + MINUTE, EVENT.closes_at + MINUTE
LATER = make_event(opens_at=EVENT.opens_at + 9 * MINUTE)
POSTPONED = make_event(begins=START_MS + HOUR_MS // 2)
RENAMED = make_event("winter")


@pytest.mark.parametrize(
    ("now_ms", "after", "said"),
    [
        (START_MS - 1, [POSTPONED], ""), (START_MS - 1, [RENAMED], ""), (START_MS - 1, [], ""),
        (ON, [EVENT, make_event("next", OVER)], ""), (ON, [], ""), (ON, [LATER], ""),
        (ON, [POSTPONED], "autumn: its pre-queue is on"),
        (ON, [make_event(prequeue_from=None)], "autumn: its pre-queue is on"),
        (ON, [RENAMED], "winter: the pre-queue of autumn is on"),
        (ON, [make_event("winter", START_MS + 1)], "winter: the pre-queue of autumn is on"),
        (ON, [make_event("winter", OVER)], ""),
        (OPENED, [LATER], "autumn: its secret is published"),
        (OVER, [LATER], "autumn: its secret is published"),
        (OVER, [make_event(closes_at=None)], ""), (OVER, [make_event(begins=OVER)], ""),
        (OPENED, [], ""), (OPENED, [RENAMED], ""), (OPENED, [make_event(prequeue_from=None)], ""),
    ],
)  # fmt: skip
def test_a_draw_that_is_on_is_not_changed(now_ms, after, said):
    """A draw's name and beginning stay during its pre-queue, and its opening once the secret is
    public; it may be removed at any time."""
    problems = find_event_change_problems([EVENT], after, now_ms)
    assert [problem.startswith(f"events: {said}") for problem in problems] == [True] * bool(said)


# The list -----------------------------------------------------------------------------------------


async def test_the_list_is_told_in_the_order_of_its_places(shop):
    """The list is read from any place on, across pages, up to the last place."""
    ids = make_ids(random.Random(1), 2 * PAGE + 7)
    order = await shop.fill(ids, "s" * 64)
    store = shop.store()
    pages = [(0, 5), (PAGE - 2, 4), (3, 2 * PAGE), (2 * PAGE, PAGE), (5000, 9), (4, 0)]
    for offset, limit in pages:
        found = await store.list_drawn_visitors(begins_ms=START_MS, offset=offset, limit=limit)
        assert found == order[offset : offset + limit]


async def test_equal_lots_stand_in_the_store_as_the_rule_says(shop):
    """Equal lots are sorted by the bytes of the ids, in Redis as in Python."""
    ids = make_ids(random.Random(2), 300)
    await shop.fill([], "s" * 64)
    await shop.redis.zadd(shop.key("drawn"), dict.fromkeys(ids, -(2**53)))
    found = await shop.store().list_drawn_visitors(begins_ms=START_MS, offset=0, limit=300)
    assert found == sorted(ids)


async def test_the_store_is_asked_seldom(shop):
    """A page is cached, so that Redis is read seldom."""
    order = await shop.fill(make_ids(random.Random(3), 10), "s" * 64)
    store, asked = shop.store(), {"begins_ms": START_MS, "offset": 0, "limit": 10}
    await store.list_drawn_visitors(**asked)
    await shop.redis.delete(shop.key("drawn"))
    assert await store.list_drawn_visitors(**asked) == order
    assert await shop.store().list_drawn_visitors(**asked) == []


async def test_the_next_pre_queues_list_is_told_to_nobody(shop):
    """The next pre-queue's list, which has the same key, is never sent as the last one's, not even
    if it begins during a read."""
    last = await shop.fill(make_ids(random.Random(10), 5), "s" * 64)
    asked = {"begins_ms": START_MS, "offset": 0, "limit": 10}
    known, late = shop.store(), shop.store()
    assert await known.list_drawn_visitors(**asked) == last
    coming, read_page = make_ids(random.Random(11), 5), late._read_page

    async def overtaken(offset: int) -> list[str]:
        await shop.redis.delete(shop.key("drawn"))
        await shop.fill(coming, "s" * 64, begins=START_MS + 9 * HOUR_MS)
        return await read_page(offset)

    late._read_page = overtaken
    assert await late.list_drawn_visitors(**asked) == []
    assert await shop.store().list_drawn_visitors(**asked) == []
    assert await known.list_drawn_visitors(**asked) == last
    asked["begins_ms"] = START_MS + 9 * HOUR_MS
    assert set(await known.list_drawn_visitors(**asked)) == set(coming)


async def test_the_digest_is_published_once(shop):
    """The digest is published once; a list that changes later does not change it."""
    ids = make_ids(random.Random(4), PAGE + 5)
    order = await shop.fill(ids, "s" * 64)
    whole = ListDigest(len(ids), hashlib.sha256(format_list(order)).hexdigest())
    first = shop.store()
    assert await asyncio.gather(digest_of(first), digest_of(first)) == [whole, whole]
    await shop.redis.zrem(shop.key("drawn"), order[3])
    assert await digest_of(shop.store()) == whole
    published = await shop.store().read_published()
    assert published == {f"{KEY}:places": f"{whole.count} {whole.sha256}"}


async def test_the_digest_is_there_when_nobody_has_asked(shop):
    """A refresh computes the digest from 3 s after the opening on, but not during a recovery."""
    await shop.fill(make_ids(random.Random(5), 10), "s" * 64)
    draws = Draws(shop.name, [OLD], shop.store())
    store = draws.store
    published = compute_commitment(derive_secret(OLD, shop.name, EVENT))
    opened = EVENT.opens_at + 3000
    for seen in (Seen(now_ms=opened - 1), Seen(now_ms=opened, recovery_stage=1)):
        await draws.publish([EVENT], seen)
        assert store._digest_task is None
    await draws.publish([EVENT], Seen(now_ms=opened))
    await store._digest_task
    assert set(await store.read_published()) == {KEY, f"{KEY}:places"}
    assert (await store.read_published())[KEY] == published


async def test_nobody_in_the_pre_queue_is_an_empty_list(shop):
    """A pre-queue without visitors has an empty list, not the last pre-queue's."""
    await shop.fill(make_ids(random.Random(6), 5), "s" * 64, begins=START_MS - HOUR_MS)
    assert await digest_of(shop.store()) == ListDigest(0, hashlib.sha256(b"").hexdigest())


async def test_no_digest_of_what_may_be_half_a_list(shop):
    """A later pre-queue's list, or one in an emptied Redis, has no digest."""
    await shop.fill(make_ids(random.Random(7), 5), "s" * 64)
    assert await digest_of(shop.store(), begins_ms=START_MS - HOUR_MS) is None
    assert await digest_of(shop.store(), born_ms=Seen.born_ms - 1) is None
    assert await shop.store().read_published() == {}


async def test_a_list_that_grows_while_it_is_read_has_no_digest_yet(shop):
    """A list that grows during a read has no digest yet; the next request has it."""
    ids = make_ids(random.Random(8), PAGE + 1)
    await shop.fill(ids[:-1], "s" * 64)
    store, asked = shop.store(), []
    read_page = store._read_page

    async def grown(offset: int) -> list[str]:
        page = await read_page(offset)
        if not asked:
            asked.append(offset)
            await shop.redis.zadd(shop.key("drawn"), {ids[-1]: -(2**53)})
        return page

    store._read_page = grown
    assert await digest_of(store) is None
    assert (await digest_of(store)).count == PAGE + 1


async def test_a_store_that_is_away_is_asked_again_later(shop, monkeypatch):
    """While Redis is unavailable the digest is unknown, and the next request has it."""
    store = DrawsStore(shop.redis, shop.name, timeout_s=0)
    assert await digest_of(store) is None
    await shop.fill(make_ids(random.Random(9), 3), "s" * 64)
    monkeypatch.setattr(store, "_timeout_s", 5)
    assert (await digest_of(store)).count == 3
