"""Starts a whole site for tests: redis-server, replicas, an origin and nginx.

Each server listens on a free port, or on a socket in the site's temporary folder.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from sidecar.gate.nginx_key import build_key_file
from sidecar.settings.model import Settings
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import WAITROOM, Process, free_port, listens, wait_until

ROOT = Path(__file__).resolve().parents[2]
SECRET = "test-secret-test-secret-test-secret-00"
ADMIN_TOKEN = "test-admin-token-0000"

#: Lines for an nginx location that reuses its connections to the origin.
TO_ORIGIN = ("proxy_http_version 1.1;", 'proxy_set_header Connection "";')


def gated(location: str, *lines: str, room: str = "shop", to: str = "http://origin") -> str:
    """Build an nginx location with a waiting room. `lines` follow the include, and `to` is the
    proxied URL."""
    body = [f"set $waitroom_room {room};", "include waitroom/location.conf;", *lines]
    body += [f"proxy_pass {to};"] if to else []
    return f"location {location} {{\n" + "".join(f"    {line}\n" for line in body) + "}\n"


#: The nginx locations of the quick start.
PLAIN_LOCATION = gated("/") + gated("/done", "include waitroom/release.conf;")
#: A longer timeout for Redis, because other tests may keep this machine busy.
PATIENT = {"store_timeout": 3}
#: The default timeout for Redis, for tests in which Redis hangs, and for measurements.
BY_DEFAULT = {"store_timeout": Settings.model_fields["store_timeout"].default}


class Servers(AbstractContextManager[Any]):
    """Base class for processes that run within a `with` block. A subclass creates `folder` and
    starts the processes, in `_start`."""

    folder: Path

    def __init__(self) -> None:
        self._stack = ExitStack()

    def _start(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, name: str, command: list[str]) -> Process:
        """Start a process, which is stopped at the end of the block."""
        process = Process(command, log=self.folder / f"{name}.log")
        return self._stack.enter_context(process)


class SocketRedis(Servers):
    """A redis-server that listens on a unix socket and saves nothing to disk."""

    def __init__(self, *options: str, folder: Path | None = None) -> None:
        super().__init__()
        self._options, self._folder = options, folder

    def _start(self) -> None:
        self.folder = self._folder or make_folder(self._stack)
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.process = self.run("redis", redis_command(self.socket, *self._options))
        wait_until(lambda: listens(self.socket), "redis-server", of=self.process)

    @property
    def pid(self) -> int:
        return self.process.pid


class Site(Servers):
    """A site: nginx with a waiting room, an origin behind it, and replicas that share a Redis.

    `url` is the URL of nginx. `edges` and `ops` are the URLs of the replicas' listeners. In lines
    of nginx.conf, @port@ stands for nginx' port, @origin@ for the origin's, @folder@ for `folder`.

    Args:
        rooms, leases, limits: Settings by name.
        replicas: Number of replicas.
        http, server, locations: Lines of nginx.conf on these levels. `server` precedes the
            include of waitroom/server.conf, and `locations` follow it.
        settings: Other settings of the replicas.
        relay: Function that creates a relay between nginx and a replica from the HOST:PORT of the
            replica.
        edges: HOST:PORT of further replicas to which nginx sends requests.
        servers: Lines of further nginx servers by server name.
        origin: Server-level lines of an nginx that replaces tests/support/origin.py, for speed.
        store: URL of a running Redis. If it is empty, a redis-server is started.
        stamps: Whether nginx has the key file with which it checks stamps.
        sockets: Whether replicas listen on unix sockets. Then `edges` is empty.
    """

    def __init__(
        self,
        *,
        rooms: dict[str, dict[str, Any]] | None = None,
        leases: dict[str, dict[str, Any]] | None = None,
        limits: dict[str, dict[str, Any]] | None = None,
        replicas: int = 1,
        locations: str = PLAIN_LOCATION,
        server: str = "",
        http: str = "",
        settings: dict[str, Any] | None = None,
        relay: Callable[[str], Any] | None = None,
        edges: tuple[str, ...] = (),
        servers: dict[str, str] | None = None,
        origin: str = "",
        store: str = "",
        stamps: bool = False,
        sockets: bool = False,
    ) -> None:
        super().__init__()
        self.rooms = rooms or {"shop": {"total_active_users": 1}}
        self.leases, self.limits = leases or {}, limits or {}
        self._count = replicas
        self._locations, self._server, self._http = locations, server, http
        self._servers = servers or {}
        self._origin = origin
        self.store = store
        self._stamps = stamps
        self._sockets = sockets
        self._settings = {**PATIENT, **(settings or {})}
        self._relay = relay
        self.relays: list[Any] = []
        self.replicas: list[Process] = []
        self.edges: list[str] = []
        self._upstreams = list(edges)
        self.ops: list[str] = []

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        if not self.store:
            self._start_redis()
        for number in range(self._count):
            self._start_replica(number)
        self.origin_port = free_port()
        self.origin = self.run("origin", self._origin_command())
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.gate = self._start_gate()
        origin = f"http://127.0.0.1:{self.origin_port}/"
        wait_until(lambda: answers(origin), "the origin", of=self.origin)
        for ops, replica in zip(self.ops, self.replicas, strict=True):
            wait_until(lambda ops=ops: answers(f"{ops}/readyz"), "a replica", of=replica)
        wait_until(lambda: answers(f"{self.url}/_waitroom/"), "the gate", of=self.gate)

    def _start_gate(self) -> Process:
        """Start the proxy in front of the site: nginx, unless a subclass has another."""
        self._write_nginx()
        command = [nginx_binary(), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]
        self.nginx = self.run("nginx", command)
        return self.nginx

    def _start_redis(self, *options: str) -> None:
        server = self._stack.enter_context(SocketRedis(*options, folder=self.folder))
        self.redis_socket, self.store, self.redis = server.socket, server.url, server.process

    def _start_replica(self, number: int) -> None:
        ops = free_port()
        edge = f"127.0.0.1:{free_port()}"
        if self._sockets:
            edge = f"unix:{self.folder}/edge-{number}.sock"
        lines = [
            f"store = {json.dumps(self.store)}",
            f"secret_keys = [{json.dumps(SECRET)}]",
            f"admin_token = {json.dumps(ADMIN_TOKEN)}",
            f'edge_listen = "{edge}"',
            f'ops_listen = "127.0.0.1:{ops}"',
        ]
        lines += [f"{name} = {json.dumps(value)}" for name, value in self._settings.items()]
        tables = {"rooms": self.rooms, "leases": self.leases, "limits": self.limits}
        for table, named in tables.items():
            for name, settings in named.items():
                lines.append(f"[{table}.{name}]")
                lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        config = self.folder / f"replica-{number}.toml"
        config.write_text("\n".join(lines) + "\n")
        command = [WAITROOM, "serve", "--config", str(config)]
        self.replicas.append(self.run(f"replica-{number}", command))
        if not self._sockets:
            self.edges.append(f"http://{edge}")
        if self._relay is not None:
            self.relays.append(self._stack.enter_context(self._relay(edge)))
            edge = f"127.0.0.1:{self.relays[-1].port}"
        self._upstreams.append(edge)
        self.ops.append(f"http://127.0.0.1:{ops}")

    def _origin_command(self) -> list[str]:
        if not self._origin:
            return [sys.executable, str(ROOT / "tests/support/origin.py"), str(self.origin_port)]
        return origin_command(self.folder, self.origin_port, self._origin)

    def _write_nginx(self) -> None:
        settings = copy_includes(self.folder)
        servers = "\n".join(f"    server {address} max_fails=0;" for address in self._upstreams)
        settings.write_text(
            settings.read_text().replace("    server 127.0.0.1:8400 max_fails=0;", servers)
        )
        shutil.copy(ROOT / "nginx" / "waitroom-files.conf", self.folder)
        if self._stamps:
            (self.folder / "waitroom-stamp.conf").write_text(build_key_file([SECRET]))
        http = NGINX_HTTP.format(
            port=self.port, origin=self.origin_port,
            http=self._http, server=self._server, locations=self._locations,
            servers="\n".join(
                f"server {{ listen 127.0.0.1:{self.port}; server_name {name};\n{lines}\n}}"
                for name, lines in self._servers.items()
            ),
        )  # fmt: skip
        text = build_nginx_config(self.folder, http, connections=16_384)
        text = fill_placeholders(text, port=self.port, origin=self.origin_port, folder=self.folder)
        (self.folder / "nginx.conf").write_text(text)

    def admin(self, method: str, path: str, body: object = None, *, replica: int = 0) -> Any:
        """Call the admin API of a replica. Return the JSON body of the response."""
        return call(method, f"{self.ops[replica]}/admin{path}", ADMIN_TOKEN, body)

    def arrive(self, room: str, class_name: str = "") -> str | None:
        """Let a visitor join a room, at the first replica. Return the visitor's id, or None if the
        queue is full."""
        browser = Visitor(self.edges[0], {"X-Waitroom-Class": class_name, "Accept": JSON})
        visitor: str | None = browser.post(f"/_waitroom/{room}/join").json().get("visitor")
        return visitor

    def count_reports(self) -> dict[str, float]:
        """Return how many of nginx's reports about sites the first replica got, by result."""
        text = Visitor(self.ops[0]).get("/metrics").text
        found = re.findall(r'\nwaitroom_site_reports_total{result="(\w+)".*} (\S+)', text)
        return {result: float(number) for result, number in found}

    def room(self, name: str = "shop") -> dict[str, Any]:
        """Return the admin API's description of a room."""
        document: dict[str, Any] = self.admin("GET", f"/rooms/{name}")
        return document

    def count_visitors(self, room: str) -> int:
        """Return how many visitors have a session or a place in a room."""
        document = self.room(room)
        return int(document["active"] + document["waiting"])


