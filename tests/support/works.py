"""Starts a job system for tests: a database, a redis-server, replicas, workers and a target.

Other functions read the system's claims and calls afterwards, from the log of the target and the
commands sent to Redis. Timestamps are µs since 1970, by this machine's clock.
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

#: Job systems start one after the other. If they start together, each takes too long.
_STARTING = Lock()
_FACT = re.compile(r"^(\d+)~r~(\d+)~(\d)$")
_WORDS = re.compile(r'"([^"]*)"')
Result = TypeVar("Result")


class JobSystem(Servers):
    """A job system: replicas, workers and a server that is the target of jobs.

    Args:
        targets: Settings of targets by name. If a target has no `url`, it is the system's own.
        database: URL of a running database server. If it is empty, an SQLite file is used.
        runners: Number of workers.
        at_a_time: Maximum number of concurrent calls of each worker.
        more: Further tables to append to the settings file.
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
        self.config = service.folder / "replica-0.toml"
        for _ in range(self._runners):
            self.start_runner()
        for runner in self.runners:
            wait_until(lambda runner=runner: "running_jobs" in runner.output, "a runner", of=runner)

    def _rules(self) -> str:
        lines = [f'jobs = "{self.database}"', f'admin_token = "{ADMIN_TOKEN}"', "[tokens]"]
        lines += [f'{name} = "{token}"' for name, token in TOKENS.items()]
        for name, settings in self._targets.items():
            lines.append(f"[targets.{name}]")
            target = {"url": self.target.url, "private": True, **settings}
            lines += [f"{key} = {_toml(value)}" for key, value in target.items()]
        return "\n".join(lines) + f"\n{self._more}"

    def start_runner(self) -> None:
        """Start one more worker."""

        command = [WAITROOM, "run-jobs", "--config", str(self._config),
                   "--at-a-time", str(self._at_a_time)]  # fmt: skip
        self.runners.append(self.run(f"runner-{len(self.runners)}", command))

    def start_second_target(self) -> Target:
        """Start a second target server, and return it."""
        folder = self.folder / f"target-{time.monotonic_ns()}"
        folder.mkdir()
        return self._stack.enter_context(run_target(folder))

    @contextlib.contextmanager
    def monitor_redis(self) -> Iterator[Path]:
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

    def count_ended_calls(self) -> int:
        """Return the number of calls that have ended, by the target's log."""
        return self.target.log.read_bytes().count(b"\n")

    def caller(self, who: str = "service", *, replica: int = 0) -> "JobClient":
        """Return a client of a replica. `who` is "service", "operator" or a name in TOKENS."""
        token = {"service": TOKEN, "operator": ADMIN_TOKEN, **TOKENS}[who]
        return self._stack.enter_context(JobClient(self.urls[replica], token))

    def submit_all(self, requests: Sequence[dict[str, Any]]) -> "list[SubmittedJob]":
        """Submit jobs concurrently from several clients, spread over all replicas. Return them in
        the order of `requests`."""

        def submit_part(part: int) -> list[tuple[int, SubmittedJob]]:
            with JobClient(self.urls[part % len(self.urls)], TOKEN) as caller:
                numbers = range(part, len(requests), CALLERS)
                return [(number, caller.submit(**requests[number])) for number in numbers]

        with ThreadPoolExecutor(CALLERS) as pool:
            sent = [pair for part in pool.map(submit_part, range(CALLERS)) for pair in part]
        return [job for _, job in sorted(sent, key=lambda pair: pair[0])]

    def wait_for(self, ids: Iterable[str], *, timeout_s: float = 60) -> dict[str, Job]:
        """Wait until all these jobs have ended. Return their database rows by id."""
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
        """Return the database rows of these jobs by id."""

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
    """A submitted job: the JSON body of the response (`document`), the timestamps of request and
    response, and the fields of the request (`order`)."""

    document: dict[str, Any]
    began_us: int
    ended_us: int
    order: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.document["id"]


