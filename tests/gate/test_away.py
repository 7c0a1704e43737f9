"""The endpoints while Redis is unavailable, and while it recovers."""

from sidecar.kit.clock import iso
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.redis_keys import room_keys
from tests.support.replica import ADMIN_TOKEN, break_redis, cookie_of


async def empty(site):
    await site.room.store._redis.delete(*room_keys(site.room.name))


def let_in_alone(site):
    labels = {"room": site.room.name}
    return site.metrics.registry.get_sample_value("waitroom_let_in_alone_total", labels) is not None


async def test_newcomers_come_in_as_far_as_there_was_room(replica):
    """One of two slots was free: one newcomer enters, and later has an ordinary session."""
    site = await replica(total_active_users=2)
    inside = cookie_of(await site.check())
    await site.room.refresh()
    await site.room.refresh()  # a second later: nobody else came
    back = await break_redis(site)
    first, second = await site.check(), await site.check()
    assert (first.status, second.status) == (204, 401)
    assert let_in_alone(site)
    assert (await site.check(inside)).status == 204
    back()
    assert (await site.room.refresh()).active == 1
    assert (await site.check(cookie_of(first))).status == 204
    shot = await site.room.refresh()
    assert (shot.active, shot.waiting) == (2, 0)


async def test_nobody_takes_the_slot_before_it_is_claimed(replica):
    """What the replica promised is waited for."""
    site = await replica(total_active_users=1, recovery_window=20)
    await site.room.refresh()
    back = await break_redis(site)
    let_in = await site.check()
    assert let_in.status == 204
    back()
    await site.room.refresh()
    assert (await site.check()).status == 401
    site.turn.forward(19)
    assert (await site.check(cookie_of(let_in))).status == 204
    assert (await site.room.refresh()).active == 1


async def test_a_pass_lasts_as_long_as_the_store_is_away(replica):
    """A visitor who keeps coming passes for hours; one who stops does not."""
    site = await replica(session_duration=60)
    gone = cookie = cookie_of(await site.check())
    await break_redis(site)
    for _ in range(20):
        site.turn.forward(31)
        reply = await site.check(cookie)
        assert reply.status == 204
        cookie = cookie_of(reply)
    assert (await site.check(gone)).status == 401


async def test_a_pass_kept_alive_meanwhile_is_a_session_again(replica):
    """A session that ended in Redis during the outage comes back with its slot."""
    site = await replica(session_duration=60)
    cookie = cookie_of(await site.check())
    waits = cookie_of(await site.check())
    await site.room.refresh()
    back = await break_redis(site)
    for _ in range(3):
        site.turn.forward(31)
        cookie = cookie_of(await site.check(cookie))
    back()
    await site.room.refresh()
    status = await (await site.status(waits)).json()
    assert (status["state"], status["paused"], status["position"]) == ("waiting", True, None)
    assert (await site.check(cookie)).status == 204
    assert (await site.room.refresh()).active == 1


async def test_redis_hears_of_passes_at_once_and_not_when_their_visitors_are_back(replica):
    """So nobody is called into their slots, and the queue goes on after some seconds."""
    site = await replica(session_duration=30)
    inside = cookie_of(await site.check())
    waiting = cookie_of(await site.check())
    await site.room.refresh()
    back = await break_redis(site)
    site.turn.forward(20)
    inside = cookie_of(await site.check(inside))
    site.turn.forward(22)
    assert (await site.check(inside)).status == 204
    back()
    shot = await site.room.refresh()
    assert shot.recovery_stage == 2
    assert (await site.room.refresh()).active == 1
    site.turn.forward(5)
    assert (await site.room.refresh()).recovery_stage < 2
    assert (await site.check(waiting)).status == 401
    assert (await site.check(inside)).status == 204


async def test_a_paused_visitor_is_led_to_another_replica(replica):
    """A paused visitor gets the same ticket signed anew, by which nginx picks another replica."""
    site = await replica(total_active_users=0)
    ticket = cookie_of(await site.check())
    site.turn.forward(1)
    assert "Set-Cookie" not in (await site.status(ticket)).headers
    await break_redis(site)
    reply = await site.status(ticket)
    status = await reply.json()
    assert (status["state"], status["paused"]) == ("waiting", True)
    assert status["joined_at"]
    again = cookie_of(reply)
    assert again != ticket
    assert again.partition(".")[0] == ticket.partition(".")[0]


