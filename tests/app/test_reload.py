"""A reload takes what can change while a replica runs, all or nothing, and names the rest."""

import asyncio
import os
import pty
import signal
import threading

import pytest
import structlog

from sidecar.app.reload import Reloader, find_changes
from sidecar.app.replica import make_rooms
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import InputError
from sidecar.kit.tasks import stop_workers
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import close, connect
from tests.support.processes import CLEAN, WAITROOM, wait_until
from tests.support.rooms import new_room_name

SECRETS = {"secret_keys": ["k" * 32], "admin_token": "a-token-that-is-long-enough"}
HOUR_MS = 3_600_000


class Site:
    """A replica's rooms `shop` and `tickets` on a real Redis, and what its reloads say."""

    def __init__(self, redis, url, file):
        self.url, self.said, self.names = url, [], {}
        self.file = self.make(file)
        self.rooms = make_rooms(self.file, redis, Metrics())
        self.reloader = Reloader(self.file, self.rooms, lambda: self.file, self.said.append)

    def make(self, rooms, **more):
        """Return settings. The rooms have names of their own, because tests share a Redis."""
        for name in rooms:
            self.names.setdefault(name, f"{name}-{new_room_name()}")
        named = {self.names[name]: room for name, room in rooms.items()}
        return Settings(**{"store": self.url, **SECRETS, **more, "rooms": named})

    def room(self, name):
        return self.rooms.get(self.names[name])

    async def reload(self, rooms, **more):
        """Reload with another file. Return what is in force: (cap, heartbeat_timeout) by room."""
        self.file = self.make(rooms, **more)
        with structlog.testing.capture_logs() as self.log:
            await self.reloader.reload()
        caps = {}
        for name in ("shop", "tickets"):
            settings = self.room(name).settings
            caps[name] = (settings.total_active_users, settings.heartbeat_timeout)
        return caps

    def plain(self, value):
        """Return the log's value with the names that the test gave the rooms."""
        for name, real in self.names.items():
            value = [each.replace(real, name) for each in value]
        return value


def two(shop, tickets, timeout_s=120):
    rooms = {"shop": shop, "tickets": tickets}
    return {
        name: {"total_active_users": cap, "heartbeat_timeout": timeout_s}
        for name, cap in rooms.items()
    }


@pytest.fixture
async def site(redis_socket):
    url = f"unix://{redis_socket}"
    redis = connect(url, timeout_s=5)
    site = Site(redis, url, two(3, 3))
    for room in site.rooms:
        await room.refresh()
    yield site
    await close(redis)


async def admitted(room, number):
    """Return how many of some newcomers get in."""
    states = [await room.check(None, may_join=True) for _ in range(number)]
    return sum(answer.state.name == "ADMITTED" for answer in states)


async def test_new_settings_are_in_force_at_once_in_scripts_too(site):
    """The next request already counts by the new cap, before any refresh."""
    shop = site.room("shop")
    assert await admitted(shop, 5) == 3
    assert (await site.reload(two(8, 4)))["shop"] == (8, 120)
    await shop.store.reset()
    assert await admitted(shop, 9) == 5
    (said,) = site.log
    taken = ["rooms.shop.total_active_users", "rooms.tickets.total_active_users"]
    assert (said["event"], site.plain(said["taken"])) == ("reloaded", taken)
    assert said["needs_restart"] == said["changed_at_run_time"] == []
    assert site.said == ["STATUS=Reloaded: 2 changed setting(s) taken"]


async def test_a_change_at_run_time_survives_and_is_named(site):
    """The file's new value counts as soon as the change is taken back."""
    shop = site.room("shop")
    await shop.store.configure({"total_active_users": 1})
    await shop.refresh()
    assert (await site.reload(two(8, 4)))["shop"] == (1, 120)
    assert site.plain(site.log[0]["changed_at_run_time"]) == ["rooms.shop.total_active_users"]
    assert await admitted(shop, 3) == 1
    await shop.store.configure({"total_active_users": None})
    assert (await shop.refresh()).overrides == {}
    assert shop.settings.total_active_users == 8


async def test_two_rooms_change_together_or_not_at_all(site):
    """A run-time change that the file does not allow keeps the other room's change back too."""
    await site.room("tickets").store.configure({"claim_window": 60})
    await site.room("tickets").refresh()
    assert await site.reload(two(8, 8, timeout_s=50)) == {"shop": (3, 120), "tickets": (3, 120)}
    (said,) = site.log
    problem = (
        "rooms.tickets.claim_window: must not be longer than heartbeat_timeout (50 s) (got 60)"
    )
    assert site.plain(said["problems"]) == [f"{problem}, as changed at run time"]
    assert said["log_level"] == "error"
    assert site.said[0].startswith("STATUS=Reload refused, the old settings stay: rooms.tickets-")
    # I expect the same file to be taken once the change is gone.
    await site.room("tickets").store.configure({"claim_window": None})
    await site.room("tickets").refresh()
    taken = await site.reload(two(8, 8, timeout_s=50))
    assert taken == {"shop": (8, 50), "tickets": (8, 50)}


async def test_a_file_with_a_mistake_changes_nothing(site):
    def fail():
        raise InputError(["rooms.shop.total_active_users: must be at least 0"])

    site.reloader.load = fail
    assert (await site.reload(two(8, 8)))["shop"] == (3, 120)
    assert [entry["event"] for entry in site.log] == ["reload_refused"]
    assert "must be at least 0" in site.said[0]


