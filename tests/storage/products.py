"""Creates and uses the stores of rooms, and of a rate limit, a lease and a job target."""

from sidecar.jobs.model import QueueEntry
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import TargetStore
from sidecar.kit.clock import StoreClock
from sidecar.leases.model import LeaseOutcome
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.limits.model import Call
from sidecar.limits.store import LimitStore
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.visitors.tokens import new_visitor
from tests.support.limits import RedisTimeUs, make_limit
from tests.support.rooms import new_room_name

#: The folders of the Lua libraries of these products.
FOLDERS = ("rooms", "leases", "limits", "jobs")
Products = tuple[LimitStore, LeaseStore, TargetStore]


def open_room(
    redis, name="", *, timeout_s=5, convert=RoomSettings.get_script_settings, **settings
) -> RoomStore:
    """Create the store of a room whose cap is 1 unless `settings` say otherwise. `convert` returns
    the settings for scripts."""
    file, name = RoomSettings(**{"total_active_users": 1, **settings}), name or new_room_name()
    return RoomStore(redis, name, settings=convert(file), clock=StoreClock(), timeout_s=timeout_s)


def open_products(redis, name) -> Products:
    """Create the stores of a limit, a lease template and a target, all with the same name."""
    leases = LeaseSettings(term=60)
    return (
        make_limit(redis, RedisTimeUs(), "sliding_window", limit=50, name=name),
        LeaseStore(redis, name, settings=leases, clock=StoreClock(), timeout_s=5),
        TargetStore(redis, name, clock=StoreClock(), timeout_s=5),
    )


async def use_products(limit: LimitStore, lease: LeaseStore, target: TargetStore) -> None:
    """Use each store. Fail if a store does not know what an earlier call stored."""
    before = (await limit.peek("a")).remaining
    assert (await limit.acquire(Call("a"))).remaining == before - 1
    held = await lease.ask("printer", "one")
    assert held.outcome is LeaseOutcome.GRANTED
    assert (await lease.ask("printer", "two")).outcome is LeaseOutcome.WAITING
    assert (await lease.renew("printer", "one", held.fence)).fence == held.fence
    await target.mark_ready(0)
    for rate in ({}, {"rate": 1000, "window": 0.01}):
        settings = TargetSettings(url="http://target.example/", concurrency=100, **rate)
        job = new_visitor()
        order = await target.reserve(job, "", settings)
        [(line, place)] = await target.add([QueueEntry(job, order)], settings)
        assert (line.waiting, place.position) == (1, 1)
        # After a first rate, a window without calls comes first.
        while not (claims := (await target.claim(1, settings)).claims):
            pass
        [claim] = claims
        assert claim.id == job
        assert await target.renew([(job, claim.fence)]) == ["held"]
        line, [place] = await target.inspect([job], settings)
        assert (line.active > 0, place.where) == (True, "running")
