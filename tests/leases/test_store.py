"""Leases in Redis, case by case: stories that the model of test_model.py meets seldom, and what it
does not say, such as expected waits, bounds of a script, and a Redis that is full or away."""

import asyncio

import pytest

from sidecar.kit.clock import MAX_LAG_MS, StoreClock
from sidecar.kit.errors import StoreError
from sidecar.leases.model import LeaseOutcome
from sidecar.leases.redis_keys import lease_key, resource_key
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.scripts import Observer
from tests.support.processes import free_port
from tests.support.rooms import new_room_name

GRANTED, WAITING, GONE, FULL, STALE, NOT_RENEWED = LeaseOutcome


@pytest.fixture
def make(redis, turn):
    """Makes the store of a template, of the same name each time; settings by name."""
    name = new_room_name()

    def make_leases(*, client=redis, template=name, observer=None, **settings) -> LeaseStore:
        return LeaseStore(
            client,
            template,
            settings=LeaseSettings(**{"term": 60, **settings}),
            clock=StoreClock(),
            observer=observer,
            now_ms=turn,
            timeout_s=5,
        )

    return make_leases


async def ask_all(store, resource, *holders, **kwargs):
    """Ask for all holders in one batch, in this order."""
    return await asyncio.gather(*(store.ask(resource, who, **kwargs) for who in holders))


async def outcomes(store, resource, *holders, **kwargs):
    return [reply.outcome for reply in await ask_all(store, resource, *holders, **kwargs)]


async def keys_of(redis, store):
    """Return the names of the template's keys, without their prefix."""
    prefix = lease_key(store._name, "")
    return {key.decode().removeprefix(prefix) for key in await redis.keys(f"{prefix}*")}


async def contents(redis, store):
    """Return all keys of the template with their contents."""
    prefix = lease_key(store._name, "")
    return {name: await redis.dump(prefix + name) for name in await keys_of(redis, store)}


async def lose(redis, store):
    prefix = lease_key(store._name, "")
    await redis.delete(*(prefix + name for name in await keys_of(redis, store)))


async def waits_for(store, resource, holder, turn, *, seconds):
    """Ask only when told to. Return after how many ms the lease was granted."""
    began = turn.now_ms
    while (reply := await store.ask(resource, holder, may_join=False)).outcome is WAITING:
        assert turn.now_ms - began < seconds * 1000
        turn.forward(reply.refresh_ms / 1000)
    assert reply.outcome is GRANTED
    return turn.now_ms - began


# Stories ----------------------------------------------------------------------------------------