async def test_a_pass_given_before_the_store_was_emptied_is_told_to_it_at_once(replica):
    """The pass's next request restores the session, even before its renewal is due."""
    site = await replica(total_active_users=2, recovery_window=20)
    inside = cookie_of(await site.check())
    await site.room.refresh()
    await empty(site)
    site.turn.forward(1)
    shot = await site.room.refresh()
    assert (shot.active, shot.recovery_stage) == (0, 2)
    listed = await site.ops.get("/admin/rooms", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    assert (await listed.json())["rooms"][0]["recovers_until"] == iso(shot.born_ms + 20_000)
    reply = await site.check(inside)
    assert (reply.status, "Set-Cookie" in reply.headers) == (204, True)
    assert (await site.room.refresh()).active == 1


async def test_positions_are_not_told_before_all_are_back(replica):
    """Neither the status nor the page in place shows a position while places come back."""
    site = await replica(total_active_users=0, recovery_window=20)
    waits = cookie_of(await site.check())
    await site.room.refresh()
    await empty(site)
    for seconds, paused in [(1, True), (20, None)]:
        site.turn.forward(seconds)
        status = await (await site.status(waits)).json()
        assert (status["position"], status["ahead"], status["wait_seconds"]) == (None, None, None)
        assert status.get("paused") is paused
        assert "X-Waitroom-Position" not in (await site.check(waits)).headers
    site.turn.forward(60)
    assert (await (await site.status(waits)).json())["position"] == 1


async def test_whoever_was_admitted_above_the_cap_stays(replica):
    """Newcomers and those from the queue: they were thrown back into it in mid-visit."""
    site = await replica(total_active_users=1, on_store_failure="admit", recovery_window=0)
    inside = [cookie_of(await site.check())]
    waits = cookie_of(await site.check())
    await site.room.refresh()
    back = await break_redis(site)
    inside += [cookie_of(await site.check()) for _ in range(3)]
    inside.append(cookie_of(await site.check(waits)))
    back()
    await site.room.refresh()
    for _ in range(3):
        site.turn.forward(1)
        replies = [await site.check(cookie) for cookie in inside]
        assert [reply.status for reply in replies] == [204] * 5
        inside = [
            cookie_of(reply) if "Set-Cookie" in reply.headers else cookie
            for cookie, reply in zip(inside, replies, strict=True)
        ]
    shot = await site.room.refresh()
    assert (shot.active, shot.waiting) == (5, 0)
    site.metrics.of(RoomMetrics).stays.update(site.room.name, shot.counters)
    labels = {"room": site.room.name}
    assert site.metrics.registry.get_sample_value("waitroom_over_cap_total", labels) == 4
    assert (await site.check()).status == 401


async def test_one_replica_cut_off_from_redis(replica):
    """A replica that is cut off exceeds the cap by what it admits alone; nobody is sent out."""
    site = await replica(total_active_users=10, session_duration=60, recovery_window=0)
    other = await replica(beside=site)
    inside = [cookie_of(await site.check()) for _ in range(6)]
    for _ in range(2):
        await site.room.refresh()
        await other.room.refresh()
    back = await break_redis(other)
    alone = [cookie_of(reply) for _ in range(9) if (reply := await other.check()).status == 204]
    assert len(alone) == 2  # half of the four slots that were free
    inside += [cookie_of(await site.check()) for _ in range(4)]
    assert (await site.check()).status == 401
    for seconds in range(90):  # two of them meet only the one that is cut off
        site.turn.forward(1)
        for number, cookie in enumerate(inside):
            reply = await (other if number < 2 or seconds % 2 else site).check(cookie)
            assert reply.status == 204
            inside[number] = cookie_of(reply) if "Set-Cookie" in reply.headers else cookie
        for number, cookie in enumerate(alone):
            reply = await other.check(cookie)
            assert reply.status == 204
            alone[number] = cookie_of(reply) if "Set-Cookie" in reply.headers else cookie
        await site.room.refresh()
    taken = [cookie_of(await site.check()) for _ in range(2)]  # the slots of those two
    assert (await site.room.refresh()).active == 10
    back()
    await other.room.refresh()
    for cookie in (*inside, *alone, *taken):
        assert (await site.check(cookie)).status == 204
    shot = await site.room.refresh()
    assert (shot.active, shot.waiting) == (14, 0)
    assert shot.counters["over_cap"] == 4
    assert (await site.check()).status == 401
