"""Clients of one Redis server, of Redis Sentinel and of Redis Cluster.

The clients override parts of redis-py, for two reasons. For one server redis-py takes three times
the CPU for a call. And RedisScripts cancels every call after `store_timeout`, so redis-py would
never see the errors of its own by which it notices that a server is gone.

has_parts looks for the undocumented parts of redis-py before a client uses them. Where a part is
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

#: Connections of one client. More calls at a time would only queue up in Redis.
POOL_SIZE = 64
#: The share of a call's timeout that the call may wait for a free connection.
POOL_WAIT = 0.5
#: The service name of redis-py and of most installations.
SERVICE = "mymaster"
#: The parts of redis-py that the clients use, by class: attributes, and coroutine functions.
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
_PART_KINDS: tuple[PartKind, PartKind] = (object, iscoroutinefunction)

log = structlog.get_logger()


def has_parts(*classes: type[Any]) -> bool:
    """Return True if these classes of redis-py have the parts that the clients use; else log the
    missing parts."""
    missing = [
        f"{cls.__name__}.{name}"
        for cls in classes
        for names, kind in zip(_PARTS[cls], _PART_KINDS, strict=True)
        for name in names.split()
        if not has_part(cls, name, kind)
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
        # An error now is worth more to the client than the reply to a later retry.
        "retry": Retry(NoBackoff(), 0),
    }


def single_store(url: str, timeout_s: float) -> Redis:
    """Return a client of one server. The URL begins with redis://, rediss:// or unix://."""
    options = common_options(timeout_s)
    if url.startswith("unix://"):
        del options["socket_keepalive"]
    options["max_connections"] = POOL_SIZE
    wait_s = POOL_WAIT * timeout_s
    if not has_parts(AbstractConnection, ConnectionPool, Redis):
        return Redis.from_pool(BlockingConnectionPool.from_url(url, timeout=wait_s, **options))
    pool = ConnectionPool.from_url(url, **options)
    pool.connection_class = add_packing(pool.connection_class)
    return Single(pool, wait_s=wait_s)


def add_packing(kind: type[Any]) -> type[Any]:
    """Return a subclass of connections that packs commands with hiredis. A batch has hundreds of
    arguments, and redis-py takes some microseconds for each."""
    return type(kind.__name__, (_Packed, kind), {})


class _Packed:
    """A mixin that changes how a connection packs and writes commands."""

    if TYPE_CHECKING:
        _writer: Any
        health_check_interval: float

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        return [hiredis.pack_command((*name.split(), *rest))]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Write the command at once where possible. redis-py creates a task for each command, for
        a timeout. Here the caller, which waits for the reply, sets the timeout."""
        writer = self._writer
        if writer is not None and writer.transport.is_closing():
            # A write would be a TypeError of Python 3.12.3, or a RuntimeError of uvloop.
            raise exceptions.ConnectionError("the server has closed the connection")
        if writer is None or self.health_check_interval or writer.transport.get_write_buffer_size():
            await super().send_packed_command(command, check_health)  # type: ignore[misc] # the driver's connection
        else:
            writer.writelines(command)


class _FreeConnections(asyncio.Semaphore):
    """A semaphore that each call holds, so that there are at most POOL_SIZE calls at a time. A call
    that waits for longer than `wait_s` gets a ConnectionError."""

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
    """A client of one server. A call takes a third of the CPU that a call of redis-py takes.

    The client has a list of idle connections. redis-py returns each connection to its pool after
    each call, with two locks, a timeout and a dozen measurements. Here only a connection that
    failed is closed and returned to the pool.
    """

    def __init__(self, pool: ConnectionPool, *, wait_s: float) -> None:
        super().__init__(connection_pool=pool)
        self._idle: list[Any] = []
        self._free_connections = _FreeConnections(wait_s)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with self._free_connections:
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

    The user and password are for the servers. Those for the sentinels are `?sentinel_username=` and
    `?sentinel_password=`: a sentinel without a password refuses a client that sends one.
    """
    servers, path = read_servers(url)
    options = _url_options(url)
    login = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    # A sentinel that hangs must leave time within one call to ask all the other sentinels.
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
    options |= {"connection_class": add_packing(kind), "timeout": POOL_WAIT * timeout_s}
    return Redis.from_pool(_SentinelPool(service, sentinel, **options))  # type: ignore[no-untyped-call]


