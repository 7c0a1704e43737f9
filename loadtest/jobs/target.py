"""What both systems use: a redis-server; and what is called: an nginx that says 200 and counts, and
a bell that says when it was rung."""

import asyncio
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from typing import Self

from tests.support.processes import Process, free_port, listens, wait_until
from tests.support.site import answers, make_folder, redis_command

_CONFIG = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1; {user}
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 "ok"; }}
        location = /count {{ stub_status; }}
    }}
}}
"""
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Redis(AbstractContextManager["Redis"]):
    """A redis-server that keeps nothing on the disk."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.folder = make_folder(self._stack)
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        process = Process(redis_command(self.socket), log=self.folder / "redis.log")
        self._stack.enter_context(process)
        wait_until(lambda: listens(self.socket), f"redis-server: {process.output}")
        self.pid = process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Target(AbstractContextManager["Target"]):
    """An nginx; `url` is where it is called."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        folder, port = make_folder(self._stack), free_port()
        file = folder / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        file.write_text(_CONFIG.format(folder=folder, port=port, user=user))
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if nginx is None:
            raise RuntimeError("nginx is not installed; run make bench-jobs")
        command = [nginx, "-p", str(folder), "-c", str(file)]
        self._process = self._stack.enter_context(Process(command, log=folder / "nginx.log"))
        self.url = f"http://127.0.0.1:{port}/"
        self._port = port
        wait_until(lambda: answers(self.url), f"nginx: {self._process.output}")

    @asynccontextmanager
    async def counter(self) -> "AsyncIterator[Counter]":
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield Counter(reader, writer)
        finally:
            writer.close()


class Counter:
    """How often the target was called since it was made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._before = 0
        self._asked = 0

    async def start(self) -> None:
        self._before = await self._requests()
        self._asked = 0

    async def calls(self) -> int:
        return await self._requests() - self._before - self._asked

    async def _requests(self) -> int:
        self._asked += 1
        self._writer.write(b"GET /count HTTP/1.1\r\nHost: target\r\n\r\n")
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        assert found, head
        body = await self._reader.readexactly(int(found[1]))
        return int(body.split(b"requests\n")[1].split()[2])


class Bell:
    """A target for one call at a time. `url`; and when it was called last, by the monotonic
    clock."""

    rung_s = 0.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        port = free_port()
        server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{port}/"
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.rung_s = time.monotonic()
                found = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(found[1]) if found else 0)
                writer.write(_OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