CODES = {"G": GRANTED, "W": WAITING, "-": GONE, "F": FULL, "S": STALE, "N": NOT_RENEWED}
RENEWS = {"renewable": True}
#: The steps of three who come back to a queue that has taken three others meanwhile.
LOST = "; back d:W; rejoin b:W; back c:W; ask b:W0 c:W1 d:W2 x:W3 y:W4 z:W5"
POLLS = {"heartbeat_interval": 2, "claim_window": 7}
#: Settings and steps. `+2` lets two seconds pass. `ask a:G b:W1` are two requests of one batch: `a`
#: is granted the lease, and `b` waits behind one; `G90` ends 90 s after the begin. `look` does not
#: join; `back` and `rejoin` ask with the order of the lost place. `free` and `renew` name the
#: holder's n-th lease in the story (`a1`), or another number beside (`a1+1`). `A` is holder `a` at
#: another resource.
STORIES = {
    "as many hold it as the capacity says": (
        {"capacity": 3}, "ask a:G b:G c:G d:W0 e:W1; +1; free b:G; ask e:W0 d:G c:G"),
    "where nobody may wait the resource is had or not": (
        {"max_waiting": 0}, "ask a:G b:F; +60; ask b:G a:F"),
    "a late holder is at the end, even by no millisecond": (
        {}, "ask a:G b:W0; +60; ask a:W0 c:W1 b:G"),
    "a turn begins when the heartbeat is due, and ends with the claim window": (
        POLLS, "ask a:G b:W0 c:W1; free a:G; +8.999; ask c:W0; look b:G; ask c:W0"),
    "after the claim window the next is called": (
        POLLS, "ask a:G b:W0 c:W1; free a:G; +9; ask c:G; look b:-; ask c:G"),
    "who missed the turn is at the end": (
        POLLS, "ask a:G b:W0 c:W1 d:W2; free a:G; +9; ask b:W1 d:W0 c:G"),
    "a head is called while it is overdue by no more than the claim window": (
        POLLS, "ask a:G b:W0 c:W1; +4; ask a:G c:W1; +5; free a:G; ask c:W0"),
    "a head that is overdue by more is passed over": (
        POLLS, "ask a:G b:W0 c:W1; +4; ask a:G c:W1; +5.001; free a:G; ask c:G"),
    "a late head that asks in the batch keeps its place": (
        POLLS, "ask a:G b:W0 c:W1; +60; ask c:W0 b:G"),
    "a turn can be given up": ({}, "ask a:G b:W0 c:W1; free a:G; free b:G; free b:-; ask c:G"),
    "to release twice is to release once": (
        {}, "ask a:G b:W0; free a1:G; free a1:-; free b:G; free b:-; free a1:- a1:-"),
    "an old number releases nothing": (
        {}, "ask a:G; +60; ask a:G b:W0; free a1:S; free b2:-; ask a:G b:W0"),
    "a renewal keeps the next waiting": (
        RENEWS, "ask a:G b:W0" + 3 * "; +50; ask b:W0; renew a1:G; sweep"),
    "a wrong number renews nothing": (
        RENEWS, "ask a:G; renew a1-1:S; renew a1+1:S; renew b1:S A1:S"),
    "a lease that ran out cannot be renewed": (
        RENEWS, "ask a:G; +60; renew a1:S; ask a:G; renew a1:S"),
    "the order holds when the clock goes back": (
        {}, "ask a:G b:W0; +-1.5; ask c:W1; +61.5; ask c:W0 b:G"),
    "a silent place lapses after the timeout": (
        {"term": 3600, "max_waiting": 2, "heartbeat_timeout": 30, "heartbeat_interval": 2},
        "ask a:G b:W0 c:W1; +31; ask b:W0; +1; sweep; ask d:F; +0.001; sweep; ask d:W1 c:F"),
    "a turn that nobody could take is still there": (
        {}, "ask a:G b:W0 c:W1; +59; ask b:W0 c:W1; +1; sweep; +600; free b9:-; ask b:G c:W0"),
    "a turn that nobody could take can be given up": (
        {}, "ask a:G b:W0 c:W1; +59; ask b:W0 c:W1; +1; sweep; +600; free b:G; ask b:W0 c:G"),
    "leases come back only while nothing is granted": (
        RENEWS, "ask a:G; +1; lose; ask B:W0; +60; renew a1:S"),
    "of one slot the newest lease comes back": (
        RENEWS, "ask a:G; +3600; ask b:G; lose; +1; renew a1:G; renew b1:G; renew a1:S; look a:-"),
    "as many leases come back as the capacity says": (
        {"capacity": 2},
        "ask a:G b:G; +1; lose; ask x:W0 b:W1 a:W2; renew a1:G; renew b1:G; renew c1:S; ask x:W0"),
    "a restored lease can be renewed and released": (
        {**RENEWS, "max_term": 90}, "ask a:G60; +50; lose; renew a1:G90; renew a1:N90; free a1:G"),
    "a renewal begins the term anew, until the longest": (
        {**RENEWS, "max_term": 100},
        "ask a:G60; +30; renew a1:G90; +30; renew a1:G100; +20; renew a1:N100; +20; renew a1:S"),
    "places come back in their order, even in a full queue": (
        {"max_waiting": 3},
        "ask a:G b:W0 c:W1 d:W2; +1; lose; ask x:W0 y:W1 z:W2" + LOST),
}  # fmt: skip


