"""Creates tests/upgrade/snapshot/: the data that an earlier version's replica and worker stored.

Run it with the Python of that version, in a checkout of it, with redis-server on the PATH:

    git worktree add /tmp/before VERSION && cd /tmp/before && make install
    .venv/bin/python …/tests/upgrade/make_snapshot.py …/tests/upgrade/snapshot

It uses only the waitroom command and the HTTP API of that version. All files that it writes are
text, in which a test moves timestamps to the present.
"""

import contextlib
import http.server
import json
import operator
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import redis

SECRET = "snapshot-secret-snapshot-secret-snapshot"
SERVICE, ADMIN = "snapshot-service-token-0000", "snapshot-admin-token-0000"
LIMITS = ("fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "concurrency")
#: A settings file, in which this script and tests replace each @name@ by a value.
CONFIG = f"""\
store = "@store@"
secret_keys = ["{SECRET}"]
service_token = "{SERVICE}"
admin_token = "{ADMIN}"
edge_listen = "127.0.0.1:@edge@"
ops_listen = "127.0.0.1:@ops@"
store_timeout = "10s"
history = "sqlite:///@folder@/history.db"
jobs = "sqlite:///@folder@/jobs.db"

[rooms.shop]
total_active_users = 3
session_duration = "1h"
heartbeat_timeout = "10m"
claim_window = "10m"
classes = {{ vip = {{ head_start = "5m" }} }}

[leases.title]
term = "1h"
renewable = true

[leases.desk]
term = "1h"
capacity = 2

[targets.images]
url = "http://127.0.0.1:@target@/"
private = true
concurrency = 1
rate = 1000

[targets.reports]
url = "http://127.0.0.1:@target@/"
private = true
kinds = ["online"]
concurrency = 1
claim_window = "10m"
""" + "".join(
    f"""
[limits.{name}]
algorithm = "{name}"
limit = 5
key = "{{who}}"
{'lease = "1h"' if name == "concurrency" else 'window = "30d"'}
"""
    for name in LIMITS
)


class Target(http.server.BaseHTTPRequestHandler):
    """A target of jobs, which responds with the body of the request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A client of a replica's two listeners, which returns the JSON bodies of responses."""

    def __init__(self, edge: int, ops: int) -> None:
        self._edge, self._ops = f"http://127.0.0.1:{edge}", f"http://127.0.0.1:{ops}"

    def ask(self, method: str, path: str, body: Any = None, token: str = SERVICE) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._ops + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=40) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{method} {path}: {error} {error.read().decode()}") from error

    def visit(self, path: str, cookie: str = "", method: str = "GET") -> tuple[int, str, Any]:
        """Send a visitor's request to the edge. Return the status, the visitor's cookie, and the
        JSON body or None."""
        headers = {"X-Waitroom-Room": "shop", "Accept": "text/html", "Cookie": cookie}
        request = urllib.request.Request(self._edge + path, headers=headers, method=method)
        try:
            response = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            body = response.read()
            cookie = response.headers.get("Set-Cookie", "").partition(";")[0] or cookie
            is_json = "json" in response.headers.get("Content-Type", "")
            return response.status, cookie, json.loads(body) if is_json else None


def fill_room(site: Site) -> dict[str, str]:
    """Create visitors in every state, and an operator's change. Return their cookies by state."""
    cookies = {}
    for name in ("inside", "left", "released", "claimed", "called", "first", "second"):
        _, cookies[name], _ = site.visit("/check")
    visitors = site.ask("GET", "/admin/rooms/shop/sessions", token=ADMIN)["sessions"]
    released = cookies["released"].split("~")[1]
    assert released in {session["visitor"] for session in visitors}, visitors
    site.ask("POST", f"/admin/rooms/shop/visitors/{released}/release", {}, ADMIN)
    state = "waiting"
    while state != "admitted":  # A slot becomes free when no proxy caches its verdict any more.
        time.sleep(2)
        _, cookies["claimed"], status = site.visit("/_waitroom/shop/status", cookies["claimed"])
        state = status["state"]
    site.visit("/_waitroom/shop/leave", cookies["left"], "POST")
    site.ask("PATCH", "/admin/rooms/shop", {"message": "Back in ten minutes"}, ADMIN)
    return cookies


def fill_jobs(site: Site) -> dict[str, Any]:
    """Create jobs that are completed, waiting and called. Return their ids."""

    def submit(target: str, number: int, **more: Any) -> str:
        order = {"target": target, "idempotency_key": f"{target}-{number}", **more}
        return site.ask("POST", "/v1/jobs", order)["id"]

    done = submit("images", 0, method="POST", body={"number": 0})
    assert site.ask("GET", f"/v1/jobs/{done}?wait=30")["state"] == "completed"
    site.ask("PATCH", "/v1/targets/images", {"paused": True}, ADMIN)
    waiting = [submit("images", n, method="POST", body={"number": n}) for n in (1, 2, 3)]
    online = [submit("reports", n) for n in range(2)]
    assert site.ask("GET", f"/v1/jobs/{online[0]}?wait=30")["permit"]
    return {"done": done, "waiting": waiting, "online": online}


