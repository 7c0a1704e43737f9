"""Every kind of store that a URL can name."""

import asyncio
import subprocess

import pytest
from redis.asyncio import SSLConnection

from sidecar.kit.errors import InputError, StoreError
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.topology import POOL_SIZE
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.storage.products import open_room
from tests.support.processes import Process, free_port, wait_until


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
    try:
        return await open_room(redis).enter(new_visitor())
    finally:
        await close(redis)


@pytest.mark.parametrize("kind", ["plain", "tls"])
async def test_a_password_a_database_and_tls(server, kind):
    """A session is had over each; the certificate is checked against the one named."""
    assert (await enter(server[kind])).outcome is QueueOutcome.ADMITTED


@pytest.mark.parametrize("kind", ["stranger", "wrong"])
async def test_a_store_that_refuses_is_a_store_error(server, kind):
    """A certificate that nobody vouches for, a wrong password."""
    with pytest.raises(StoreError):
        await enter(server[kind])


LOGIN = "sentinel_username=s&sentinel_password=q%2F"


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_what_the_address_of_a_sentinel_store_says(scheme):
    """User and password are for the servers; the sentinels have their own, or none."""
    for query, shown in [("", (None, None)), (LOGIN, ("s", "q/"))]:
        redis = connect(f"{scheme}+sentinel://u:p%2Fw@a,b:1/main/3?{query}", timeout_s=0.6)
        pool = redis.connection_pool
        server = pool.make_connection()
        assert (server.username, server.password, server.db) == ("u", "p/w", 3)
        assert (pool.service_name, pool.max_connections) == ("main", POOL_SIZE)
        asked = [one.connection_pool.make_connection() for one in pool.sentinel_manager.sentinels]
        assert [(one.host, one.port) for one in asked] == [("a", 26379), ("b", 1)]
        assert {(one.username, one.password) for one in asked} == {shown}
        # Those that hang take less than a call has, together.
        assert sum(one.socket_timeout for one in asked) < 0.6
        assert all(one.retry.get_retries() == 0 for one in [server, *asked])
        assert {isinstance(one, SSLConnection) for one in [server, *asked]} == {scheme == "rediss"}
        await close(redis)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_what_the_address_of_a_cluster_says(scheme):
    redis = connect(f"{scheme}+cluster://u:p%2Fw@10.0.0.1,10.0.0.2:1", timeout_s=0.6)
    nodes = redis.nodes_manager.startup_nodes.values()
    assert [(node.host, node.port) for node in nodes] == [("10.0.0.1", 6379), ("10.0.0.2", 1)]
    for node in nodes:
        server = node.acquire_connection()
        assert (server.username, server.password, server.socket_timeout) == ("u", "p/w", 0.6)
        assert isinstance(server, SSLConnection) is (scheme == "rediss")
    assert redis.retry.get_retries() == 0
    await close(redis)


@pytest.mark.parametrize("kind", ["redis", "redis+sentinel", "redis+cluster"])
def test_an_option_that_nobody_knows_is_found_at_the_start(kind):
    with pytest.raises(InputError, match="colour"):
        connect(f"{kind}://a?colour=red", timeout_s=1)


@pytest.mark.parametrize(
    ("kind", "number"), [("redis", 1), ("redis+sentinel", 3), ("redis+cluster", 3)]
)
async def test_no_server_answers(kind, number):
    """The client raises an error of ours at once, not after a row of retries."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(number))
    with pytest.raises(StoreError):
        await asyncio.wait_for(enter(f"{kind}://{hosts}"), 1)
