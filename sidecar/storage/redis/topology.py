"""Stores of several servers, one of which may fail: Redis Sentinel and Redis Cluster.

The driver knows both. It is kept from what would make the store unavailable here: every call is
cut off from outside after `store_timeout`, so whatever the driver finds out by waiting
longer, or only when a call ends by an error of its own, it would never find out.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript

from sidecar.kit.setting_types import read_servers

#: Batches of a few names and verbs at a time; more would only queue up in Redis.
POOL_SIZE = 64
#: How much of its time a call may wait for a free connection.
POOL_WAIT = 0.5
#: The driver's own, and that of most installations.
SERVICE = "mymaster"


def common_options(timeout_s: float) -> dict[str, Any]:
    """What every connection to a server has."""
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        # A call that is repeated later is worth less to the client than an answer now.
        "retry": Retry(NoBackoff(), 0),
    }


def packed(kind: type[Any]) -> type[Any]:
    """A connection that has hiredis write its commands too, not only read the replies: a batch
    has hundreds of arguments, and the driver would take some microseconds for each."""
    return type(kind.__name__, (_Packed, kind), {})


class _Packed:
    if TYPE_CHECKING:
        _writer: Any
        health_check_interval: float

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        return [hiredis.pack_command((*name.split(), *rest))]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """At once, where nothing is in its way: the driver would make a task for each command, to
        bound the time. The caller, which waits for the reply, does that."""
        writer = self._writer
        if writer is not None and writer.transport.is_closing():
            # A write would be a TypeError of Python 3.12.3, or a RuntimeError of uvloop.
            raise exceptions.ConnectionError("the server has closed the connection")
        if writer is None or self.health_check_interval or writer.transport.get_write_buffer_size():
            await super().send_packed_command(command, check_health)  # type: ignore[misc] # the driver's connection
        else:
            writer.writelines(command)


class _Turns(asyncio.Semaphore):
    """As many calls at a time as there are connections; the others wait for their turn."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(POOL_SIZE)
        self._wait_s = wait_s

    async def acquire(self) -> Literal[True]:
        if not self.locked():
            return await super().acquire()
        try:
            async with asyncio.timeout(self._wait_s):
                return await super().acquire()
        except TimeoutError:
            raise exceptions.ConnectionError(f"all {POOL_SIZE} connections are in use") from None


