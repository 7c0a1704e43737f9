"""One key of a room is gone beside the others, as where a Redis evicts.

The model-based test deletes any at any step.
"""

import pytest
import redis
from structlog.testing import capture_logs

from sidecar.rooms.redis_keys import room_key
from tests.rooms.operator_calls import ask, told
from tests.support.replica import cookie_of


@pytest.fixture
def lose(redis_socket):
    def delete(site, name):
        with redis.Redis(unix_socket_path=str(redis_socket)) as store:
            assert store.delete(room_key(site.room.name, name)) == 1

    return delete


async def test_what_an_operator_set_comes_back(replica, lose):
    """The replica writes the settings again, and until then nobody is admitted by the file's
    settings."""
    site = await replica(total_active_users=5)
    await ask(site, "PATCH", body={"queue_all": True, "message": "Back at 9"})
    assert (await site.check()).status == 401
    site.turn.forward(5)
    await site.room.refresh()
    lose(site, "config")
    assert (await site.check()).status == 401
    site.turn.forward(1)
    with capture_logs() as logs:
        await site.room.refresh()
    assert logs[0]["event"] == "store_emptied"
    assert "noeviction" in logs[0]["hint"]
    await site.room.refresh()
    assert (site.room.settings.queue_all, site.room.settings.message) == (True, "Back at 9")
    site.turn.forward(600)
    assert (await site.check()).status == 401


@pytest.mark.parametrize("name", ["active", "admitted", "waiting", "due"])
async def test_the_cap_holds(replica, lose, name):
    """Active visitors stay, and nobody else is admitted."""
    site = await replica(total_active_users=2, session_duration=30, recovery_window=20)
    inside = [cookie_of(await site.check()) for _ in range(2)]
    line = [cookie_of(await site.check()) for _ in range(3)]
    for cookie in line:
        await site.status(cookie)
    await site.room.refresh()
    site.turn.forward(10)  # passes are due for renewal
    lose(site, name)
    states = [(await (await site.status(cookie)).json())["state"] for cookie in line]
    assert states == ["waiting"] * 3
    assert [(await site.check(cookie)).status for cookie in inside] == [204] * 2
    site.turn.forward(11)
    snapshot = await site.room.refresh()
    assert (snapshot.active, snapshot.provisional, snapshot.waiting) == (2, 0, 3)


async def test_no_count_leaves_its_range(replica, lose):
    """Counts are valid also before the loss is detected."""
    site = await replica(total_active_users=2)
    for _ in range(2):
        await site.check()
    await site.room.refresh()
    lose(site, "active")
    for _ in range(2):
        room = await told(site)
        assert room["active"] >= 0
        assert room["provisional"] >= 0
        await site.room.refresh()
