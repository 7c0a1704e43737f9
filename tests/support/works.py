"""A job system for tests: a database, a redis-server, replicas, workers and a misbehaving target.

Further functions read its traces. Timestamps are µs since 1970, by this machine's clock.
"""

import asyncio
import contextlib
import hmac
import http.client
import json
import re
import signal
import subprocess
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import delete

from sidecar.jobs.model import Job
from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.store.tables import metadata
from sidecar.storage.sql import database as sql
from sidecar.visitors.grants import Grant, Grants
from tests.support.processes import WAITROOM, Process, listens, wait_until
from tests.support.service import TOKEN, Service
from tests.support.site import ADMIN_TOKEN, SECRET, Servers, SocketRedis, make_folder
from tests.support.target import Target, run_target

#: Tokens of named clients, each of which sees only its own jobs.
TOKENS = {"shop": "test-shop-token-000000", "press": "test-press-token-00000"}
#: Number of clients that submit jobs at the same time.
CALLERS = 8

#: Systems start one after the other, because starting together takes each of them too long.
_STARTING = Lock()
_FACT = re.compile(r"^(\d+)~r~(\d+)~(\d)$")
_WORDS = re.compile(r'"([^"]*)"')
Result = TypeVar("Result")


class JobSystem(Servers):
    """Replicas, workers and a target.

    Args:
        targets: Settings of targets by name. Without a url, they call the target of this system.
        database: URL of a running server. If empty, the database is an SQLite file.
        at_a_time: Maximum number of concurrent calls of each worker.
        more: Further tables of the settings file.
    """

    def __init__(
        self,
        targets: dict[str, dict[str, Any]],
        *,
        database: str = "",
        replicas: int = 1,
        runners: int = 3,
        at_a_time: int = 100,
        more: str = "",
    ) -> None:
        super().__init__()
        self._targets, self.database = targets, database
        self._replicas, self._runners, self._at_a_time = replicas, runners, at_a_time
        self._more = more
        self.runners: list[Process] = []
        self.replicas: list[Process] = []

    def __enter__(self) -> "JobSystem":
        with _STARTING:
            return super().__enter__()

    def __exit__(self, *_: object) -> None:
        # All processes shut down at the same time.
        for process in (*self.runners, *self.replicas):
            if process.running:
                process.signal(signal.SIGTERM)
        self._stack.close()

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        self.database = self.database or f"sqlite:///{self.folder}/jobs.db"
        asyncio.run(_empty_database(self.database))
        redis = self._stack.enter_context(SocketRedis(folder=self.folder))
        self.socket, self.redis = redis.socket, redis.process
        self.target: Target = self._stack.enter_context(run_target(self.folder))
        rules = self._rules()
        self._config = self.folder / "runner.toml"
        self._config.write_text(
            f'store = "unix://{self.socket}"\nsecret_keys = ["{SECRET}"]\n'
            f'store_timeout = "2s"\n{rules}'
        )
        service = Service(rules, replicas=self._replicas, store=f"unix://{self.socket}")
        self._stack.enter_context(service)
        self.urls, self.replicas = service.urls, service.replicas
        for _ in range(self._runners):
            self.start_runner()
        for runner in self.runners:
            wait_until(lambda runner=runner: "running_jobs" in runner.output, "a runner", of=runner)

    def _rules(self) -> str:
        lines = [f'jobs = "{self.database}"', f'admin_token = "{ADMIN_TOKEN}"', "[tokens]"]
        lines += [f'{name} = "{token}"' for name, token in TOKENS.items()]
        for name, settings in self._targets.items():
            lines.append(f"[targets.{name}]")
            given = {"url": self.target.url, "private": True, **settings}
            lines += [f"{key} = {_toml(value)}" for key, value in given.items()]
        return "\n".join(lines) + f"\n{self._more}"

    def start_runner(self) -> None:
        command = [WAITROOM, "run-jobs", "--config", str(self._config),
                   "--at-a-time", str(self._at_a_time)]  # fmt: skip
        self.runners.append(self._run(f"runner-{len(self.runners)}", command))

    def another_target(self) -> Target:
        """Start another target, and return it."""
        folder = self.folder / f"target-{time.monotonic_ns()}"
        folder.mkdir()
        return self._stack.enter_context(run_target(folder))

    @contextlib.contextmanager
    def monitored(self) -> Iterator[Path]:
        """Yield the path of a file that receives all Redis commands from now on."""
        log = self.folder / "monitor.log"
        command = ["redis-cli", "-s", str(self.socket), "monitor"]
        with Process(command, log=log):
            wait_until(lambda: log.exists() and log.stat().st_size > 0, "redis-cli")
            yield log

    def redis_cli(self, *words: str) -> str:
        return _output(["redis-cli", "-s", str(self.socket), *words])

    def restart_redis(self) -> None:
        """Restart Redis with no data."""
        self.redis.kill()
        self.socket.unlink(missing_ok=True)
        self.redis.start()
        wait_until(lambda: listens(self.socket), "redis-server")

    def ended_calls(self) -> int:
        """Return the number of calls that the target has logged."""
        return self.target.log.read_bytes().count(b"\n")

    def caller(self, who: str = "service", *, replica: int = 0) -> "JobClient":
        token = {"service": TOKEN, "operator": ADMIN_TOKEN, **TOKENS}[who]
        return self._stack.enter_context(JobClient(self.urls[replica], token))

    def submit_all(self, orders: Sequence[dict[str, Any]]) -> "list[SubmittedJob]":
        """Submit jobs by several clients to all replicas. Return the jobs in order."""

        def work(part: int) -> list[tuple[int, SubmittedJob]]:
            with JobClient(self.urls[part % len(self.urls)], TOKEN) as caller:
                mine = range(part, len(orders), CALLERS)
                return [(number, caller.submit(**orders[number])) for number in mine]

        with ThreadPoolExecutor(CALLERS) as pool:
            sent = [pair for part in pool.map(work, range(CALLERS)) for pair in part]
        return [one for _, one in sorted(sent, key=lambda pair: pair[0])]

    def wait_for(self, ids: Iterable[str], *, timeout_s: float = 60) -> dict[str, Job]:
        """Wait until all jobs have ended. Return their rows by id."""
        return asyncio.run(self._wait_for(set(ids), timeout_s))

    async def _wait_for(self, ids: set[str], timeout_s: float) -> dict[str, Job]:
        async with self.store() as store:
            end, left, found = time.monotonic() + timeout_s, ids, {}
            while left:
                assert time.monotonic() < end, f"{len(left)} of {len(ids)} jobs have not ended"
                found |= await store.jobs.find_many(left)
                left = {id_ for id_ in ids if id_ not in found or not found[id_].is_ended}
                await asyncio.sleep(0.1 if left else 0)
        return found

    def rows(self, ids: Iterable[str]) -> dict[str, Job]:
        async def read() -> dict[str, Job]:
            async with self.store() as store:
                return await store.jobs.find_many(ids)

        return asyncio.run(read())

    @contextlib.asynccontextmanager
    async def store(self):
        store = JobStore(sql.open_database(self.database))
        try:
            yield store
        finally:
            await store.close()


