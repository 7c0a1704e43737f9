"""What a replica tells systemd, read from a real socket."""

import asyncio
import json
import os
import secrets
import select
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from sidecar.kit.systemd import notify_systemd, watchdog_s
from tests.support.processes import Process, wait_until
from tests.support.site import SECRET


class Manager:
    """Stands for systemd: listens where NOTIFY_SOCKET points."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(20)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def hear(self) -> str:
        return self._socket.recv(4096).decode()

    def hear_until(self, line: str) -> list[str]:
        heard = [self.hear()]
        while heard[-1] != line:
            heard.append(self.hear())
        return heard

    @property
    def has_news(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="wr-") as name:
        yield Path(name)


@pytest.fixture(params=["path", "abstract"])
def manager(request, folder):
    name = f"@waitroom-{secrets.token_hex(8)}"
    manager = Manager(name if request.param == "abstract" else str(folder / "notify"))
    yield manager
    manager.close()


async def test_it_says_ready_alive_and_stopping(manager):
    """In this order, at a path and at an abstract name, and signs of life go on."""
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000"}
    async with notify_systemd(environ) as tell:
        heard = [await asyncio.to_thread(manager.hear) for _ in range(4)]
        tell("STOPPING=1")
        heard += await asyncio.to_thread(manager.hear_until, "STOPPING=1")
        # A replica that takes its time to stop is alive.
        heard.append(await asyncio.to_thread(manager.hear))
    assert heard[0] == "READY=1"
    assert set(heard[1:-2]) == {"WATCHDOG=1"}
    assert heard[-2:] == ["STOPPING=1", "WATCHDOG=1"]


async def test_without_a_watchdog_it_says_no_more_than_ready(manager):
    """READY=1, and no sign of life that nobody waits for."""
    async with notify_systemd({"NOTIFY_SOCKET": manager.address}) as tell:
        await asyncio.sleep(0)
        tell("STOPPING=1")
    assert [manager.hear(), manager.hear()] == ["READY=1", "STOPPING=1"]
    assert not manager.has_news


async def test_without_a_socket_nothing_happens(monkeypatch):
    """Elsewhere than under systemd no socket is made at all."""
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a socket was made"))
    async with notify_systemd({"WATCHDOG_USEC": "2000"}) as tell:
        await asyncio.sleep(0)
        tell("STOPPING=1")


async def test_a_manager_that_is_gone_stops_nobody(folder):
    """A socket that is not there, or none that this speaks, is logged and survived."""
    for address in (str(folder / "gone"), "vsock:2:1234", "@" + "x" * 200):
        async with notify_systemd({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000"}) as tell:
            await asyncio.sleep(0)
            tell("STOPPING=1")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "15000000"}, 15),
        ({"WATCHDOG_USEC": "15000000", "WATCHDOG_PID": str(os.getpid())}, 15),
        # Another process of the unit is meant.
        ({"WATCHDOG_USEC": "15000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_how_long_the_watchdog_waits(environ, seconds):
    """Microseconds of the variable that is meant for this process; 0 for none."""
    assert watchdog_s(environ) == seconds


def test_a_replica_tells_what_it_does(manager, folder):
    """`waitroom serve` is READY=1 when its sockets answer, then alive, then STOPPING=1."""
    edge, ops = folder / "edge.sock", folder / "ops.sock"
    config = folder / "waitroom.toml"
    config.write_text(
        f"secret_keys = [{json.dumps(SECRET)}]\n"
        f'edge_listen = "unix:{edge}"\nops_listen = "unix:{ops}"\n'
        "[rooms.shop]\ntotal_active_users = 1\n"
    )
    command = [str(Path(sys.executable).parent / "waitroom"), "serve", "--config", str(config)]
    environ = {**os.environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
    with Process(command, log=folder / "log", env=environ) as replica:
        wait_until(lambda: manager.has_news or not replica.running, "a word of the replica's")
        assert replica.running, replica.output
        assert manager.hear() == "READY=1"
        for path in (edge, ops):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        assert manager.hear() == "WATCHDOG=1"
        assert replica.stop() == 0, replica.output
        heard = manager.hear_until("STOPPING=1")
    assert set(heard[:-1]) <= {"WATCHDOG=1"}
