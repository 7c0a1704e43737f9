"""Starts Redis servers that tests can break: a single server, a Sentinel set, or a Cluster."""

import contextlib
import random
import socket
import subprocess
import time

from tests.support.processes import Process, wait_until
from tests.support.site import Servers, make_folder

#: Ports that outgoing connections do not use, so that they stay free while a server is down.
PORTS = range(12_000, 22_000)
#: Offset of the port on which servers of a cluster communicate.
BUS = 10_000
SERVICE = "mymaster"
_REPLICATION = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]


def find_free_port() -> int:
    """Return a free port whose bus port, `BUS` above it, is free too."""
    while True:
        port = random.choice(PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for number in (port, port + BUS):
                probe = probes.enter_context(socket.socket())
                probe.bind(("127.0.0.1", number))
            return port


class RedisServer(Servers):
    """A redis-server on a TCP port. With `aof`, its data survive `kill` and `restart`."""

    def __init__(self, *options: str, aof: bool = False, password: str = "") -> None:
        super().__init__()
        self.port = find_free_port()
        self.password = password
        self._options = [
            "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes" if aof else "no", "--appendfsync", "always",
            *options,
        ]  # fmt: skip
        if password:
            self._options += ["--requirepass", password, "--masterauth", password]

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        self.process = Process(self._command(), log=self.folder / "log")
        self._stack.callback(self.kill)
        self.start()

    def _command(self) -> list[str]:
        return ["redis-server", *self._options, "--dir", str(self.folder)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}{self.address}/0"

    @property
    def answers(self) -> bool:
        """Return True if the server runs and has loaded its data."""
        if not self.process.running:
            return False
        try:
            return self.cli("ping", timeout_s=1) == "PONG"
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False

    def cli(self, *words: object, timeout_s: float = 10) -> str:
        """Run redis-cli. Return its output. Raise CalledProcessError if Redis replies an error."""
        login = ["-a", self.password, "--no-auth-warning"] if self.password else []
        command = ["redis-cli", "-e", "-p", str(self.port), *login, *map(str, words)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=timeout_s)
        return done.stdout.decode().strip()

    def info(self, section: str) -> dict[str, str]:
        lines = self.cli("info", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def start(self) -> None:
        self.process.start()
        wait_until(lambda: self.answers, f"the server on {self.port}: {self.process.output}")

    def kill(self) -> None:
        """Send SIGKILL, which also works while the server is paused."""
        self.process.kill()

    def pause(self) -> None:
        self.process.freeze()

    def resume(self) -> None:
        self.process.thaw()

    def config_set(self, name: str, value: object) -> None:
        self.cli("config", "set", name, value)


class _ReplicatedStore(Servers):
    """A store of several servers, of which a subclass finds the primary for a key."""

    def primary_of(self, key: str) -> RedisServer | None:
        raise NotImplementedError

    def kill_primary_of(self, key: str) -> RedisServer:
        primary = self.primary_of(key)
        assert primary is not None
        primary.kill()
        return primary

    def wait_replicated(self, key: str) -> None:
        """Wait until the replicas have all writes that the key's primary has confirmed."""
        primary = self.primary_of(key)
        assert primary is not None
        offset = int(primary.info("replication")["master_repl_offset"])

        def have_confirmed() -> bool:
            replicas = _replicas(primary)
            return bool(replicas) and all(int(replica["offset"]) >= offset for replica in replicas)

        wait_until(have_confirmed, f"the replicas of {primary.port}")


class SentinelStore(_ReplicatedStore):
    """A primary, two replicas, and three sentinels with a quorum of two. `password` is that of the
    primary and the replicas."""

    def __init__(self, *, password: str = "") -> None:
        super().__init__()
        self.password = password

    def _start(self) -> None:
        start = self._stack.enter_context
        first = start(RedisServer(*_REPLICATION, password=self.password))
        of = ["--replicaof", f"127.0.0.1 {first.port}"]
        self.servers = [first] + [
            start(RedisServer(*_REPLICATION, *of, password=self.password)) for _ in range(2)
        ]
        # If a sentinel started before the replicas, it would take ten seconds to find them.
        wait_until(lambda: _replicas_online(first) == 2, "two replicas")
        self.sentinels = [start(_SentinelServer(first)) for _ in range(3)]
        wait_until(self._is_complete, "sentinels that know each other")

    def _is_complete(self) -> bool:
        right = {"num-other-sentinels": "2", "num-slaves": "2", "flags": "master"}
        return all(right.items() <= sentinel.master().items() for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{hosts}/{SERVICE}"

    def primary_of(self, key: str) -> RedisServer:  # noqa: ARG002 - as in ClusterStore
        """Return the current primary according to the sentinels."""
        answer = self.sentinels[0].cli("sentinel", "get-master-addr-by-name", SERVICE)
        port = int(answer.split()[1])
        return next(server for server in self.servers if server.port == port)


class _SentinelServer(RedisServer):
    """A sentinel of a primary, with the configuration file that it rewrites."""

    def __init__(self, primary: RedisServer) -> None:
        super().__init__()
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        if primary.password:
            lines.append(f"sentinel auth-pass {SERVICE} {primary.password}")
        self._text = "\n".join(lines) + "\n"

    def _command(self) -> list[str]:
        file = self.folder / "sentinel.conf"
        file.write_text(f"dir {self.folder}\n{self._text}")
        return ["redis-server", str(file), "--sentinel"]

    def master(self) -> dict[str, str]:
        lines = self.cli("sentinel", "master", SERVICE).splitlines()
        return dict(zip(lines[::2], lines[1::2], strict=False))


class ClusterStore(_ReplicatedStore):
    """A cluster of three primaries with a replica each."""

    def _start(self) -> None:
        options = [*_REPLICATION, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]
        self.servers = [self._stack.enter_context(RedisServer(*options)) for _ in range(6)]
        subprocess.run(
            ["redis-cli", "--cluster", "create", *(server.address for server in self.servers),
             "--cluster-replicas", "1", "--cluster-yes"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        wait_until(self.is_whole, "the cluster")

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(server.address for server in self.servers[:3])}"

    def is_whole(self) -> bool:
        """Return True if all running servers agree on the cluster's state, and each of the three
        primaries has a replica that is online."""
        living = [server for server in self.servers if server.answers]
        if any(len(self._rows(server)) < 6 for server in living):
            return False
        if any("cluster_state:ok" not in server.cli("cluster", "info") for server in living):
            return False
        if any(self._primaries(server) != self._primaries() for server in living):
            return False
        primaries = [each for each in living if each.info("replication")["role"] == "master"]
        return len(primaries) == 3 and all(map(_replicas_online, primaries))

    def _rows(self, server: RedisServer | None = None) -> list[list[str]]:
        """Return the rows of CLUSTER NODES from a server: id, address, flags, primary's id, …,
        slots."""
        server = server or next(server for server in self.servers if server.answers)
        return [line.split() for line in server.cli("cluster", "nodes").splitlines()]

    def _primaries(self, server: RedisServer | None = None) -> dict[str, list[str]]:
        """Return the slots of each working primary by the primary's id."""
        return {
            row[0]: row[8:]
            for row in self._rows(server)
            if "master" in row[2] and "fail" not in row[2]
        }

    def _server(self, node: str) -> RedisServer:
        address = next(row[1] for row in self._rows() if row[0] == node)
        port = int(address.partition("@")[0].rpartition(":")[2])
        return next(server for server in self.servers if server.port == port)

    def slot_of(self, key: str) -> int:
        """Return the cluster's hash slot of a key."""
        return int(next(s for s in self.servers if s.answers).cli("cluster", "keyslot", key))

    def _primary_id_of(self, key: str) -> str | None:
        slot = self.slot_of(key)
        for node, ranges in self._primaries().items():
            for part in ranges:
                first, _, last = part.partition("-")
                if not part.startswith("[") and int(first) <= slot <= int(last or first):
                    return node
        return None

    def primary_of(self, key: str) -> RedisServer | None:
        """Return the primary of a key's slot according to the first server that is running."""
        node = self._primary_id_of(key)
        return None if node is None else self._server(node)

    def replica_of(self, primary: RedisServer) -> RedisServer:
        """Return a running replica of a primary."""
        rows = self._rows(primary)
        own = next(row[0] for row in rows if "myself" in row[2])
        return self._server(next(r[0] for r in rows if r[3] == own and "fail" not in r[2]))

    def move_slot(self, key: str, *, pause_s: float = 0) -> RedisServer:
        """Move a key's slot to another primary, as resharding does. Return the new primary.

        The slot is in the state of migration for `pause_s` before its keys move.
        """
        slot, source_id = self.slot_of(key), self._primary_id_of(key)
        assert source_id is not None
        target_id = next(node for node in self._primaries() if node != source_id)
        source, target = self._server(source_id), self._server(target_id)
        target.cli("cluster", "setslot", slot, "importing", source_id)
        source.cli("cluster", "setslot", slot, "migrating", target_id)
        time.sleep(pause_s)
        while keys := source.cli("cluster", "getkeysinslot", slot, 100).split():
            source.cli("migrate", "127.0.0.1", target.port, "", 0, 5000, "keys", *keys)
        for server in (target, source):
            server.cli("cluster", "setslot", slot, "node", target_id)
        return target


def _replicas(server: RedisServer) -> list[dict[str, str]]:
    rows = [value for name, value in server.info("replication").items() if name.startswith("slave")]
    return [dict(field.split("=") for field in row.split(",")) for row in rows if "=" in row]


def _replicas_online(server: RedisServer) -> int:
    return sum(replica["state"] == "online" for replica in _replicas(server))