def fill(site: Site) -> dict[str, Any]:
    """Create data of all kinds: in rooms, jobs, leases and limits. Return what tests need of it."""
    made: dict[str, Any] = {"cookies": fill_room(site), "jobs": fill_jobs(site)}
    for holder in ("one", "two", "three"):
        made[f"title.{holder}"] = site.ask("POST", "/v1/leases/title/A", {"holder": holder})
    for holder in ("one", "two"):
        made[f"desk.{holder}"] = site.ask("POST", "/v1/leases/desk/1", {"holder": holder})
    for name in LIMITS:
        for number in range(1 if name == "leaky_bucket" else 3):
            call = {"fields": {"who": "ann"}, "id": f"{name}-{number}"}
            assert site.ask("POST", f"/v1/limits/{name}/acquire", call)["allowed"]
    site.ask("PUT", "/v1/limits/token_bucket/values/bob", {"limit": 2}, ADMIN)
    return made


def describe(site: Site) -> dict[str, list[str]]:
    """Return the names of the parameters and body fields of each endpoint in the OpenAPI document,
    by its method and path."""
    document, endpoints = site.ask("GET", "/openapi.json"), {}

    def resolve(part: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in part:
            part = reduce(operator.getitem, part["$ref"].removeprefix("#/").split("/"), document)
        return part

    for path, methods in document["paths"].items():
        for method in sorted(methods.keys() & {"get", "post", "put", "patch", "delete"}):
            operation = methods[method]
            parameters = methods.get("parameters", []) + operation.get("parameters", [])
            parts = map(resolve, parameters)
            names = {part["name"] for part in parts if part["in"] in {"query", "header"}}
            content = resolve(operation.get("requestBody", {})).get("content", {})
            for media in content.values():
                schema = resolve(media["schema"])
                choices = schema.get("oneOf", []) + schema.get("anyOf", [])
                for variant in (schema, *map(resolve, choices)):
                    names |= set(variant.get("properties", {}))
            endpoints[f"{method.upper()} {re.sub('{[^}]*}', '{}', path)}"] = sorted(names)
    return endpoints


def commands_of(store: redis.Redis) -> list[list[Any]]:
    """Return Redis commands that create the store's keys again, with their times to live."""
    commands: list[list[Any]] = []
    for key in sorted(store.scan_iter(count=1000)):
        kind = store.type(key)
        if kind == "zset":
            scores = store.zrange(key, 0, -1, withscores=True)
            pairs = [(repr(int(at) if at == int(at) else at), member) for member, at in scores]
            commands.append(["ZADD", key, *_flatten(pairs)])
        elif kind == "hash":
            commands.append(["HSET", key, *_flatten(sorted(store.hgetall(key).items()))])
        elif kind == "list":
            commands.append(["RPUSH", key, *store.lrange(key, 0, -1)])
        elif kind == "set":
            commands.append(["SADD", key, *sorted(store.smembers(key))])
        elif kind == "stream":
            for id_, fields in store.xrange(key):
                commands.append(["XADD", key, id_, *_flatten(fields.items())])
            commands += [
                ["XGROUP", "CREATE", key, group["name"], group["last-delivered-id"], "MKSTREAM"]
                for group in store.xinfo_groups(key)
            ]
            commands.append(["XSETID", key, store.xinfo_stream(key)["last-generated-id"]])
        else:
            commands.append(["SET", key, store.get(key)])
        if (left_ms := store.pttl(key)) > 0:
            commands.append(["PEXPIRE", key, left_ms])
    return commands


def _flatten(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [part for pair in pairs for part in pair]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(600):
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"),
        ):
            return
        time.sleep(0.1)
    raise SystemExit("the replica does not start")


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as stack:
        folder, edge, ops = Path(path), free_port(), free_port()
        target = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
        threading.Thread(target=target.serve_forever, daemon=True).start()
        sock = folder / "redis.sock"
        values = {
            "store": f"unix://{sock}", "edge": edge, "ops": ops, "folder": folder,
            "target": target.server_port,
        }  # fmt: skip
        config = CONFIG
        for name, value in values.items():
            config = config.replace(f"@{name}@", str(value))
        (folder / "waitroom.toml").write_text(config)

        def start(*command: str) -> subprocess.Popen[bytes]:
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.terminate)
            return process

        start("redis-server", "--port", "0", "--unixsocket", str(sock), "--save", "")
        while not sock.exists():
            time.sleep(0.1)
        waitroom = [sys.executable, "-c", "from sidecar.cli import main; main()"]
        options = ["--config", str(folder / "waitroom.toml")]
        replica = start(*waitroom, "serve", *options)
        wait_for(ops)
        runner = start(*waitroom, "run-jobs", *options)
        site = Site(edge, ops)
        made = fill(site)
        made["api"] = describe(site)
        time.sleep(5)  # Let the history be written, and let the samples of a minute have data.
        for process in (runner, replica):
            process.terminate()
            process.wait(60)
        store = redis.Redis(unix_socket_path=str(sock), decode_responses=True)
        seconds, micros = store.time()
        made["at_ms"] = seconds * 1000 + micros // 1000
        out.mkdir(exist_ok=True)
        (out / "waitroom.toml").write_text(CONFIG)
        (out / "made.json").write_text(json.dumps(made, indent=1) + "\n")
        lines = [json.dumps(command) for command in commands_of(store)]
        (out / "redis.jsonl").write_text("\n".join(lines) + "\n")
        for database in ("history", "jobs"):
            with contextlib.closing(sqlite3.connect(folder / f"{database}.db")) as connection:
                (out / f"{database}.sql").write_text("\n".join(connection.iterdump()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
