"""The two systems that are measured, Waitroom and the library arq, and the target of both: an nginx
that answers 200 and counts its calls."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from loadtest.callers import Connection, Connections, ask_each, prepare
from loadtest.databases import Database
from tests.support.processes import WAITROOM, Process, free_port, wait_until
from tests.support.service import Service
from tests.support.site import ROOT, Servers, answers, make_folder, origin_command

_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
#: How many calls each system makes at a time.
CONCURRENCY = 50
#: How many jobs one request submits as a list, and how many callers send lists at a time.
LIST_LENGTH, LIST_CALLERS = 100, 2
#: How often a single job is polled, in seconds.
POLL_S = 0.002

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


_LOCATIONS = 'location / { return 200 "ok"; } location = /count { stub_status; }'


class CountingNginx(Servers):
    """An nginx that is called at `url`."""

    def _start(self) -> None:
        self.folder, self._port = make_folder(self._stack), free_port()
        self.url = f"http://127.0.0.1:{self._port}/"
        nginx = self.run("nginx", origin_command(self.folder, self._port, _LOCATIONS))
        wait_until(lambda: answers(self.url), "nginx", of=nginx)

    @asynccontextmanager
    async def counter(self) -> "AsyncIterator[Counter]":
        connection = await Connection.open(self.url)
        try:
            yield Counter(connection)
        finally:
            connection.close()


class Counter:
    """Counts the calls of the target since `start`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: The target's requests before the counted calls: earlier ones, and those of this counter.
        self._others = 0

    async def start(self) -> None:
        self._others = await self._count_requests()

    async def count_calls(self) -> int:
        self._others += 1
        return await self._count_requests() - self._others

    async def _count_requests(self) -> int:
        body = await self._connection.ask(b"GET /count HTTP/1.1\r\nHost: target\r\n\r\n")
        return int(body.split(b"requests\n")[1].split()[2])


class System:
    """A system. `url` and `bell` are the URLs of its targets."""

    def __init__(self, name: str, *, url: str, bell: str) -> None:
        self.name = name
        #: The ids of the processes by kind. Those of a worker are there while it runs.
        self.pids: dict[str, list[int]] = {}
        self._url, self._bell = url, bell
        self._worker: Process | None = None

    def _make_worker(self) -> Process:
        raise NotImplementedError

    def start_worker(self) -> None:
        self._worker = self._make_worker()
        self._worker.start()
        self.pids["worker"] = [self._worker.pid]

    def stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
        self.pids.pop("worker", None)

    async def submit(self, count: int, callers: int) -> tuple[float, float]:
        """Submit jobs. Return the times of the first and the last submission."""
        raise NotImplementedError

    async def run_job(self, *, is_watched: bool) -> tuple[float, float]:
        """Submit a job. Return the times of its submission, and of when its caller saw that it was
        done: by polling all the time (is_watched), or in the system's own way to wait."""
        raise NotImplementedError

    async def count_done(self) -> int:
        """Return how many jobs were done since the last call."""
        raise NotImplementedError


class Waitroom(System):
    """A replica and a runner."""

    def __init__(self, store: str, database: Database, *, url: str, bell: str) -> None:
        super().__init__(f"Waitroom, {_NAMES[database.kind]}", url=url, bell=bell)
        self._store, self._database = store, database
        self._done = 0

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        [url] = self._service.urls
        self._connections = Connections(url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connections.close()
        self.stop_worker()
        await asyncio.to_thread(self._service.__exit__)

    def _start(self) -> None:
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

    def _make_worker(self) -> Process:
        command = [WAITROOM, "run-jobs", "--config", self._config]
        return Process(command, log=self._service.folder / "runner.log")

    async def submit(self, count: int, callers: int) -> tuple[float, float]:
        return await self._send([self._submission("bench", n) for n in range(count)], callers)

    async def submit_list(self, count: int) -> tuple[float, float]:
        """Submit jobs in lists of LIST_LENGTH, by two callers, so that the replica has work."""
        jobs = [self._job("bench", number) for number in range(count)]
        lists = [jobs[first : first + LIST_LENGTH] for first in range(0, count, LIST_LENGTH)]
        requests = [prepare("POST", "jobs/bulk/submit", {"jobs": some}) for some in lists]
        return await self._send(requests, LIST_CALLERS)

    async def _send(self, requests: list[bytes], callers: int) -> tuple[float, float]:
        await self._connections.open(callers)
        began = time.monotonic()
        await ask_each(self._connections.ask, requests, callers)
        return began, time.monotonic()

    async def run_job(self, *, is_watched: bool) -> tuple[float, float]:
        request, began = self._submission("bell", 0), time.monotonic()
        job = json.loads(await self._connections.ask(request))
        wait = "" if is_watched else "?wait=20"
        while job["state"] != "completed":
            if is_watched:
                await asyncio.sleep(POLL_S)
            status = prepare("GET", f"jobs/{job['id']}{wait}")
            job = json.loads(await self._connections.ask(status))
        return began, time.monotonic()

    async def count_done(self) -> int:
        answer = json.loads(await self._connections.ask(prepare("GET", "targets")))
        before = self._done
        self._done = sum(target["jobs"].get("completed", 0) for target in answer["targets"])
        return self._done - before

    def _submission(self, target: str, number: int) -> bytes:
        return prepare("POST", "jobs", self._job(target, number))

    def _job(self, target: str, number: int) -> dict[str, Any]:
        return {"target": f"{self._database.kind}-{target}", "body": {"number": number}}


class Arq(System):
    """A worker and a program that enqueues. `poll_delay` is how often the worker polls its queue,
    in seconds; arq's default is 0.5."""

    def __init__(  # noqa: PLR0913
        self, python: str, store: str, folder: Path, *, url: str, bell: str, poll_delay: float
    ) -> None:
        super().__init__("arq", url=url, bell=bell)
        self.poll_delay = poll_delay
        self._command = [python, str(Path(__file__).with_name("arq_side.py"))]
        self._address, self._folder = store, folder

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

    def _make_worker(self) -> Process:
        words = ["worker", self._address, str(CONCURRENCY), str(self.poll_delay)]
        return Process([*self._command, *words], log=self._folder / "arq.log")

    async def submit(self, count: int, callers: int) -> tuple[float, float]:
        began, ended = await self._ask("submit", self._url, count, callers)
        return began, ended

    async def run_job(self, *, is_watched: bool) -> tuple[float, float]:
        began, ended = await self._ask("run_job", self._bell, POLL_S if is_watched else 0.5)
        return began, ended

    async def count_done(self) -> int:
        return int(await self._ask("delete_results"))


def install_arq() -> str:
    """Return the Python interpreter of an environment with arq, which is created if missing."""
    requirements = Path(__file__).with_name("arq.txt")
    folder = ROOT / ".run" / "arq"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.is_file() or stamp.read_text() != requirements.read_text():
        print("Installing arq into .run/arq", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
        stamp.write_text(requirements.read_text())
    return str(python)
