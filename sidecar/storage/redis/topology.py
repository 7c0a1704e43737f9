"""Creates clients of one Redis server, of Redis Sentinel and of Redis Cluster.

The clients override parts of redis-py, for two reasons. First, unchanged redis-py takes three
times as much CPU for a command to one server. Second, RedisScripts cancels every command after
`store_timeout`, so redis-py never gets the timeout errors by which it notices a lost server.

Before a client uses undocumented attributes of redis-py, has_parts looks for them. If one is
missing, redis-py is used unchanged, with a warning.
"""

import asyncio
from collections.abc import Iterable, Sequence
from inspect import iscoroutinefunction
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

from sidecar.kit.library_parts import PartKind, has_part
from sidecar.kit.setting_types import read_servers

#: The maximum number of connections of one client. More calls at once would queue up in Redis.
POOL_SIZE = 64
#: The share of a call's timeout that the call may wait for a free connection.
POOL_WAIT_SHARE = 0.5
#: The usual name of a Sentinel service, for a URL without a name.
SERVICE = "mymaster"
#: Maps a class of redis-py to the attributes and the coroutine functions that the clients use.
_PARTS: dict[type[Any], tuple[str, str]] = {
    AbstractConnection: (
        "_writer health_check_interval is_connected mark_for_reconnect should_reconnect",
        "can_read send_command send_packed_command disconnect",
    ),
    ConnectionPool: ("", "get_connection ensure_connection release"),
    Redis: ("", "parse_response aclose"),
    Sentinel: ("", "discover_master aclose"),
    RedisCluster: (
        "_initialize nodes_manager connection_kwargs get_node",
        "_determine_slot initialize execute_command aclose",
    ),
    NodesManager: ("startup_nodes default_node nodes_cache set_nodes", "initialize"),
    ClusterNode: ("connection_class", ""),
}
_PART_KINDS: tuple[PartKind, PartKind] = (object, iscoroutinefunction)

log = structlog.get_logger()


def has_parts(*classes: type[Any]) -> bool:
    """Return True if these classes of redis-py have the attributes in _PARTS. Log missing ones."""
    missing_parts = [
        f"{cls.__name__}.{name}"
        for cls in classes
        for names, kind in zip(_PARTS[cls], _PART_KINDS, strict=True)
        for name in names.split()
        if not has_part(cls, name, kind)
    ]
    if missing_parts:
        hint = "redis-py is used as it is: calls cost more CPU, a failover takes longer"
        log.warning("redis_py_has_changed", missing=missing_parts, hint=hint)
    return not missing_parts


def common_options(timeout_s: float) -> dict[str, Any]:
    """Return redis-py's options for every connection to a server."""
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        # The visitor or program needs a quick error more than the late reply to a retry.
        "retry": Retry(NoBackoff(), 0),
    }


def single_store(url: str, timeout_s: float) -> Redis:
    """Return a client of one server. The URL begins with redis://, rediss:// or unix://."""
    options = common_options(timeout_s)
    if url.startswith("unix://"):
        del options["socket_keepalive"]
    options["max_connections"] = POOL_SIZE
    wait_s = POOL_WAIT_SHARE * timeout_s
    if not has_parts(AbstractConnection, ConnectionPool, Redis):
        return Redis.from_pool(BlockingConnectionPool.from_url(url, timeout=wait_s, **options))
    pool = ConnectionPool.from_url(url, **options)
    pool.connection_class = add_packing(pool.connection_class)
    return Single(pool, wait_s=wait_s)


def add_packing(connection_class: type[Any]) -> type[Any]:
    """Return a subclass of a connection class that packs commands with hiredis. A batch has
    hundreds of arguments, and redis-py takes some microseconds to pack each."""
    return type(connection_class.__name__, (_PackingMixin, connection_class), {})