class _Sentinels(Sentinel):
    """Sentinels, with one search for the primary at a time. redis-py moves the sentinel that
    answered to the front of its list. Two searches that do so at the same time would make redis-py
    forget another sentinel for good."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._search_lock = asyncio.Lock()

    async def discover_master(self, service_name: str) -> Any:
        async with self._search_lock:
            return await super().discover_master(service_name)


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """A bounded pool of connections to the current primary."""

    async def release(self, connection: Any) -> None:
        """Release a connection, and close it if the primary has moved since."""
        if (connection.host, connection.port) != self.master_address:
            connection.mark_for_reconnect()
        await super().release(connection)


def cluster_store(url: str, timeout_s: float) -> RedisCluster:
    """Return a client of redis+cluster://[user:password@]host:6379,… with some of the servers."""
    servers, _ = read_servers(url)
    nodes = [ClusterNode(host, port) for host, port in servers]
    options = {**common_options(timeout_s), **_url_options(url)}
    if not has_parts(AbstractConnection, RedisCluster, NodesManager, ClusterNode):
        return RedisCluster(startup_nodes=nodes, **options)
    return Cluster(startup_nodes=nodes, wait_s=POOL_WAIT * timeout_s, **options)


class Cluster(RedisCluster):
    """A client of a cluster in which a server may hang.

    When a call has ended with an error, redis-py reads the map of the cluster's slots again before
    the next call. Here a cancelled call has the same effect, because a server that hangs causes no
    error. The map is read in the background, and calls use the old map meanwhile: it takes time to
    notice that a server is gone, and calls to other servers must not wait for that.
    """

    def __init__(self, *, wait_s: float, **options: Any) -> None:
        # This also counts connections that are being replaced. _FreeConnections limits the calls.
        options.setdefault("max_connections", 2 * POOL_SIZE)
        # redis-py notes each moved slot. At every fifth it would close all connections, too.
        super().__init__(reinitialize_steps=0, **options)
        kind = add_packing(self.connection_kwargs["connection_class"])
        self.connection_kwargs["connection_class"] = kind
        #: The servers that the URL names.
        self._named = dict(self.nodes_manager.startup_nodes)
        for node in self._named.values():
            node.connection_class = kind
        self._free_connections = _FreeConnections(wait_s)
        self._search: asyncio.Task[None] | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            async with self._free_connections:
                return await super().execute_command(*args, **options)
        except exceptions.RedisClusterException as error:  # which is no RedisError
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
            self._begin_search()

    async def initialize(self, *_: Any, **__: Any) -> "Cluster":
        """Read the first map. The search goes on if a caller that waits for it is cancelled."""
        if self._initialize:
            await asyncio.shield(self._begin_search())
        return self

    def _begin_search(self) -> asyncio.Task[None]:
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._read_map())
            self._search.add_done_callback(_retrieve_error)
        return self._search

    async def _read_map(self) -> None:
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
        """Return a server, or a new client of a server that the map does not have yet."""
        node = super().get_node(host, port, node_name)
        if node is None and node_name:
            new_host, _, new_port = node_name.rpartition(":")
            node = ClusterNode(new_host, int(new_port), "primary", **self.connection_kwargs)
            self.nodes_manager.set_nodes(self.nodes_manager.nodes_cache, {node.name: node})
        return node

    async def _determine_slot(self, command: str, *args: Any) -> int:
        # redis-py knows which arguments of EVALSHA are keys. For FCALL it would ask a server.
        return await super()._determine_slot("EVALSHA" if command == "FCALL" else command, *args)

    def register_script(self, script: Any) -> AsyncScript:  # type: ignore[override] # redis-py's own does so too
        return _ClusterScript(self, script)

    async def shut(self) -> None:
        """Close all connections for good. redis-py also calls `aclose` to connect again."""
        if self._search is not None:
            self._search.cancel()
            await asyncio.wait([self._search])
        self._initialize = False  # otherwise redis-py takes the client for closed
        await super().aclose()


class _ClusterScript(AsyncScript):
    """A script whose source is sent to a server that does not have the script. redis-py would load
    the script into every primary, which fails while any primary is unavailable."""

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
    """Read the error of a search, because asyncio logs an error that nobody has read."""
    if not search.cancelled():
        search.exception()


def _url_options(url: str) -> dict[str, Any]:
    """Return the options for user, password, TLS and query, as redis-py reads them from the URL of
    one server."""
    kind, _, rest = url.partition("://")
    address, _, query = rest.partition("?")
    login, at, _ = address.partition("/")[0].rpartition("@")
    options: dict[str, Any] = {**parse_url(f"{kind.partition('+')[0]}://{login}{at}host/?{query}")}
    del options["host"]
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return options