class Single(Redis):
    """The driver's client of one server, for a third of the price of a call.

    It keeps the connections that it used, each for one call at a time, where the driver would hand
    them to its pool and back, with two locks, a timeout and a dozen things to measure. What fails
    goes back to the pool, closed.
    """

    def __init__(self, pool: ConnectionPool, *, wait_s: float) -> None:
        super().__init__(connection_pool=pool)
        self._idle: list[Any] = []
        self._turns = _Turns(wait_s)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with self._turns:
            return await self._execute(args, options)

    async def _execute(self, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        pool: Any = self.connection_pool
        connection = self._idle.pop() if self._idle else await pool.get_connection()
        try:
            if not connection.is_connected or await connection.can_read():
                await pool.ensure_connection(connection)  # it was closed meanwhile
            await connection.send_command(*args)
            reply = await self.parse_response(connection, args[0], **options)
        except exceptions.ResponseError:
            self._idle.append(connection)
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            await pool.release(connection)
            raise
        if connection.should_reconnect():  # the server is about to move
            await pool.release(connection)
        else:
            self._idle.append(connection)
        return reply


def sentinel_store(url: str, timeout_s: float) -> Redis:
    """redis+sentinel://[user:password@]host:26379,…/SERVICE[/DATABASE]

    User and password are the servers'. Sentinels mostly have none, and refuse a client that
    sends one; theirs are `?sentinel_username=` and `?sentinel_password=`.
    """
    servers, path = read_servers(url)
    options = _url_options(url)
    login = {
        name: options.pop(f"sentinel_{name}")
        for name in ("username", "password")
        if f"sentinel_{name}" in options
    }
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    # All of them can be asked within one call: one that hangs must not use up its time.
    each_s = timeout_s / (len(servers) + 1)
    sentinel_options = {**common_options(each_s), **tls, **login}
    sentinel = _Sentinels(servers, sentinel_kwargs=sentinel_options)
    pool = _SentinelPool(
        unquote(path[0]) if path else SERVICE,
        sentinel,
        **{
            **common_options(timeout_s),
            "connection_class": packed(
                SentinelManagedSSLConnection if tls else SentinelManagedConnection
            ),
            "max_connections": POOL_SIZE,
            "timeout": POOL_WAIT * timeout_s,
            "db": int(path[1]) if path[1:] else 0,
            **options,
        },
    )  # type: ignore[no-untyped-call]
    return Redis.from_pool(pool)


class _Sentinels(Sentinel):
    """Asked by one connection after the other. The driver moves the sentinel that answered to
    the front of its list; when two do so at a time, it forgets another for good."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._turn = asyncio.Lock()

    async def discover_master(self, service_name: str) -> Any:
        async with self._turn:
            return await super().discover_master(service_name)


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the primary of the moment, so many at most."""

    async def release(self, connection: Any) -> None:
        """One that was in use while the primary moved would go on asking the old one."""
        if (connection.host, connection.port) != self.master_address:
            connection.mark_for_reconnect()
        await super().release(connection)

    async def aclose(self) -> None:
        """The driver leaves the connections to the sentinels open."""
        await super().aclose()
        await self.sentinel_manager.aclose()


def cluster_store(url: str, timeout_s: float) -> "Cluster":
    """redis+cluster://[user:password@]host:6379,…: some of its servers; it names the others."""
    servers, _ = read_servers(url)
    nodes = [ClusterNode(host, port) for host, port in servers]
    options = {**common_options(timeout_s), **_url_options(url)}
    return Cluster(startup_nodes=nodes, wait_s=POOL_WAIT * timeout_s, **options)


class Cluster(RedisCluster):
    """The driver's client of a cluster, and what it lacks.

    It draws a new map of the cluster before the next call when a call ended by an error. Here
    a call that is cut off counts too: a server that hangs gives no error. And the map is
    drawn beside the calls, which go on by the old one: a server that is gone takes time to
    find out, and calls to the others must not wait for that.
    """

    def __init__(self, *, wait_s: float, **options: Any) -> None:
        # Connections that are being replaced count too; the turns below are the bound.
        options.setdefault("max_connections", 2 * POOL_SIZE)
        # A slot that moved is noted for itself. The driver would close every connection at
        # each fifth.
        super().__init__(reinitialize_steps=0, **options)
        kind = packed(self.connection_kwargs["connection_class"])
        self.connection_kwargs["connection_class"] = kind
        self._named = dict(self.nodes_manager.startup_nodes)
        for node in self._named.values():
            node.connection_class = kind
        self._turns = _Turns(wait_s)
        self._search: asyncio.Task[None] | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            async with self._turns:
                return await super().execute_command(*args, **options)
        except exceptions.RedisClusterException as error:  # which is no RedisError
            self._look_again()
            raise exceptions.RedisError(str(error)) from error
        except (
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.ClusterError,
            asyncio.CancelledError,
        ):
            self._look_again()
            raise

    def _look_again(self) -> None:
        if self.nodes_manager.default_node is not None:  # there is a map to go by
            self._initialize = False
            self._look()

    async def initialize(self, *_: Any, **__: Any) -> "Cluster":
        """The first map. A caller that gives up waiting for it leaves the search to the others."""
        if self._initialize:
            await asyncio.shield(self._look())
        return self

    def _look(self) -> asyncio.Task[None]:
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._find())
            self._search.add_done_callback(_take_note)
        return self._search

    async def _find(self) -> None:
        # All servers may have new addresses, and only the names of the URL be left to go by.
        nodes = self.nodes_manager.startup_nodes
        nodes.update({name: node for name, node in self._named.items() if name not in nodes})
        if self._initialize:
            await super().initialize()
        else:
            await self.nodes_manager.initialize()

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """A new server can be asked for a slot that moves before it is on any map."""
        node = super().get_node(host, port, node_name)
        if node is None and node_name:
            new_host, _, new_port = node_name.rpartition(":")
            node = ClusterNode(new_host, int(new_port), "primary", **self.connection_kwargs)
            self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node.name: node})
        return node

    async def _determine_slot(self, command: str, *args: Any) -> int:
        # Of EVALSHA the driver knows where the keys are. Of FCALL it would ask a server each time.
        return await super()._determine_slot("EVALSHA" if command == "FCALL" else command, *args)

    def register_script(self, script: Any) -> AsyncScript:  # type: ignore[override] # the driver's own does so too
        return _ClusterScript(self, script)

    async def shut(self) -> None:
        """Closes everything; `aclose` is also what the driver calls to begin anew."""
        if self._search is not None:
            self._search.cancel()
            await asyncio.wait([self._search])
        self._initialize = False  # else the driver thinks that it is closed already
        await super().aclose()


class _ClusterScript(AsyncScript):
    """A script that its server does not have goes there whole. The driver would load it into
    every primary, which fails while any of them is away."""

    async def __call__(
        self,
        keys: Sequence[Any] | None = None,
        args: Iterable[Any] | None = None,
        client: Any = None,
    ) -> Any:
        client = client or self.registered_client
        given = (len(keys or ()), *(keys or ()), *(args or ()))
        try:
            return await client.evalsha(self.sha, *given)
        except exceptions.NoScriptError:
            return await client.eval(self.script, *given)


def _take_note(search: asyncio.Task[None]) -> None:
    """Its error reaches the callers that wait; asyncio need not log it when there is none."""
    if not search.cancelled():
        search.exception()


def _url_options(url: str) -> dict[str, Any]:
    """User, password, TLS and the query, as the driver reads them from a URL of one server."""
    kind, _, rest = url.partition("://")
    address, _, query = rest.partition("?")
    login, at, _ = address.partition("/")[0].rpartition("@")
    one = parse_url(f"{kind.partition('+')[0]}://{login}{at}host/?{query}")
    options: dict[str, Any] = {**one}
    del options["host"]
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return options
