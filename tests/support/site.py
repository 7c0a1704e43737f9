"""A whole site: redis-server, replicas, an origin and nginx, in a temporary folder.

Every server listens on a free port or a socket of its own and is stopped by its pid.
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
from tests.support.processes import WAITROOM, Process, free_port, listens, wait_until

ROOT = Path(__file__).resolve().parents[2]
SECRET = "test-secret-test-secret-test-secret-00"
ADMIN_TOKEN = "test-admin-token-0000"

#: In a location that keeps its connections to the origin.
TO_ORIGIN = ("proxy_http_version 1.1;", 'proxy_set_header Connection "";')


def gated(location: str, *lines: str, room: str = "shop", to: str = "http://origin") -> str:
    """Return a location with a waiting room; `lines` come after the include."""
    return "\n".join(
        (
            f"location {location} {{",
            f"    set $waitroom_room {room};",
            "    include waitroom/location.conf;",
            *(f"    {line}" for line in lines),
            f"    proxy_pass {to};" if to else "",
            "}",
            "",
        )
    )


#: The locations of the quick start.
PLAIN_LOCATION = gated("/") + gated("/done", "include waitroom/release.conf;")


#: A slow store is available: this machine may be busy with other tests.
PATIENT = {"store_timeout": 3}
#: The product's default, for tests in which Redis hangs, and for measurements.
BY_DEFAULT = {"store_timeout": Settings.model_fields["store_timeout"].default}


class Servers(AbstractContextManager[Any]):
    """Processes that live within a `with` block. Subclasses create `folder` and start them."""

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

    def _run(self, name: str, command: list[str]) -> Process:
        process = Process(command, log=self.folder / f"{name}.log")
        return self._stack.enter_context(process)


class SocketRedis(Servers):
    """A redis-server that listens on a Unix socket and writes nothing to the disk."""

    def __init__(self, *options: str, folder: Path | None = None) -> None:
        super().__init__()
        self._options, self._folder = options, folder

    def _start(self) -> None:
        self.folder = self._folder or make_folder(self._stack)
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.process = self._run("redis", redis_command(self.socket, *self._options))
        wait_until(lambda: listens(self.socket), "redis-server", of=self.process)

    @property
    def pid(self) -> int:
        return self.process.pid


class Site(Servers):
    """Redis, replicas, an origin and nginx; `url` is nginx, `edges` and `ops` are the replicas.

    `rooms`, `leases` and `limits` are settings by name. `http`, `server` and `locations` are nginx
    lines at those levels; `server` comes before the include, `locations` after it. `relay` creates
    a relay between nginx and a replica from the replica's host:port; see `relays`. `sockets`:
    replicas listen on unix sockets, as installed ones do, and have no `edges`. `edges` are further
    addresses of replicas for nginx. `origin` are server-level lines of an nginx in place of
    tests/support/origin.py, which costs little. `store` is the URL of a Redis that runs already.
    `servers` are configurations by server name. `stamps`: nginx has its key. In nginx lines @port@
    is nginx's port, @origin@ the origin's, @folder@ the site's folder.
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
        self.origin = self._run("origin", self._origin_command())
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.gate = self._start_gate()
        origin = f"http://127.0.0.1:{self.origin_port}/"
        wait_until(lambda: answers(origin), "the origin", of=self.origin)
        for ops, replica in zip(self.ops, self.replicas, strict=True):
            wait_until(lambda ops=ops: answers(f"{ops}/readyz"), "a replica", of=replica)
        wait_until(lambda: answers(f"{self.url}/_waitroom/"), "the gate", of=self.gate)

    def _start_gate(self) -> Process:
        """Start the proxy that visitors reach; tests/proxies/ has others than nginx."""
        self._write_nginx()
        command = [nginx_binary(), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]
        self.nginx = self._run("nginx", command)
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
        self.replicas.append(self._run(f"replica-{number}", command))
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
        includes = self.folder / "waitroom"
        shutil.copytree(ROOT / "nginx" / "waitroom", includes)
        settings = (includes / "settings.conf").read_text()
        servers = "\n".join(f"    server {each} max_fails=0;" for each in self._upstreams)
        settings = re.sub(r"    server 127\.0\.0\.1:8400 max_fails=0;", servers, settings)
        settings = settings.replace("/etc/nginx/waitroom/static", str(ROOT / "static"))
        settings = settings.replace("/run/waitroom-verdicts", str(self.folder / "verdicts"))
        (includes / "settings.conf").write_text(settings)
        shutil.copy(ROOT / "nginx" / "waitroom-files.conf", self.folder)
        if self._stamps:
            (self.folder / "waitroom-stamp.conf").write_text(build_key_file([SECRET]))
        text = NGINX.format(
            user=user_line(), temporary=TEMPORARY.format(folder=self.folder),
            folder=self.folder, port=self.port, origin=self.origin_port,
            http=self._http, server=self._server, locations=self._locations,
            servers="\n".join(
                f"server {{ listen 127.0.0.1:{self.port}; server_name {name};\n{lines}\n}}"
                for name, lines in self._servers.items()
            ),
        )  # fmt: skip
        text = fill(text, port=self.port, origin=self.origin_port, folder=self.folder)
        (self.folder / "nginx.conf").write_text(text)

    def admin(self, method: str, path: str, body: object = None, *, replica: int = 0) -> Any:
        """Make an admin call. Return its document."""
        request = urllib.request.Request(
            f"{self.ops[replica]}/admin{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def room(self, name: str = "shop") -> dict[str, Any]:
        document: dict[str, Any] = self.admin("GET", f"/rooms/{name}")
        return document


def make_folder(stack: ExitStack) -> Path:
    """Create a temporary folder that is deleted with `stack`."""
    # Not under pytest's folder: a unix socket's path has 107 bytes at most.
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
    """Write the configuration of an nginx in place of the site. Return its command."""
    config = folder / "origin.conf"
    config.write_text(
        ORIGIN.format(
            user=user_line(), temporary=TEMPORARY.format(folder=folder),
            folder=folder, port=port, lines=fill(lines, folder=folder),
        )
    )  # fmt: skip
    return [nginx_binary(), "-p", str(folder), "-c", str(config)]


def fill(text: str, **values: object) -> str:
    """Replace each @name@ in a text by its value."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def replace_each(text: str, changes: dict[str, str]) -> str:
    """Replace each key in a text, which must have it."""
    for there, here in changes.items():
        assert there in text, there
        text = text.replace(there, here)
    return text


def build_nginx_config(folder: Path, text: str) -> str:
    """Return a whole nginx configuration around lines of the http level."""
    return (
        f"{user_line()}\ndaemon off;\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/nginx.log warn;\nworker_processes 1;\n"
        "events { worker_connections 4096; }\n"
        f"http {{\n{TEMPORARY.format(folder=folder)}\n{text}\n}}\n"
    )


def nginx_binary() -> str:
    return shutil.which("nginx") or "/usr/sbin/nginx"


def user_line() -> str:
    return "user root;" if os.geteuid() == 0 else ""


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False


NGINX = """\
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_processes 1;
pcre_jit on;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    {temporary}
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 512; }}
    {http}
    include waitroom/http.conf;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        {server}
        include waitroom/server.conf;
        {locations}
    }}
    {servers}
}}
"""

TEMPORARY = """\
client_body_temp_path {folder}/tmp/body;
    proxy_temp_path {folder}/tmp/proxy;
    fastcgi_temp_path {folder}/tmp/fastcgi;
    uwsgi_temp_path {folder}/tmp/uwsgi;
    scgi_temp_path {folder}/tmp/scgi;"""

ORIGIN = """\
{user}
daemon off;
pid {folder}/origin.pid;
error_log {folder}/origin.log warn;
worker_processes 1;
events {{ worker_connections 8192; }}
http {{
    log_format load '$msec $http_x_load_visitor';
    access_log off;
    {temporary}
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        {lines}
    }}
}}
"""