class _PackingMixin:
    """A mixin that changes how a connection packs and writes commands."""

    if TYPE_CHECKING:
        _writer: Any
        health_check_interval: float

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        return [hiredis.pack_command((*name.split(), *rest))]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Write the command at once where possible. redis-py would create a task with a timeout
        for each command. That is not needed, because the caller limits the time of its call."""
        writer = self._writer
        if writer is not None and writer.transport.is_closing():
            # A write would raise a TypeError in Python 3.12.3, or a RuntimeError in uvloop.
            raise exceptions.ConnectionError("the server has closed the connection")
        if writer is None or self.health_check_interval or writer.transport.get_write_buffer_size():
            await super().send_packed_command(command, check_health)  # type: ignore[misc] # the driver's connection
        else:
            writer.writelines(command)


class _FreeConnections(asyncio.Semaphore):
    """A semaphore that each call acquires, so that at most POOL_SIZE calls run at a time. `acquire`
    raises ConnectionError after `wait_s`."""

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
    """A client of one server, whose calls take a third of the CPU of redis-py's.

    redis-py returns the connection to its pool after each call, with two locks, a timeout and a
    dozen measurements. This client keeps idle connections in a list, and returns only failed ones
    to the pool.
    """

    def __init__(self, pool: ConnectionPool, *, wait_s: float) -> None:
        super().__init__(connection_pool=pool)
        self._idle: list[Any] = []
        self._free_connections = _FreeConnections(wait_s)
        self._is_closed = False

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections for good. redis-py would open new ones for commands that a batch
        sends later, and nothing would close them."""
        self._is_closed = True
        await super().aclose(close_connection_pool)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with self._free_connections:
            if self._is_closed:
                raise exceptions.ConnectionError("the client is closed")
            pool: Any = self.connection_pool
            connection = self._idle.pop() if self._idle else await pool.get_connection()
            try:
                if not connection.is_connected or await connection.can_read():
                    await pool.ensure_connection(connection)  # the server has closed it
                await connection.send_command(*args)
                reply = await self.parse_response(connection, args[0], **options)
            except exceptions.ResponseError:
                self._idle.append(connection)
                raise
            except BaseException:
                await connection.disconnect(nowait=True)
                await pool.release(connection)
                raise
            if self._is_closed:  # aclose was called meanwhile
                await connection.disconnect(nowait=True)
            elif connection.should_reconnect():  # the server is about to move
                await pool.release(connection)
            else:
                self._idle.append(connection)
            return reply