@dataclass
class SubmittedJob:
    """A submitted job: the document of the response, and the times of request and response."""

    document: dict[str, Any]
    began_us: int
    ended_us: int
    order: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.document["id"]


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class JobClient(AbstractContextManager["JobClient"]):
    """A client of the jobs API with a keep-alive connection and a token."""

    def __init__(self, url: str, token: str) -> None:
        self._host, self._token = urlsplit(url).netloc, token
        self._connection = http.client.HTTPConnection(self._host, timeout=70)

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request, and return the response. A `body` that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, f"/v1{path}", body=data, headers=fields | (headers or {}))
        with self._connection.getresponse() as answer:
            return Answer(answer.status, answer.headers, answer.read())

    def submit(self, **order: Any) -> SubmittedJob:
        began_us = now_us()
        answer = self.call("POST", "/jobs", order)
        assert answer.status == 202, answer
        return SubmittedJob(answer.json, began_us, now_us(), order)

    def job(self, id_: str, wait_s: int = 0) -> dict[str, Any]:
        answer = self.call("GET", f"/jobs/{id_}?wait={wait_s}")
        assert answer.status == 200, answer
        return answer.json

    def target(self, name: str) -> dict[str, Any]:
        answer = self.call("GET", f"/targets/{name}")
        assert answer.status == 200, answer
        return answer.json


def now_us() -> int:
    return time.time_ns() // 1000