async def test_what_needs_a_restart_is_named_until_it_is_restarted(site):
    """Rooms that came and went too: the one that went goes on. No secret is logged."""
    other = {**SECRETS, "admin_token": "another-token-of-some-length"}
    rooms = {"shop": two(8, 0)["shop"], "new": {"total_active_users": 1}}
    limits = {"pay": {"algorithm": "fixed_window", "limit": 1, "window": 1}}
    for taken in (["rooms.shop.total_active_users"], []):
        await site.reload(rooms, edge_listen="127.0.0.1:1", limits=limits, **other)
        (said,) = site.log
        assert site.plain(said["taken"]) == taken
        left = ["admin_token", "edge_listen", "limits.pay", "rooms.new", "rooms.tickets"]
        assert site.plain(said["needs_restart"]) == left
        assert "another-token" not in f"{said}{site.said}"
    assert "; these need a restart: admin_token, edge_listen, " in site.said[-1]
    assert await admitted(site.room("tickets"), 1) == 1
    await site.reload(two(8, 3))
    assert site.log[0]["needs_restart"] == []


async def test_a_draw_that_has_begun_is_not_changed(site):
    """As a change at run time, which would make another draw than the published one."""
    now_ms = site.room("shop").clock.now_ms()
    sale = {"name": "sale", "opens_at": now_ms + HOUR_MS, "prequeue_from": now_ms - 1000}
    rooms = two(3, 3)
    rooms["shop"]["events"] = [sale]
    site.file = site.make(rooms)
    await site.reloader.reload()
    assert site.room("shop").settings.events[0].name == "sale"
    rooms["shop"] = {**rooms["shop"], "events": [{**sale, "prequeue_from": now_ms - 9000}]}
    await site.reload(rooms)
    assert "its pre-queue is on: leave prequeue_from alone" in site.log[0]["problems"][0]


async def test_a_signal_during_a_reload_reloads_again(site):
    """The file may have changed after the first reload had read it. Requests go on meanwhile."""
    begun, may_go, loads = threading.Event(), threading.Event(), []

    def load():
        file = site.file
        loads.append(file)
        begun.set()
        assert may_go.wait(20)
        return file

    site.reloader.load = load
    is_due = asyncio.Event()
    task = asyncio.create_task(site.reloader.run(is_due))
    site.file = site.make(two(5, 5))
    is_due.set()
    await asyncio.to_thread(begun.wait, 20)
    site.file = site.make(two(6, 6))
    is_due.set()
    assert await admitted(site.room("shop"), 4) == 3
    may_go.set()
    async with asyncio.timeout(20):
        while len(site.said) < 2:
            await asyncio.sleep(0.01)
    assert site.room("shop").settings.total_active_users == 6
    assert len(loads) == 2
    await stop_workers(task)


async def test_sub_queues_of_the_file_are_taken_while_people_wait(site):
    """Those who wait keep their places, and are called by the new settings."""
    shop = site.room("shop")
    assert await admitted(shop, 8) == 3
    rooms = two(3, 3)
    rooms["shop"]["lines"] = [{"name": "vip", "weight": 1}, {"name": "all", "weight": 1}]
    await site.reload(rooms)
    snapshot = await shop.refresh()
    assert (snapshot.active, snapshot.waiting, len(snapshot.lines)) == (3, 5, 2)
    assert shop.store._beat.limit == 64
    await site.reload(two(3, 3))
    assert (await shop.refresh()).waiting == 5
    assert shop.store._beat.limit == 128


def test_changes_are_named_by_setting():
    file = {**SECRETS, "rooms": {"a": {"total_active_users": 1}}, "tokens": {"app": "t" * 20}}
    old = Settings(**file)
    room = {"total_active_users": 1, "classes": {"vip": {"head_start": 5}}, "site_name": "A"}
    new = Settings(**{**file, "rooms": {"a": room}, "tokens": {"app": "u" * 20}})
    names = ["tokens.app", "rooms.a.classes", "rooms.a.site_name"]
    assert [*find_changes(old, new)] == names
    assert not [*find_changes(old, old)]
    assert RoomSettings.model_fields.keys() >= {name.split(".")[2] for name in names[1:]}


def test_a_terminal_that_is_closed_ends_the_replica(tmp_path, request):
    """SIGHUP reloads the settings, but a closed terminal sends it too."""
    file = tmp_path / "waitroom.toml"
    file.write_text(f"""edge_listen = "unix:{tmp_path}/edge"\nops_listen = "unix:{tmp_path}/ops"
secret_keys = ["{"k" * 32}"]\n[rooms.shop]\ntotal_active_users = 1\n""")
    log = tmp_path / "log"
    pid, terminal = pty.fork()
    if pid == 0:  # its log is a file
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        os.execve(WAITROOM, [WAITROOM, "serve", "--config", str(file)], CLEAN)
    request.addfinalizer(lambda: has_ended or os.kill(pid, signal.SIGKILL))
    has_ended = False

    def wait_for(words):
        wait_until(lambda: log.exists() and words in log.read_text(), words)

    wait_for('"serving"')
    os.kill(pid, signal.SIGHUP)
    wait_for('"reloaded"')
    os.close(terminal)
    wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, "the end of the replica")
    has_ended = True