class Response(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class JobClient(AbstractContextManager["JobClient"]):
    """A client of the jobs API, with one token on one keep-alive connection."""

    def __init__(self, url: str, token: str) -> None:
        self._host, self._token = urlsplit(url).netloc, token
        self._connection = http.client.HTTPConnection(self._host, timeout=70)

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Response:
        """Send a request, and return the response. The body is sent as JSON, unless it is bytes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, f"/v1{path}", body=data, headers=fields | (headers or {}))
        with self._connection.getresponse() as response:
            return Response(response.status, response.headers, response.read())

    def submit(self, **order: Any) -> SubmittedJob:
        began_us = now_us()
        response = self.call("POST", "/jobs", order)
        assert response.status == 202, response
        return SubmittedJob(response.json, began_us, now_us(), order)

    def job(self, id_: str, wait_s: int = 0) -> dict[str, Any]:
        """Return the job, as JSON. Wait up to `wait_s` for its end."""
        response = self.call("GET", f"/jobs/{id_}?wait={wait_s}")
        assert response.status == 200, response
        return response.json

    def target(self, name: str) -> dict[str, Any]:
        response = self.call("GET", f"/targets/{name}")
        assert response.status == 200, response
        return response.json


def now_us() -> int:
    return time.time_ns() // 1000


def sign_grant(
    target: str, class_name: str, *, life_s: int = 3600, id_: str = "", kind: str = "target"
) -> str:
    """Sign a grant, which gives its visitor a class. If `kind` is empty, sign it as earlier
    versions did."""
    grant = Grant(class_name, int(time.time()) + life_s, id_)
    if kind in {"room", "target"}:
        return Grants(target, [SECRET], "room" if kind == "room" else "target").sign(grant)
    text = f"waitroom-grant:{target}:{class_name}:{grant.expires_s}:{id_}"
    digest = hmac.digest(SECRET.encode(), text.encode(), "sha256").hex()
    return f"{class_name}.{grant.expires_s}.{id_}.{digest}"


def run_in_threads(*functions: Callable[[], Result]) -> list[Result]:
    """Run functions in parallel threads, and return their results in order."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(each) for each in functions]]


class Claim(NamedTuple):
    """A worker's claim of a job. `at_us` is the timestamp that counts against the rate limit, and
    `is_trial` means that the circuit breaker lets this one call through."""

    job: str
    fence: int
    at_us: int
    is_trial: bool


def read_claims(monitor: Path, target: str) -> list[Claim]:
    """Read a target's claims from the output of `redis-cli monitor`. Leave out claims that a worker
    only restored after Redis had lost them."""
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
    """Return the timestamp of each call that the target received, by job and attempt."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    return {
        (call["job"], int(call["attempt"])): (call["began_ns"] + ahead_ns) // 1000
        for call in target.calls()
    }


def count_most_within(moments: Iterable[int], window_us: int) -> int:
    """Return the highest number of timestamps in any half-open interval of `window_us`."""
    found = sorted(moments)
    return max((bisect_left(found, at + window_us) - i for i, at in enumerate(found)), default=0)


def count_most_open(calls: Iterable[dict[str, Any]]) -> int:
    """Return the highest number of calls in progress at the same time."""
    edges = sorted(
        edge for call in calls for edge in ((call["began_ns"], 1), (call["ended_ns"], -1))
    )
    most = count = 0
    for _, step in edges:
        count += step
        most = max(most, count)
    return most


def count_overtaken(earlier: Iterable[tuple[int, int]], later: Iterable[tuple[int, int]]) -> int:
    """Count the `later` jobs that were called before an `earlier` job, although that job was queued
    before them.

    Args:
        earlier: For each job, the latest time at which it can have been queued, and its call's.
        later: For each job, the earliest time at which it can have been queued, and its call's.
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
    """Convert a value to TOML. It differs from JSON only in tables."""
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
