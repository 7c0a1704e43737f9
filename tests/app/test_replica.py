"""What a replica says of itself."""

import asyncio
import json

import pytest
from aiohttp import web

from sidecar.app.replica import make_rooms, remove_secrets, run_replica
from sidecar.http.metrics import Metrics
from sidecar.kit.tasks import run_worker, stop_workers
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import close, connect


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("memory://", "memory://"),
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://me:p%40ss@store:6380/2?ssl_cert_reqs=none", "rediss://store:6380/2"),
        ("unix://me:secret@/run/redis.sock?db=1&password=secret", "unix:///run/redis.sock"),
        (
            "redis+sentinel://u:secret@a:1,b:2/main/0?sentinel_password=secret@x",
            "redis+sentinel://a:1,b:2/main/0",
        ),
        ("redis+cluster://u:se@cret@a:1,b:2", "redis+cluster://a:1,b:2"),
    ],
)
def test_no_secret_is_logged(store, said):
    assert remove_secrets(store) == said
    assert "secret" not in said


async def test_the_scripts_know_which_rooms_calls_a_webhook_tells():
    """There the called have all of claim_window: nobody polls for who gets a mail."""
    hooks = {
        "mail": {"url": "https://a.example/", "events": ["called"], "rooms": ["shop"]},
        "team": {"url": "https://b.example/"},
    }
    rooms = {name: {"total_active_users": 1} for name in ("shop", "sale")}
    settings = Settings(secret_keys=["k" * 32], rooms=rooms, webhooks=hooks)
    redis = connect("memory://", timeout_s=1)
    metrics = Metrics()
    made = make_rooms(settings, redis, metrics)
    await close(redis)
    told = {room.name: json.loads(room.store._settings)["tells_called"] for room in made}
    assert told == {"shop": True, "sale": False}


async def test_a_worker_that_failed_is_started_again(capsys):
    """With its traceback in the log; and it ends when the replica stops."""
    runs = []

    async def worker():
        runs.append(len(runs))
        if len(runs) < 3:
            raise ZeroDivisionError("a mistake of ours")
        await asyncio.sleep(60)

    task = asyncio.create_task(run_worker("recorder", worker, pause_s=0))
    async with asyncio.timeout(20):
        while len(runs) < 3:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    said = "".join(capsys.readouterr())
    assert said.count("worker=recorder") == 2
    assert "a mistake of ours" in said


async def test_a_worker_that_misses_its_cancellation_is_stopped():
    """Something that it waited for took the first one for its own."""
    missed = []

    async def worker():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                missed.append(1)
                if len(missed) > 1:
                    raise

    task = asyncio.create_task(worker())
    await asyncio.sleep(0)
    await stop_workers(task, again_s=0.01)
    assert (task.cancelled(), len(missed)) == (True, 2)


async def test_workers_are_stopped_together():
    """All hear of it before any has ended, so a slow one keeps no other waiting."""
    told = []
    all_told = asyncio.Event()

    async def worker():
        try:
            await asyncio.sleep(60)
        finally:
            told.append(1)
            if len(told) == 3:
                all_told.set()
            await all_told.wait()

    tasks = [asyncio.create_task(worker()) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await stop_workers(*tasks, again_s=60)
    assert all(task.cancelled() for task in tasks)


async def test_a_room_knows_whether_a_target_has_its_name(tmp_path):
    """It decides whether the room believes grants that were signed without their kind."""
    settings = Settings.model_validate({
        "secret_keys": ["k" * 32],
        "jobs": f"sqlite:///{tmp_path}/jobs.db",
        "edge_listen": f"unix:{tmp_path}/edge.sock",
        "ops_listen": f"unix:{tmp_path}/ops.sock",
        "rooms": {name: {"total_active_users": 1} for name in ("shop", "images")},
        "targets": {"images": {"url": "https://images.example/"}},
    })  # fmt: skip
    async with run_replica(settings, []) as rooms:
        known = {room.name: room.grants.has_namesake() for room in rooms}
    assert known == {"shop": False, "images": True}


async def test_who_finds_it_ready_finds_the_edge(tmp_path, monkeypatch):
    """The ops listener, which says that it is ready, opens after the edge and closes after it."""
    settings = Settings.model_validate({
        "secret_keys": ["k" * 32],
        "edge_listen": f"unix:{tmp_path}/edge",
        "ops_listen": f"unix:{tmp_path}/ops",
        "rooms": {"shop": {"total_active_users": 1}},
    })  # fmt: skip
    seen = []

    def note(what):
        method = getattr(web.UnixSite, what)

        async def noted(self):
            seen.append(f"{what} {self.name.rpartition('/')[2].rstrip(':')}")
            await method(self)

        return noted

    for what in ("start", "stop"):
        monkeypatch.setattr(web.UnixSite, what, note(what))
    async with run_replica(settings, []):
        assert seen == ["start edge", "start ops"]
    assert seen[2:] == ["stop edge", "stop ops"]