def request(store, verb, name, fences, orders):
    """Return a request of a story. Without a lease of the holder, `a1` is any holder's lease."""
    resource, holder = "B" if name[0].isupper() else "A", name[0].lower()
    numbers = fences.get(holder) or next(iter(fences.values()), [1])
    which, sign, off = name[1:].partition("-" if "-" in name else "+")
    fence = numbers[min(int(which), len(numbers)) - 1] + int(sign + off or 0) if which else None
    match verb:
        case "free":
            return store.release(resource, holder, fence)
        case "renew":
            return store.renew(resource, holder, fence)
        case "back" | "rejoin":
            order = orders[holder]
            return store.ask(resource, holder, may_join=verb == "rejoin", order=order)
    return store.ask(resource, holder, may_join=verb == "ask")


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(make, redis, turn, story):
    """Requests are answered as the story says, and fencing numbers grow."""
    settings, steps = STORIES[story]
    store, fences, orders, began_ms = make(**settings), {}, {}, turn.now_ms
    for step in steps.split("; "):
        verb, *requests = step.split()
        if verb == "lose":
            await lose(redis, store)
        elif verb == "sweep":
            await store.sweep()
        elif verb.startswith("+"):
            turn.forward(float(verb[1:]))
        pairs = [each.split(":") for each in requests]
        calls = (request(store, verb, name, fences, orders) for name, _ in pairs)
        replies = await asyncio.gather(*calls)
        for (name, code), reply in zip(pairs, replies, strict=True):
            assert (reply.outcome, reply.now_ms) == (CODES[code[0]], turn.now_ms), step
            ends_s = (reply.expires_ms - began_ms) / 1000
            assert code[1:] in {"", str(reply.ahead) if code[0] == "W" else f"{ends_s:g}"}, step
            assert reply.started_ms == reply.fence // 1000, step
            holder, numbers = name[0].lower(), fences.setdefault(name[0].lower(), [])
            if verb in {"back", "rejoin"}:
                assert reply.order == orders[holder], step
            orders[holder] = reply.order
            if verb in {"ask", "look"} and reply.fence and reply.fence not in numbers:
                assert reply.fence > max(map(max, filter(None, fences.values())), default=0)
                numbers.append(reply.fence)
            if verb != "free" and code[0] in "GN":
                assert reply.fence, step
            assert not reply.fence or reply.fence in numbers, step


# Holding and waiting ----------------------------------------------------------------------------


async def test_templates_are_apart(make):
    """The same resource and holder in two templates have nothing to do with each other."""
    title, seat = make(), make(template=new_room_name())
    assert await outcomes(title, "A", "one", "two") == [GRANTED, WAITING]
    assert await outcomes(seat, "A", "two", "one") == [GRANTED, WAITING]
    await title.release("A", "one")
    assert await outcomes(seat, "A", "one") == [WAITING]


# The end of a term ------------------------------------------------------------------------------


async def test_the_next_has_it_when_the_term_ends_and_not_before(make, turn):
    """The next holder gets it to the millisecond, asking only when told to."""
    store = make(term=61.703)
    await ask_all(store, "A", "one", "two")
    assert await waits_for(store, "A", "two", turn, seconds=90) == 61_703


async def test_those_behind_are_no_poll_late_either(make, turn):
    """If the head of the queue is silent, the second has asked when the term ended."""
    store = make(term=61.703, claim_window=1)
    await ask_all(store, "A", "one", "two", "three")
    assert await waits_for(store, "A", "three", turn, seconds=90) <= 61_703 + 10


# Releasing and renewing -------------------------------------------------------------------------


async def test_a_renewal_never_shortens(make, turn):
    """Neither a clock that went back nor a shorter term ends a renewed lease earlier."""
    store = make(renewable=True)
    lease = await store.ask("A", "one")
    turn.forward(-2)
    assert (await store.renew("A", "one", lease.fence)).expires_ms == lease.expires_ms
    shorter = make(renewable=True, term=5)
    assert (await shorter.renew("A", "one", lease.fence)).expires_ms == lease.expires_ms


async def test_numbers_grow_when_another_server_becomes_the_store(redis, make, turn):
    """After a failover that lost the last number, the replica still knows it."""
    store = make()
    last = await store.ask("A", "one")
    await redis.hdel(lease_key(store._name, "state"), "last")
    turn.forward(-0.2)
    assert (await store.ask("B", "one")).fence > last.fence


# When to ask again, and the expected wait -------------------------------------------------------


async def refreshes(store, resource, holder):
    return {(await store.ask(resource, holder)).refresh_ms for _ in range(30)}


async def test_the_head_asks_every_two_seconds_and_when_the_term_ends(make, turn):
    store = make()
    await ask_all(store, "A", "one", "two")
    assert await refreshes(store, "A", "two") == {2000}
    turn.forward(58.5)
    assert await refreshes(store, "A", "two") == {1500}
    turn.forward(1.499)
    assert await refreshes(store, "A", "two") == {1}


