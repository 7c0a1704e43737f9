"""The Lua design with its own redis-server and origin, in a temporary folder.

Every server listens on a free port or a socket of its own and is stopped by its pid.
"""

import subprocess
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import redis

from tests.support.processes import Process, free_port, listens, wait_until
from tests.support.site import (
    TEMPORARY,
    answers,
    fill,
    make_folder,
    nginx_binary,
    origin_command,
    redis_command,
    user_line,
)

LUA = Path(__file__).resolve().parent

#: Connections that may wait to be taken. nginx does not wait when a unix socket has no room
#: for one more, and each request in flight may open one.
REDIS_BACKLOG = 4096


class LuaSite(AbstractContextManager["LuaSite"]):
    """Starts everything on entry; `url` is nginx.

    `origin` are server-level lines of the origin's nginx, as for tests.support.site.Site.
    """

    def __init__(self, *, max_active: int, origin: str) -> None:
        self.max_active = max_active
        self._origin = origin
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def flush(self) -> None:
        """Nobody is inside and nobody waits; the cap stays. Cookies given before still pass."""
        self._client.flushall()
        self._client.set("queue:config:max_active", self.max_active)

    @property
    def active(self) -> int:
        """How many the design believes to be inside."""
        return int(self._client.get("queue:active:count") or 0)

    @property
    def authorized(self) -> int:
        """How many were let in; above `max_active` is the overshoot."""
        return int(self._client.scard("queue:authorized:set"))

    @property
    def waiting(self) -> int:
        return int(self._client.zcard("queue:zset"))

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        self.redis_socket = self.folder / "redis.sock"
        self.redis = self._run(
            "redis", redis_command(self.redis_socket, "--tcp-backlog", str(REDIS_BACKLOG))
        )
        wait_until(lambda: listens(self.redis_socket), "redis-server")
        self._client: Any = redis.Redis(unix_socket_path=str(self.redis_socket))
        self._stack.callback(self._client.close)
        self.flush()
        self.origin_port = free_port()
        self.origin = self._run(
            "origin", origin_command(self.folder, self.origin_port, self._origin)
        )
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._write_nginx()
        self.nginx = self._run(
            "nginx",
            [nginx_binary(), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")],
        )
        wait_until(lambda: answers(f"http://127.0.0.1:{self.origin_port}/"), "the origin")
        wait_until(lambda: answers(f"{self.url}/queue/waiting.html"), f"nginx: {self.nginx.output}")

    def _write_nginx(self) -> None:
        text = fill(
            (LUA / "nginx.conf").read_text(),
            user=user_line(),
            modules=_modules(),
            temporary=TEMPORARY.format(folder=self.folder),
            lua=LUA,
            redis=self.redis_socket,
            port=self.port,
            origin=self.origin_port,
            folder=self.folder,
        )
        (self.folder / "nginx.conf").write_text(text)

    def _run(self, name: str, command: list[str]) -> Process:
        process = Process(command, log=self.folder / f"{name}.log")
        return self._stack.enter_context(process)


def _modules() -> Path:
    """Where this nginx keeps its dynamic modules."""
    done = subprocess.run([nginx_binary(), "-V"], capture_output=True, text=True, check=True)
    for option in done.stderr.split():
        name, _, value = option.partition("=")
        if name == "--modules-path":
            return Path(value)
    return Path("/usr/lib/nginx/modules")
