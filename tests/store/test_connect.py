"""Every kind of store that a URL can name."""

from __future__ import annotations

import subprocess

import pytest

from sidecar.base.clock import StoreClock
from sidecar.base.errors import StoreError
from sidecar.base.model import Outcome
from sidecar.base.settings import RoomSettings
from sidecar.base.tokens import new_visitor
from sidecar.store.connect import close, connect
from sidecar.store.rooms import RoomStore
from tests.conftest import new_room_name
from tests.processes import Process, free_port, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A redis-server that listens plainly, by TLS and on a socket, with a password."""
    folder = tmp_path_factory.mktemp("redis")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    plain, tls = free_port(), free_port()
    command = [
        "redis-server", "--save", "", "--dir", str(folder), "--bind", "127.0.0.1",
        "--requirepass", "pass/word", "--port", str(plain), "--tls-port", str(tls),
        "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no",
    ]  # fmt: skip
    with Process(command, log=folder / "log") as process:
        wait_until(lambda: "Ready to accept connections" in process.output, "redis-server")
        yield {
            "plain": f"redis://:pass%2Fword@127.0.0.1:{plain}/2",
            "tls": f"rediss://:pass%2Fword@localhost:{tls}/0?ssl_ca_certs={certificate}",
            "stranger": f"rediss://:pass%2Fword@localhost:{tls}/0",
            "wrong": f"redis://:wrong@127.0.0.1:{plain}/0",
        }


async def enter(url):
    redis = connect(url, timeout_s=5)
    settings = RoomSettings(total_active_users=1).for_scripts()
    store = RoomStore(
        redis, new_room_name(), settings=settings, clock=StoreClock(), timeout_s=5
    )  # fmt: skip
    try:
        return await store.enter(new_visitor())
    finally:
        await close(redis)


@pytest.mark.parametrize("kind", ["plain", "tls"])
async def test_a_password_a_database_and_tls(server, kind):
    """A session is had over each; the certificate is checked against the one named."""
    assert (await enter(server[kind])).outcome is Outcome.ADMITTED


@pytest.mark.parametrize("kind", ["stranger", "wrong"])
async def test_a_store_that_refuses_is_a_store_error(server, kind):
    """A certificate that nobody vouches for, a wrong password."""
    with pytest.raises(StoreError):
        await enter(server[kind])


async def test_nobody_answers():
    """An error at once, not after a row of retries."""
    with pytest.raises(StoreError):
        await enter(f"redis://127.0.0.1:{free_port()}/0")
