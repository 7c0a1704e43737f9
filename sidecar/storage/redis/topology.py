"""Clients of one Redis server, of Redis Sentinel and of Redis Cluster.

They override parts of redis-py, for two reasons. Its client of one server takes three times the CPU
of ours for a call. And every call is cut off from outside after `store_timeout`, so what redis-py
finds out by waiting longer, or only when a call ends by an error of its own, it would never find
out.

Parts that redis-py does not document are looked for before they are used (_PARTS). Where one is
missing, redis-py is used as it is, with a warning.
"""

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import hiredis
import structlog
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, NodesManager, RedisCluster
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
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

#: Connections of one client. More calls at a time would only queue up in Redis.
POOL_SIZE = 64
#: The share of its time that a call may wait for a free connection.
POOL_WAIT = 0.5
#: The service name of redis-py and of most installations.
SERVICE = "mymaster"
#: What the clients below need of redis-py, by class: attributes, and coroutine functions.
_PARTS: dict[type[Any], tuple[str, str]] = {
    AbstractConnection: (
        "_writer health_check_interval is_connected mark_for_reconnect should_reconnect",
        "can_read send_command send_packed_command disconnect",
    ),
    ConnectionPool: ("", "get_connection ensure_connection release"),
    Redis: ("", "parse_response"),
    Sentinel: ("", "discover_master aclose"),
    RedisCluster: (
        "_initialize nodes_manager connection_kwargs get_node",
        "_determine_slot initialize execute_command aclose",
    ),
    NodesManager: ("startup_nodes default_node nodes_cache set_nodes", "initialize"),
    ClusterNode: ("connection_class", ""),
}

log = structlog.get_logger()


def has_parts(*classes: type[Any]) -> bool:
    """Return True if these classes of redis-py have the parts that are needed here; else log which
    are missing."""
    missing = [
        f"{cls.__name__}.{name}"
        for cls in classes
        for names, are_coroutines in zip(_PARTS[cls], (False, True), strict=True)
        for name in names.split()
        if not hasattr(cls, name)
        or (are_coroutines and not inspect.iscoroutinefunction(getattr(cls, name)))
    ]
    if missing:
        hint = "redis-py is used as it is: calls cost more CPU, a failover takes longer"
        log.warning("redis_py_has_changed", missing=missing, hint=hint)
    return not missing


def common_options(timeout_s: float) -> dict[str, Any]:
    """Return the options of every connection to a server."""
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        # A call that is repeated later is worth less to the client than an answer now.
        "retry": Retry(NoBackoff(), 0),
    }


def single_store(url: str, timeout_s: float) -> Redis:
    """Return a client of one server: redis://, rediss:// or unix://."""
    options = common_options(timeout_s)
    if url.startswith("unix://"):
        del options["socket_keepalive"]
    options["max_connections"] = POOL_SIZE
    wait_s = POOL_WAIT * timeout_s
    if not has_parts(AbstractConnection, ConnectionPool, Redis):
        return Redis.from_pool(BlockingConnectionPool.from_url(url, timeout=wait_s, **options))
    pool = ConnectionPool.from_url(url, **options)
    pool.connection_class = packed(pool.connection_class)
    return Single(pool, wait_s=wait_s)


def packed(kind: type[Any]) -> type[Any]:
    """Return a class of connections that hiredis writes too, and not only reads: a batch has
    hundreds of arguments, and redis-py takes some microseconds for each."""
    return type(kind.__name__, (_Packed, kind), {})


class _Packed:
    if TYPE_CHECKING:
        _writer: Any
        health_check_interval: float

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        return [hiredis.pack_command((*name.split(), *rest))]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Write at once where possible. redis-py makes a task for each command, to bound the time;
        here the caller does that, which waits for the reply."""
        writer = self._writer
        if writer is not None and writer.transport.is_closing():
            # A write would be a TypeError of Python 3.12.3, or a RuntimeError of uvloop.
            raise exceptions.ConnectionError("the server has closed the connection")
        if writer is None or self.health_check_interval or writer.transport.get_write_buffer_size():
            await super().send_packed_command(command, check_health)  # type: ignore[misc] # the driver's connection
        else:
            writer.writelines(command)


class _Turns(asyncio.Semaphore):
    """Lets as many calls through as there are connections. The others wait for their turn."""

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
    """A client of one server. A call takes a third of the CPU that redis-py's takes.

    It keeps used connections, each for one call at a time. redis-py hands them to its pool and
    back, with two locks, a timeout and a dozen measurements. A connection that fails goes back to
    the pool, closed.
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
    """Return a client of redis+sentinel://[user:password@]host:26379,…/SERVICE[/DATABASE].

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
    # All sentinels can be asked within one call: one that hangs must not use up its time.
    each_s = timeout_s / (len(servers) + 1)
    sentinel_options = {**common_options(each_s), **tls, **login}
    options = {
        **common_options(timeout_s),
        "max_connections": POOL_SIZE,
        "db": int(path[1]) if path[1:] else 0,
        **options,
    }
    service = unquote(path[0]) if path else SERVICE
    kind = SentinelManagedSSLConnection if tls else SentinelManagedConnection
    if not has_parts(AbstractConnection, ConnectionPool, Sentinel):
        plain = Sentinel(servers, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
        client: Redis = plain.master_for(service, connection_class=kind, **options)
        return client
    sentinel = _Sentinels(servers, sentinel_kwargs=sentinel_options)
    options |= {"connection_class": packed(kind), "timeout": POOL_WAIT * timeout_s}
    return Redis.from_pool(_SentinelPool(service, sentinel, **options))  # type: ignore[no-untyped-call]


class _Sentinels(Sentinel):
    """Sentinels that are asked by one connection after the other. redis-py moves the one that
    answered to the front of its list; when two do so at the same time, it forgets another for
    good."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._turn = asyncio.Lock()

    async def discover_master(self, service_name: str) -> Any:
        async with self._turn:
            return await super().discover_master(service_name)


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """A bounded pool of connections to the current primary."""

    async def release(self, connection: Any) -> None:
        """Close a connection that was in use while the primary moved."""
        if (connection.host, connection.port) != self.master_address:
            connection.mark_for_reconnect()
        await super().release(connection)