async def test_those_far_back_ask_after_a_tenth_of_their_wait(make):
    """The pause is 1 to 30 s, plus up to a quarter at random."""
    store = make(term=10)
    await ask_all(store, "A", *(f"h{n}" for n in range(60)))
    for holder, low, high in [("h7", 7000, 8750), ("h50", 24_000, 30_000)]:
        told = await refreshes(store, "A", holder)
        assert low <= min(told) < max(told) <= high
    store = make(term=1)
    await ask_all(store, "B", *(f"h{n}" for n in range(9)))
    assert min(await refreshes(store, "B", "h8")) >= 1000


async def test_the_first_few_look_when_the_term_ends(make, turn):
    """The first five ask a few milliseconds after one another; the others do not."""
    store = make()
    await ask_all(store, "A", *(f"h{n}" for n in range(8)))
    turn.forward(59)
    told = [max(await refreshes(store, "A", f"h{n}")) for n in range(1, 8)]
    assert told[:5] == [1000, 1005, 1010, 1015, 1020]
    assert min(told[5:]) > 10_000


@pytest.mark.parametrize(("timeout", "told_ms"), [(60, 7000), (10, 5000)])
async def test_the_template_may_fix_it(make, turn, timeout, told_ms):
    """A fixed interval is cut so that no holder is taken for gone."""
    store = make(heartbeat_interval=7, heartbeat_timeout=timeout)
    await ask_all(store, "A", *(f"h{n}" for n in range(9)))
    assert await refreshes(store, "A", "h1") == await refreshes(store, "A", "h8") == {told_ms}
    turn.forward(57)
    assert await refreshes(store, "A", "h1") == {3000}


async def test_each_of_the_next_waits_for_a_slot_of_its_own(make, turn):
    """The expected waits go by the ends of the slots; the next lap adds a term."""
    store = make(capacity=2)
    await store.ask("A", "a")
    turn.forward(10)
    await store.ask("A", "b")
    turn.forward(10)
    waits = [reply.wait_ms for reply in await ask_all(store, "A", *"cdef")]
    assert waits == [40_000, 50_000, 100_000, 110_000]


async def test_the_wait_goes_by_how_long_leases_were_held(make, turn):
    """The expected wait goes by the measured lengths, and by the term before any lease ended."""
    store = make()
    for seconds in (10, 20, 30):
        await store.ask("A", "one")
        turn.forward(seconds)
        await store.release("A", "one")
    replies = await ask_all(store, "A", "one", *"abc")
    assert [reply.wait_ms for reply in replies[1:]] == [60_000, 80_000, 100_000]
    turn.forward(60)
    assert (await ask_all(store, "A", *"cba"))[0].wait_ms == 60_000 + 30_000
    waits = [reply.wait_ms for reply in await ask_all(store, "B", *"abc")]
    assert waits == [None, 60_000, 90_000]


async def test_whose_turn_it_is_counts_as_one_who_will_hold_it(make, turn):
    """A turn counts as a lease to come, not as a slot that is free soon."""
    store = make()
    await ask_all(store, "A", *"abc")
    turn.forward(1)
    await store.release("A", "a")
    waits = await store.ask("A", "c")
    assert (waits.ahead, waits.wait_ms) == (0, 1000 + 1000)  # due in a second; held for one


# What happens by itself -------------------------------------------------------------------------


async def test_one_script_does_so_much_and_leaves_the_rest(redis, make, turn):
    """One script drops a bounded number of 400 silent places; the next ones drop the rest."""
    store = make(heartbeat_timeout=3600, heartbeat_interval=2)
    await ask_all(store, "A", *(f"h{n}" for n in range(401)))
    turn.forward(59)
    await store.ask("A", "alive")
    turn.forward(1)
    line = resource_key(store._name, "A", "line")
    assert await outcomes(store, "A", "new") == [WAITING]
    assert await redis.zcard(line) == 400 - 150 + 2
    assert await store.sweep() == (1, True)
    assert await redis.zcard(line) == 400 - 300 + 2
    waits = await store.ask("A", "alive")
    assert (waits.outcome, waits.refresh_ms) == (GRANTED, 0)
    assert await store.sweep() == (0, False)


async def test_a_sweep_takes_no_more_than_it_is_told(make, turn):
    store = make()
    await asyncio.gather(*(store.ask(f"r{n}", "one") for n in range(130)))
    turn.forward(60)
    assert [await store.sweep(60) for _ in range(3)] == [(60, True), (60, True), (10, False)]


# A store that was emptied -----------------------------------------------------------------------


