"""Both systems, as the measurement asks them: to take jobs, to work, to do a single job."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from loadtest.databases import Server
from tests.support.processes import Process
from tests.support.service import TOKEN, Service

ROOT = Path(__file__).resolve().parents[2]
WAITROOM = str(Path(sys.executable).parent / "waitroom")
_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
#: Calls under way at a time, of each system.
CONCURRENCY = 50
#: Between two looks at a single job, by which it is seen done, seconds.
LOOK_S = 0.002

_TARGETS = """
jobs = "{database}"
[targets.{kind}-bench]
url = "{url}"
private = true
concurrency = {concurrency}
[targets.{kind}-bell]
url = "{bell}"
private = true
concurrency = {concurrency}
"""


class System(Protocol):
    name: str
    #: Processes that take part, by what they are; the worker's while it runs.
    pids: dict[str, list[int]]

    def start_worker(self) -> None: ...
    def stop_worker(self) -> None: ...
    async def submit(self, count: int, callers: int) -> tuple[float, float]:
        """Moments of the first and of the last."""
        ...

    async def single(self, *, is_watched: bool) -> tuple[float, float]:
        """Moments of the submission and of when it was seen done: by somebody who looks all
        the time (is_watched), or waits for it in the way that the system has for that."""
        ...

    async def done(self) -> int:
        """How many jobs were done since this was asked."""
        ...


class Waitroom:
    """A replica and a runner."""

    def __init__(self, store: str, database: Server, *, url: str, bell: str) -> None:
        self.name = f"Waitroom, {_NAMES[database.kind]}"
        self.pids: dict[str, list[int]] = {}
        self._store, self._database = store, database
        self._url, self._bell = url, bell
        self._stack = AsyncExitStack()
        self._runner: Process | None = None
        self._done = 0

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        [url] = self._service.urls
        self._connections = [await Connection.open(url)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        self.stop_worker()
        await asyncio.to_thread(self._service.__exit__)

    def _start(self) -> None:
        self._database.start()
        text = _TARGETS.format(
            database=self._database.url, url=self._url, bell=self._bell,
            concurrency=CONCURRENCY, kind=self._database.kind,
        )  # fmt: skip
        self._service = Service(text, replicas=1, store=self._store)
        self._service.__enter__()
        self._config = str(self._service.folder / "replica-0.toml")
        if self._database.kind != "sqlite":
            command = [WAITROOM, "migrate", "--config", self._config]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.pids["replica"] = [replica.pid for replica in self._service.replicas]
        self.pids["caller"] = [os.getpid()]
        file = self._database.folder / "data" / "postmaster.pid"
        if file.is_file():
            self.pids["SQL"] = [int(file.read_text().split()[0])]

    def start_worker(self) -> None:
        command = [WAITROOM, "run-jobs", "--config", self._config]
        self._runner = Process(command, log=self._service.folder / "runner.log")
        self._runner.start()
        self.pids["worker"] = [self._runner.pid]

    def stop_worker(self) -> None:
        if self._runner is not None:
            self._runner.stop()
        self._runner = None
        self.pids.pop("worker", None)

    async def submit(self, count: int, callers: int) -> tuple[float, float]:
        [url] = self._service.urls
        while len(self._connections) < callers:
            self._connections.append(await Connection.open(url))
        requests = [self._submission("bench", number) for number in range(count)]
        left = iter(requests)
        began = time.monotonic()

        async def submit_some(connection: Connection) -> None:
            for request in left:
                await connection.ask(request)

        await asyncio.gather(*map(submit_some, self._connections[:callers]))
        return began, time.monotonic()

    async def single(self, *, is_watched: bool) -> tuple[float, float]:
        connection = self._connections[0]
        request, began = self._submission("bell", 0), time.monotonic()
        job = json.loads(await connection.ask(request))
        wait = "" if is_watched else "?wait=20"
        while job["state"] != "completed":
            if is_watched:
                await asyncio.sleep(LOOK_S)
            job = json.loads(await connection.ask(_request("GET", f"jobs/{job['id']}{wait}")))
        return began, time.monotonic()

    async def done(self) -> int:
        answer = json.loads(await self._connections[0].ask(_request("GET", "targets")))
        counts = [target["jobs"].get("completed", 0) for target in answer["targets"]]
        since: int = sum(counts) - self._done
        self._done += since
        return since

    def _submission(self, target: str, number: int) -> bytes:
        named = f"{self._database.kind}-{target}"
        return _request("POST", "jobs", {"target": named, "body": {"number": number}})


class Connection:
    """A keep-alive connection. What is asked is written out before."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        host, _, port = urlsplit(url).netloc.partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises RuntimeError for a refusal."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        body = await self._reader.readexactly(int(found[1]) if found else 0)
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"the replica said {head[:40]!r} {body[:400]!r}")
        return body

    def close(self) -> None:
        self._writer.close()


def _request(method: str, path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} /v1/{path} HTTP/1.1\r\nHost: replica\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Arq:
    """A worker and a program that enqueues. `poll_delay`: between two looks of the worker at its
    queue, seconds; arq's own is half a second."""

    def __init__(  # noqa: PLR0913
        self, python: str, store: str, folder: Path, *, url: str, bell: str, poll_delay: float
    ) -> None:
        self.name = "arq"
        self.pids: dict[str, list[int]] = {}
        self.poll_delay = poll_delay
        self._command = [python, str(Path(__file__).with_name("arq_side.py"))]
        self._address = store
        self._folder = folder
        self._url, self._bell = url, bell
        self._worker: Process | None = None

    async def __aenter__(self) -> Self:
        self._caller = await asyncio.create_subprocess_exec(
            *self._command, "caller", self._address,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.pids["caller"] = [self._caller.pid]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop_worker()
        assert self._caller.stdin is not None
        self._caller.stdin.close()
        await self._caller.wait()

    async def _ask(self, *words: Any) -> Any:
        assert self._caller.stdin is not None
        assert self._caller.stdout is not None
        self._caller.stdin.write(f"{json.dumps(words)}\n".encode())
        line = await self._caller.stdout.readline()
        if not line:
            raise RuntimeError("arq's caller ended")
        return json.loads(line)

    def start_worker(self) -> None:
        words = ["worker", self._address, str(CONCURRENCY), str(self.poll_delay)]
        self._worker = Process([*self._command, *words], log=self._folder / "arq.log")
        self._worker.start()
        self.pids["worker"] = [self._worker.pid]

    def stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
        self.pids.pop("worker", None)

    async def submit(self, count: int, callers: int) -> tuple[float, float]:
        began, ended = await self._ask("submit", self._url, count, callers)
        return began, ended

    async def single(self, *, is_watched: bool) -> tuple[float, float]:
        began, ended = await self._ask("single", self._bell, LOOK_S if is_watched else 0.5)
        return began, ended

    async def done(self) -> int:
        return int(await self._ask("results"))


def environment_of_arq() -> str:
    """The interpreter of an environment that has arq, made where it is missing."""
    wanted = Path(__file__).with_name("arq.txt").read_text()
    folder = ROOT / ".run" / "arq"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.is_file() or stamp.read_text() != wanted:
        print("Installing arq into .run/arq", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "-r", str(Path(__file__).with_name("arq.txt"))],
            check=True,
        )  # fmt: skip
        stamp.write_text(wanted)
    return str(python)