def sentinel_store(url: str, timeout_s: float) -> Redis:
    """Return a client for redis+sentinel://[user:password@]host:26379,…/SERVICE[/DATABASE].

    The user and password are for the Redis servers. Those for the sentinels are separate
    (`?sentinel_username=`, `?sentinel_password=`), because a sentinel without a password refuses a
    client that sends one.
    """
    servers, path = read_servers(url)
    options = _url_options(url)
    login = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    # If a sentinel hangs, there must be time within one call to ask all the other sentinels.
    sentinel_timeout_s = timeout_s / (len(servers) + 1)
    sentinel_options = {**common_options(sentinel_timeout_s), **tls, **login}
    options = {
        **common_options(timeout_s),
        "max_connections": POOL_SIZE,
        "db": int(path[1]) if path[1:] else 0,
        **options,
    }
    service = unquote(path[0]) if path else SERVICE
    connection_class = SentinelManagedSSLConnection if tls else SentinelManagedConnection
    if not has_parts(AbstractConnection, ConnectionPool, Sentinel):
        sentinels = Sentinel(servers, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
        client: Redis = sentinels.master_for(service, connection_class=connection_class, **options)
        return client
    sentinel = _Sentinels(servers, sentinel_kwargs=sentinel_options)
    options["connection_class"] = add_packing(connection_class)
    options["timeout"] = POOL_WAIT_SHARE * timeout_s
    return Redis.from_pool(_SentinelPool(service, sentinel, **options))  # type: ignore[no-untyped-call]


class _Sentinels(Sentinel):
    """A client of the sentinels that runs one search for the primary at a time. redis-py moves the
    sentinel that answered to the front of its list. Two searches at the same time would make it
    lose one of the sentinels for good."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._search_lock = asyncio.Lock()

    async def discover_master(self, service_name: str) -> Any:
        async with self._search_lock:
            return await super().discover_master(service_name)


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """A connection pool of limited size, with connections to the current primary."""

    async def release(self, connection: Any) -> None:
        """Release a connection. If the primary has changed since, make it reconnect."""
        if (connection.host, connection.port) != self.master_address:
            connection.mark_for_reconnect()
        await super().release(connection)


def cluster_store(url: str, timeout_s: float) -> RedisCluster:
    """Return a client for redis+cluster://[user:password@]host:6379,… One host may be enough."""
    servers, _ = read_servers(url)
    nodes = [ClusterNode(host, port) for host, port in servers]
    options = {**common_options(timeout_s), **_url_options(url)}
    if not has_parts(AbstractConnection, RedisCluster, NodesManager, ClusterNode):
        return RedisCluster(startup_nodes=nodes, **options)
    return Cluster(startup_nodes=nodes, wait_s=POOL_WAIT_SHARE * timeout_s, **options)


class Cluster(RedisCluster):
    """A client of a cluster that can cope with a server that hangs.

    After a call that has failed, redis-py reads the cluster's slot map again, before the next call.
    This client also reads it after a cancelled call, because a server that hangs causes no error.
    It reads the map in the background, and calls use the old map meanwhile. Otherwise calls to
    other servers would wait until the failed server is noticed.
    """

    def __init__(self, *, wait_s: float, **options: Any) -> None:
        # Allow twice as many connections as calls, because those being replaced count too.
        options.setdefault("max_connections", 2 * POOL_SIZE)
        # By default redis-py would close all connections at every fifth slot that has moved.
        super().__init__(reinitialize_steps=0, **options)
        connection_class = add_packing(self.connection_kwargs["connection_class"])
        self.connection_kwargs["connection_class"] = connection_class
        #: The servers that the URL names.
        self._url_nodes = dict(self.nodes_manager.startup_nodes)
        for node in self._url_nodes.values():
            node.connection_class = connection_class
        self._free_connections = _FreeConnections(wait_s)
        self._map_task: asyncio.Task[None] | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            async with self._free_connections:
                return await super().execute_command(*args, **options)
        except exceptions.RedisClusterException as error:  # not a subclass of RedisError
            self._reread_map()
            raise exceptions.RedisError(str(error)) from error
        except (
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.ClusterError,
            asyncio.CancelledError,
        ):
            self._reread_map()
            raise

    def _reread_map(self) -> None:
        if self.nodes_manager.default_node is not None:  # there is a map
            self._initialize = False
            self._start_map_task()

    async def initialize(self, *_: Any, **__: Any) -> "Cluster":
        """Read the first slot map. The task continues if a caller that awaits it is cancelled."""
        if self._initialize:
            await asyncio.shield(self._start_map_task())
        return self

    def _start_map_task(self) -> asyncio.Task[None]:
        if self._map_task is None or self._map_task.done():
            self._map_task = asyncio.create_task(self._read_map())
            self._map_task.add_done_callback(_retrieve_error)
        return self._map_task

    async def _read_map(self) -> None:
        # All servers may have new addresses, so try the host names from the URL too.
        nodes = self.nodes_manager.startup_nodes
        nodes.update({name: node for name, node in self._url_nodes.items() if name not in nodes})
        if self._initialize:
            await super().initialize()
        else:
            await self.nodes_manager.initialize()

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """Return a node of the cluster. If the slot map does not have it yet, add a new node."""
        node = super().get_node(host, port, node_name)
        if node is None and node_name:
            new_host, _, new_port = node_name.rpartition(":")
            node = ClusterNode(new_host, int(new_port), "primary", **self.connection_kwargs)
            self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node.name: node})
        return node

    async def _determine_slot(self, command: str, *args: Any) -> int:
        # redis-py knows which arguments of EVALSHA are keys. For FCALL it would query a server.
        return await super()._determine_slot("EVALSHA" if command == "FCALL" else command, *args)

    def register_script(self, script: Any) -> AsyncScript:  # type: ignore[override] # redis-py's own does so too
        return _ClusterScript(self, script)

    async def shut(self) -> None:
        """Close all connections for good. `aclose` is not enough: redis-py uses it to reconnect."""
        if self._map_task is not None:
            self._map_task.cancel()
            await asyncio.wait([self._map_task])
        self._initialize = False  # otherwise redis-py takes the client for closed
        await super().aclose()


class _ClusterScript(AsyncScript):
    """A script that is sent as source to a server that does not have it. redis-py would load it
    into every primary, which fails while any primary is unavailable."""

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


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Read the error of a task, because asyncio logs an error that nobody has read."""
    if not task.cancelled():
        task.exception()


def _url_options(url: str) -> dict[str, Any]:
    """Return redis-py's options for the user, password, TLS and query of a URL. redis-py parses the
    URL with a single host in place of the servers."""
    scheme, _, rest = url.partition("://")
    address, _, query = rest.partition("?")
    login, at, _ = address.partition("/")[0].rpartition("@")
    single_url = f"{scheme.partition('+')[0]}://{login}{at}host/?{query}"
    options: dict[str, Any] = {**parse_url(single_url)}
    del options["host"]
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return options