def cluster_store(url: str, timeout_s: float) -> RedisCluster:
    """Return a client of redis+cluster://[user:password@]host:6379,…, which names some servers."""
    servers, _ = read_servers(url)
    nodes = [ClusterNode(host, port) for host, port in servers]
    options = {**common_options(timeout_s), **_url_options(url)}
    if not has_parts(AbstractConnection, RedisCluster, NodesManager, ClusterNode):
        return RedisCluster(startup_nodes=nodes, **options)
    return Cluster(startup_nodes=nodes, wait_s=POOL_WAIT * timeout_s, **options)


class Cluster(RedisCluster):
    """A client of a cluster that survives a server that hangs.

    redis-py draws a new map of the cluster before the next call when a call ended by an error. Here
    a call that is cut off counts too: a server that hangs gives no error. And the map is
    drawn beside the calls, which go on by the old one: it takes time to find out that a server is
    gone, and calls to the others must not wait for that.
    """

    def __init__(self, *, wait_s: float, **options: Any) -> None:
        # Connections that are being replaced count too. _Turns bounds the calls.
        options.setdefault("max_connections", 2 * POOL_SIZE)
        # A moved slot is noted by itself. redis-py would close every connection at each fifth.
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
            self._draw_map_again()
            raise exceptions.RedisError(str(error)) from error
        except (
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.ClusterError,
            asyncio.CancelledError,
        ):
            self._draw_map_again()
            raise

    def _draw_map_again(self) -> None:
        if self.nodes_manager.default_node is not None:  # there is a map
            self._initialize = False
            self._begin_search()

    async def initialize(self, *_: Any, **__: Any) -> "Cluster":
        """Draw the first map. A caller that gives up waiting leaves the search to the others."""
        if self._initialize:
            await asyncio.shield(self._begin_search())
        return self

    def _begin_search(self) -> asyncio.Task[None]:
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._draw_map())
            self._search.add_done_callback(_retrieve_error)
        return self._search

    async def _draw_map(self) -> None:
        # All servers may have new addresses, so the names from the URL are tried too.
        nodes = self.nodes_manager.startup_nodes
        nodes.update({name: node for name, node in self._named.items() if name not in nodes})
        if self._initialize:
            await super().initialize()
        else:
            await self.nodes_manager.initialize()

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """Return a server, also a new one that a slot moves to before it is on any map."""
        node = super().get_node(host, port, node_name)
        if node is None and node_name:
            new_host, _, new_port = node_name.rpartition(":")
            node = ClusterNode(new_host, int(new_port), "primary", **self.connection_kwargs)
            self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node.name: node})
        return node

    async def _determine_slot(self, command: str, *args: Any) -> int:
        # redis-py knows where EVALSHA has its keys. For FCALL it would ask a server each time.
        return await super()._determine_slot("EVALSHA" if command == "FCALL" else command, *args)

    def register_script(self, script: Any) -> AsyncScript:  # type: ignore[override] # redis-py's own does so too
        return _ClusterScript(self, script)

    async def shut(self) -> None:
        """Close everything. redis-py calls `aclose` also to begin anew."""
        if self._search is not None:
            self._search.cancel()
            await asyncio.wait([self._search])
        self._initialize = False  # else redis-py thinks that it is closed already
        await super().aclose()


class _ClusterScript(AsyncScript):
    """A script that is sent whole to a server that does not have it. redis-py would load it into
    every primary, which fails while any of them is away."""

    async def __call__(
        self,
        keys: Sequence[Any] | None = None,
        args: Iterable[Any] | None = None,
        client: Any = None,
    ) -> Any:
        client = client or self.registered_client
        arguments = (len(keys or ()), *(keys or ()), *(args or ()))
        try:
            return await client.evalsha(self.sha, *arguments)
        except exceptions.NoScriptError:
            return await client.eval(self.script, *arguments)


def _retrieve_error(search: asyncio.Task[None]) -> None:
    """Keep asyncio from logging an error for which no caller waits."""
    if not search.cancelled():
        search.exception()


def _url_options(url: str) -> dict[str, Any]:
    """Return user, password, TLS and query options, as redis-py reads them from a URL of one
    server."""
    kind, _, rest = url.partition("://")
    address, _, query = rest.partition("?")
    login, at, _ = address.partition("/")[0].rpartition("@")
    one = parse_url(f"{kind.partition('+')[0]}://{login}{at}host/?{query}")
    options: dict[str, Any] = {**one}
    del options["host"]
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return options