async def test_a_recovery_is_not_begun_again(redis, make, turn):
    """A replica with a longer term, which knows of before, does not start a recovery again."""
    store = make()
    await store.ask("A", "one")
    known = turn.now_ms
    turn.forward(5)
    await lose(redis, store)
    assert (await store.ask("B", "two")).outcome is WAITING
    turn.forward(600)
    later = make(term=86_400)
    later.record_existence(known)
    assert (await later.ask("C", "three")).outcome is GRANTED


async def test_a_replica_may_be_told_that_the_template_was_there(make, turn):
    """A signed cookie from before shows that Redis was emptied."""
    store = make()
    store.record_existence(turn.now_ms - 1)
    assert (await store.ask("A", "one")).is_recovering


async def test_only_a_number_of_before_brings_a_lease_back(redis, make, turn):
    """A fencing number from after, or of a term that is over, restores nothing."""
    store = make()
    await store.ask("A", "one")
    turn.forward(100)
    await lose(redis, store)
    born = turn.now_ms
    for fence in (born * 1000, born * 1000 + 1, (born - 60_000) * 1000, 0, -1):
        assert (await store.renew("A", "one", fence)).outcome is STALE
    assert (await store.renew("A", "one", (born - 60_000) * 1000 + 1000)).outcome is GRANTED


async def test_newcomers_are_behind_a_place_that_came_back(redis, make, turn):
    """Newcomers are behind a restored place even if the clock went back."""
    store = make()
    _, waits = await ask_all(store, "A", "one", "two")
    turn.forward(0.5)
    await lose(redis, store)
    await store.ask("A", "two", order=waits.order + 499_000)
    turn.forward(-1)
    blank = make()
    assert (await blank.ask("A", "three")).ahead == 1
    assert (await store.ask("A", "two")).ahead == 0


async def test_an_order_that_is_not_of_before_is_not_believed(redis, make, turn):
    """An order from after, or of long before, restores no place."""
    store = make()
    await ask_all(store, "A", *"abc")
    turn.forward(1)
    await lose(redis, store)
    born = turn.now_ms * 1000
    await ask_all(store, "A", "x")
    for order in (born, born + 1, 0, -5):
        assert (await store.ask("A", "d", order=order, may_join=False)).outcome is GONE
    assert (await store.ask("A", "d", order=born)).ahead == 1
    turn.forward(60)
    assert (await store.ask("A", "e", order=born - 1, may_join=False)).outcome is GONE


async def test_whoever_was_told_to_ask_late_finds_the_place(redis, make, turn):
    """Places can be restored for longer than a short term: polls far back are rarer."""
    store = make(term=2, claim_window=10)
    _, *line = await ask_all(store, "A", *(f"h{n}" for n in range(200)))
    turn.forward(0.5)
    await lose(redis, store)
    await store.ask("A", "h150", order=line[149].order)
    turn.forward(39.999)
    assert await outcomes(store, "A", "new") == [GRANTED]
    back = await store.ask("A", "h160", order=line[159].order, may_join=False)
    assert (back.outcome, back.order) == (WAITING, line[159].order)
    turn.forward(0.001)
    late = await store.ask("A", "h170", order=line[169].order, may_join=False)
    assert late.outcome is GONE


# Looking ----------------------------------------------------------------------------------------


async def test_what_is_over_is_not_listed(make, turn):
    """Resources whose leases are over are left out, and the page is full all the same."""
    store = make()
    await asyncio.gather(*(store.ask(f"a{n}", "one") for n in range(7)))
    turn.forward(1)
    await store.ask("b", "one")
    turn.forward(59)
    assert [resource.name for resource in await store.list(limit=1)] == ["b"]
    assert await store.count() == 8
    await store.sweep()
    assert await store.count() == 1


async def test_a_look_changes_nothing(redis, make, turn):
    store = make()
    await ask_all(store, "A", "one", "two")
    turn.forward(60)
    before = await contents(redis, store)
    await store.list()
    await store.count()
    assert await contents(redis, store) == before
    assert "line:A" in before


# The store --------------------------------------------------------------------------------------


async def test_time_is_the_stores(redis, make):
    """Fencing numbers are µs of Redis' clock."""
    store = make()
    store._now_ms = store._scripts._now = None
    first = await store.ask("A", "one")
    seconds, microseconds = await redis.time()
    assert first.fence // 1000 == first.now_ms == first.started_ms
    assert first.fence <= seconds * 1_000_000 + microseconds
    assert abs(store._clock.now_ms() - first.now_ms) < 60_000


