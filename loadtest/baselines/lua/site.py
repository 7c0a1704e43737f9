"""A site with the Lua design in place of replicas and nginx with the includes."""

import subprocess
from pathlib import Path
from typing import Any

import redis

from tests.support.processes import Process
from tests.support.site import Site, fill_placeholders, nginx_binary, temp_paths, user_line

LUA = Path(__file__).resolve().parent

#: Number of connections that may wait for being accepted. Each request in progress may open one,
#: and nginx fails if the socket accepts no more.
REDIS_BACKLOG = 4096


class LuaSite(Site):
    """A redis-server, an origin and nginx with the Lua design. `origin` is that of Site."""

    def __init__(self, *, max_active: int, origin: str) -> None:
        super().__init__(replicas=0, origin=origin)
        self.max_active = max_active

    def flush(self) -> None:
        """Empty the room and its queue. The cap does not change, and cookies stay valid."""
        self._client.flushall()
        self._client.set("queue:config:max_active", self.max_active)

    @property
    def active(self) -> int:
        """Return the number of visitors inside, according to the design's counter."""
        return int(self._client.get("queue:active:count") or 0)

    @property
    def authorized(self) -> int:
        """Return the number of admitted visitors. The excess over `max_active` is the overshoot."""
        return int(self._client.scard("queue:authorized:set"))

    @property
    def waiting(self) -> int:
        return int(self._client.zcard("queue:zset"))

    def _start(self) -> None:
        super()._start()
        # Requests of Site to nginx have changed the room.
        self.flush()

    def _start_redis(self, *options: str) -> None:
        super()._start_redis("--tcp-backlog", str(REDIS_BACKLOG), *options)
        self._client: Any = redis.Redis(unix_socket_path=str(self.redis_socket))
        self._stack.callback(self._client.close)
        self.flush()

    def _start_gate(self) -> Process:
        config = self.folder / "nginx.conf"
        text = fill_placeholders(
            (LUA / "nginx.conf").read_text(),
            user=user_line(),
            modules=_find_modules(),
            temporary=temp_paths(self.folder),
            lua=LUA,
            redis=self.redis_socket,
            port=self.port,
            origin=self.origin_port,
            folder=self.folder,
        )
        config.write_text(text)
        self.nginx = self._run("nginx", [nginx_binary(), "-p", str(self.folder), "-c", str(config)])
        return self.nginx


def _find_modules() -> Path:
    """Return the folder of this nginx's dynamic modules."""
    done = subprocess.run([nginx_binary(), "-V"], capture_output=True, text=True, check=True)
    for option in done.stderr.split():
        name, _, value = option.partition("=")
        if name == "--modules-path":
            return Path(value)
    return Path("/usr/lib/nginx/modules")