def call(method: str, url: str, token: str, body: object = None) -> Any:
    """Send a request with a bearer token. Return the JSON body of the response."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=15) as answer:
        return json.load(answer)


def make_folder(stack: ExitStack) -> Path:
    """Create a temporary folder that is deleted when `stack` is closed."""
    # pytest's folder would make paths of unix sockets too long, which may have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="wr-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    # nginx's workers may run as another user.
    folder.chmod(0o755)
    (folder / "tmp").mkdir(mode=0o777)
    return folder


def redis_command(socket: Path, *options: str) -> list[str]:
    return ["redis-server", "--port", "0", "--unixsocket", str(socket),
            "--save", "", "--dir", str(socket.parent), *options]  # fmt: skip


def origin_command(folder: Path, port: int, lines: str) -> list[str]:
    """Write the configuration of an nginx that replaces the origin. Return its command."""
    config = folder / "origin.conf"
    http = ORIGIN_HTTP.format(port=port, lines=fill_placeholders(lines, folder=folder))
    config.write_text(build_nginx_config(folder, http, name="origin", connections=8192))
    return [nginx_binary(), "-p", str(folder), "-c", str(config)]


def fill_placeholders(text: str, **values: object) -> str:
    """Replace each @name@ in a text with its value."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def replace_each(text: str, changes: dict[str, str]) -> str:
    """Replace each key of `changes` in a text with its value. Fail if a key is not in the text."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def build_nginx_config(
    folder: Path, http: str, *, name: str = "nginx", connections: int = 4096
) -> str:
    """Build a whole nginx.conf from the lines of its http block."""
    return (
        f"{user_line()}\ndaemon off;\npid {folder}/{name}.pid;\n"
        f"error_log {folder}/{name}.log warn;\nworker_processes 1;\npcre_jit on;\n"
        f"events {{ worker_connections {connections}; }}\n"
        f"http {{\n{temp_paths(folder)}\n{http}\n}}\n"
    )


def copy_includes(folder: Path) -> Path:
    """Copy nginx' includes to `folder`/waitroom, with this machine's paths of static files and
    verdicts. Return their settings.conf."""
    shutil.copytree(ROOT / "nginx" / "waitroom", folder / "waitroom")
    settings = folder / "waitroom" / "settings.conf"
    text = settings.read_text().replace("/etc/nginx/waitroom/static", str(ROOT / "static"))
    settings.write_text(text.replace("/run/waitroom-verdicts", str(folder / "verdicts")))
    return settings


def temp_paths(folder: Path) -> str:
    """Return nginx lines that put temporary files below the folder."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "\n".join(f"    {kind}_temp_path {folder}/tmp/{kind};" for kind in kinds)


def nginx_binary() -> str:
    return shutil.which("nginx") or "/usr/sbin/nginx"


def user_line() -> str:
    return "user root;" if os.geteuid() == 0 else ""


def answers(url: str) -> bool:
    """Return True if a server responds with a success or with 404."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False


NGINX_HTTP = """\
    access_log off;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 512; }}
    {http}
    include waitroom/http.conf;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        {server}
        include waitroom/server.conf;
        {locations}
    }}
    {servers}"""

ORIGIN_HTTP = """\
    log_format load '$msec $http_x_load_visitor';
    access_log off;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        {lines}
    }}"""