async def test_a_store_that_was_frozen_gives_nothing_to_who_has_gone(make, turn):
    """A call that lay in a frozen Redis grants nothing to a client that has given up; a waiting
    holder keeps the place."""
    store = make()
    await ask_all(store, "A", "one", "two")
    asked_ms = turn.now_ms
    waits_ms = []

    def time_in_ms(ms):
        waits_ms.append(ms)
        return asked_ms + 5000 + MAX_LAG_MS

    store._compute_deadline_ms = time_in_ms
    turn.forward(5.501)
    assert await outcomes(store, "A", "one", "two", "three") == [GRANTED, WAITING, GONE]
    assert await outcomes(store, "B", "one") == [GONE]
    assert 5000 + MAX_LAG_MS in waits_ms


async def test_of_a_batch_nobody_is_given_a_lease_whose_client_has_gone(make, turn):
    """A call's deadline counts from its own start, not from when its batch was sent."""
    store = make()
    await store.ask("A", "one")
    gate, run = asyncio.Event(), store._run

    async def held(*args, **how):
        await gate.wait()
        return await run(*args, **how)

    store._run = held
    asked = []
    for resource in ("A", "B", "C"):  # the first batch, and two in the next
        asked.append(asyncio.create_task(store.ask(resource, "two")))
        for _ in range(10):
            await asyncio.sleep(0)
        turn.forward(2)
    gate.set()
    assert [(await task).outcome for task in asked] == [GONE, GONE, GRANTED]


async def test_a_full_store(redis_socket, make, turn):
    """A full Redis refuses whatever takes room, and still answers looks and releases."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    store = make(client=redis, renewable=True)
    lease, _ = await ask_all(store, "A", "one", "two")
    await store.ask("B", "three")
    turn.forward(5)
    before = await contents(redis, store)
    await redis.config_set("maxmemory", 1)
    try:
        for call in (
            store.ask("C", "four"),
            store.ask("A", "four"),
            store.renew("A", "one", lease.fence),
        ):
            with pytest.raises(StoreError, match="maxmemory"):
                await call
            store._scripts.breaker.record_success()
        assert await contents(redis, store) == before
        assert (await store.ask("A", "one")).fence == lease.fence
        assert len(await store.list()) == 2
        assert (await store.release("A", "one", lease.fence)).outcome is GRANTED
        assert (await store.release("A", "two")).outcome is GRANTED
        turn.forward(60)
        assert await store.sweep() == (1, False)
        assert await store.count() == 0
    finally:
        await redis.config_set("maxmemory", 0)
        await close(redis)


async def test_many_racers_over_several_replicas_are_as_many_as_the_capacity(make):
    """200 calls of 100 holders over four replicas: exactly 7 leases."""
    replicas = [make(capacity=7) for _ in range(4)]
    replies = await asyncio.gather(*(replicas[n % 4].ask("A", f"h{n % 100}") for n in range(200)))
    granted = [reply.fence for reply in replies if reply.outcome is GRANTED]
    assert (len(granted), len(set(granted))) == (14, 7)
    assert {reply.outcome for reply in replies} == {GRANTED, WAITING}


async def test_calls_go_together(make):
    """Calls about 100 resources share two script calls."""
    sizes = []
    store = make()
    store._scripts.observer = Observer(
        batch=lambda name, verb, size, _: sizes.append((name, verb, size))
    )
    await asyncio.gather(*(store.ask(f"r{n}", "one") for n in range(100)))
    assert sizes == [(store._name, "ask", 64), (store._name, "ask", 36)]


async def test_every_call_says_that_the_store_is_away(make):
    """Every method raises StoreError with its name, and counts the error."""
    nobody, errors = connect(f"redis://127.0.0.1:{free_port()}", timeout_s=1), []
    store = make(client=nobody, observer=Observer(error=lambda _, what: errors.append(what)))
    for name, call in {
        "ask": lambda: store.ask("A", "one"),
        "renew": lambda: store.renew("A", "one", 1),
        "release": lambda: store.release("A", "one"),
        "due": store.sweep,
        "list": store.list,
        "count": store.count,
    }.items():
        store._scripts.breaker.record_success()
        with pytest.raises(StoreError, match=f"^{name}: "):
            await call()
    assert errors == ["ask", "renew", "release", "due", "list", "count"]
    await close(nobody)