def sign_grant(
    target: str, class_name: str, *, life_s: int = 3600, id_: str = "", kind: str = "target"
) -> str:
    """Sign a grant. An empty `kind` makes the signature that earlier versions made."""
    given = Grant(class_name, int(time.time()) + life_s, id_)
    if kind in {"room", "target"}:
        return Grants(target, [SECRET], "room" if kind == "room" else "target").sign(given)
    text = f"waitroom-grant:{target}:{class_name}:{given.expires_s}:{id_}"
    digest = hmac.digest(SECRET.encode(), text.encode(), "sha256").hex()
    return f"{class_name}.{given.expires_s}.{id_}.{digest}"


def run_in_threads(*works: Callable[[], Result]) -> list[Result]:
    """Run functions in parallel threads, and return their results."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


class Claim(NamedTuple):
    """A claim of a job by a worker. `at_us` is the timestamp that counts against the rate limit."""

    job: str
    fence: int
    at_us: int
    is_trial: bool


def read_claims(monitor: Path, target: str) -> list[Claim]:
    """Read claims from the output of `redis-cli monitor`, except restored claims."""
    key, found = f'"waitroom:{{target:{target}}}:facts"', []
    for line in monitor.read_text(errors="replace").splitlines():
        if key not in line or '"HSET"' not in line:
            continue
        words = _WORDS.findall(line)[2:]
        for job, text in zip(words[::2], words[1::2], strict=True):
            match = _FACT.match(text)
            if match and int(match[1]) >= int(match[2]):
                found.append(Claim(job, int(match[1]), int(match[2]), match[3] == "1"))
    return sorted(found, key=lambda claim: claim.fence)


class Hold(NamedTuple):
    """An interval in which a target must not be called, because of its Retry-After header."""

    from_us: int
    until_us: int


def read_holds(monitor: Path, target: str) -> list[Hold]:
    """Read the holds of a target from the output of `redis-cli monitor`."""
    key, found = f'"waitroom:{{target:{target}}}:state"', []
    for line in monitor.read_text(errors="replace").splitlines():
        words = _WORDS.findall(line) if key in line else []
        if "held_until" in words and words[0] == "HSET":
            at_us = round(float(line.split()[0]) * 1e6)
            found.append(Hold(at_us, round(float(words[words.index("held_until") + 1]))))
    return [hold for hold in found if hold.until_us > hold.from_us]


def read_arrivals(target: Target) -> dict[tuple[str, int], int]:
    """Return the timestamps of the calls that the target received, by job and attempt."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    return {
        (note["job"], int(note["attempt"])): (note["began_ns"] + ahead_ns) // 1000
        for note in target.calls()
    }


def count_most_within(moments: Iterable[int], window_us: int) -> int:
    """Return the highest number of timestamps in any window of `window_us`, its end excluded."""
    found = sorted(moments)
    return max((bisect_left(found, at + window_us) - i for i, at in enumerate(found)), default=0)


def count_most_open(notes: Iterable[dict[str, Any]]) -> int:
    """Return the highest number of calls that were open at the same time."""
    edges = sorted(
        edge for note in notes for edge in ((note["began_ns"], 1), (note["ended_ns"], -1))
    )
    most = count = 0
    for _, step in edges:
        count += step
        most = max(most, count)
    return most


def count_overtaken(earlier: Iterable[tuple[int, int]], later: Iterable[tuple[int, int]]) -> int:
    """Count `later` jobs that were called before an `earlier` job that had been submitted first.

    Args:
        earlier: Pairs of the time by which a job was surely queued, and the time of its call.
        later: Pairs of the earliest time at which a job was queued, and the time of its call.
    """
    before, count, last_called = sorted(earlier), 0, 0
    at = 0
    for begins, called in sorted(later):
        while at < len(before) and before[at][0] < begins:
            last_called = max(last_called, before[at][1])
            at += 1
        count += called < last_called
    return count


def _toml(value: Any) -> str:
    """Convert a value to TOML, which differs from JSON in tables only."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


async def _empty_database(database: str) -> None:
    """Migrate a database, and delete all its rows."""
    store = JobStore(sql.open_database(database))
    await store.migrate()
    async with sql.begin(store.engine) as connection:
        for table in metadata.tables.values():
            await connection.execute(delete(table))
    await store.close()
