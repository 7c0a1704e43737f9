"""Places and slots that nobody uses: of clients that keep no cookie."""

import pytest

from sidecar.visitors.model import QueueOutcome
from tests.support.replica import break_redis, cookie_of
from tests.support.visitors import admit_unconfirmed, beat_all, queue

ADMITTED, WAITING = QueueOutcome.ADMITTED, QueueOutcome.WAITING
SETTINGS = {"total_active_users": 10, "session_duration": 300, "claim_window": 30}


async def test_a_slot_that_nobody_uses_is_free_for_who_waits(make_room_store, turn):
    """The slot is free after claim_window, not after session_duration."""
    store = make_room_store(**SETTINGS)
    for _ in range(10):
        await admit_unconfirmed(store)
    tickets = await queue(store, 10)
    for _ in range(3):
        turn.forward(10)
        assert {said.outcome for said in await beat_all(store, tickets)} == {WAITING}
    turn.forward(1)
    assert {said.outcome for said in await beat_all(store, tickets)} == {ADMITTED}
    assert (await store.snapshot()).counters["expired_unused"] == 10


@pytest.mark.parametrize(("inside", "left"), [(9, 0), (8, 8)])
async def test_in_a_room_with_free_slots_it_lasts_as_long_as_its_pass(
    make_room_store, turn, inside, left
):
    """Slots are scarce from nine of ten on. Otherwise a visitor who reads one page for minutes
    stays."""
    store = make_room_store(**SETTINGS)
    passes = [await admit_unconfirmed(store) for _ in range(inside)]
    for _ in range(8):
        turn.forward(31)
        snapshot = await store.snapshot()
    assert snapshot.active == left
    turn.forward(30)
    if left:
        assert {(await store.renew(pass_)).outcome for pass_ in passes} == {ADMITTED}
        assert (await store.snapshot()).active == inside
    turn.forward(311)
    assert (await store.snapshot()).active == 0


async def test_a_replica_tells_the_store_of_the_first_cookie_that_is_shown(replica):
    """The replica reports it once without a new cookie, and then nginx may cache the verdict."""
    site = await replica(total_active_users=1, claim_window=10)
    first = cookie_of(await site.check())
    asked = 0
    renew = site.room.store.renew

    def counted(pass_):
        nonlocal asked
        asked += 1
        return renew(pass_)

    site.room.store.renew = counted
    for _ in range(3):
        shown = await site.check(first)
        assert (shown.status, "Set-Cookie" in shown.headers) == (204, False)
        assert "X-Accel-Expires" in shown.headers
    assert asked == 1
    await site.check()
    site.turn.forward(45)
    assert (await site.room.refresh()).active == 1


async def test_what_nginx_repeats_was_shown_by_nobody(replica):
    """An internal redirect asks twice about one request, with the cookie of the first answer."""
    site = await replica(total_active_users=1, claim_window=10)
    given = (await site.check()).headers["Set-Cookie"]
    for _ in range(2):
        again = await site.check(headers={"X-Waitroom-Given": given})
        assert (again.status, again.headers["Set-Cookie"]) == (204, given)
    await site.check()
    site.turn.forward(11)
    assert (await site.room.refresh()).active == 0


async def test_a_client_without_cookies_leaves_the_slot(replica):
    site = await replica(total_active_users=2, claim_window=10, session_duration=300)
    assert [(await site.check()).status for _ in range(3)] == [204, 204, 401]
    site.turn.forward(11)
    assert (await site.check()).status == 204


async def test_one_page_view_while_the_store_is_away_counts_as_used(replica):
    """The replica reports it when Redis is back."""
    site = await replica(total_active_users=1, claim_window=10, recovery_window=0)
    first = cookie_of(await site.check())
    back = await break_redis(site)
    assert (await site.check(first)).status == 204
    back()
    await site.room.refresh()
    site.turn.forward(60)
    await site.room.store.enter("n" * 22)
    assert (await site.room.refresh()).active == 1
    assert (await site.check(first)).status == 204
