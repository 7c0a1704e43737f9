"""A measured run: wrk sends requests, and the CPU time of processes is read before and after.

wrk counts responses with a status above 399, which no workload should have. Samples before and
after the run, and counters of the room, show what was served. `problems` has all differences from
the workload's claims.
"""

import http.client
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import ClassVar

from loadtest.machine import cpu_ns, memory_mb
from loadtest.rounds import Rounds
from tests.support.site import Servers, Site

SCRIPT = Path(__file__).with_name("requests.lua")
#: Text in all pages of the site, and the Lua design's waiting page.
MARK = "the site itself"
WAITING_PAGE = "/queue/waiting.html"
#: The systems, in the order of the report, and the kinds of processes.
NAMES = {
    "plain": "plain nginx", "bare": "bare handlers", "waitroom": "Waitroom", "lua": "Lua design",
}  # fmt: skip
KINDS = ("nginx", "replicas", "redis", "origin")
CONNECTIONS = 64
SAMPLE = 60
#: Tolerance for requests in progress when wrk stopped, which only counters of a room include.
SLACK = 2 * CONNECTIONS


class MeasurementError(Exception):
    """Error: a run cannot be measured."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    #: Expected results of `classify`.
    serves: tuple[str, ...] = ("site",)

    @property
    def line(self) -> str:
        headers = (f"{name}: {value}" for name, value in self.headers)
        return "\t".join((self.method, self.path, *headers))


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Message
    body: bytes


@dataclass(frozen=True, slots=True)
class Room:
    """Numbers of visitors in a room, and its cap."""

    inside: int
    waiting: int
    cap: int


@dataclass(frozen=True, slots=True)
class Load:
    """The requests to a system in a run of a workload."""

    requests: list[Request]
    #: Requests that follow each page, with the cookies of its response.
    pictures: tuple[Request, ...] = ()
    #: Requests for these pages. If empty, all requests are.
    pages: Sequence[Request] = ()
    #: Number of requests per arrival.
    each: int = 1
    #: Whether every arrival must take a place.
    joins: bool = False
    #: Whether warming sends an eighth of the requests and the run the others, so that no visitor
    #: polls again too soon.
    apart: bool = False
    #: Whether the requests of a visitor must be two seconds apart, as nginx may cache responses.
    distinct: bool = False
    #: Number of polls per minute that a waiting visitor should send.
    polls_per_minute: float = 0.0
    connections: int = CONNECTIONS

    def lines(self, requests: Sequence[Request]) -> Iterator[str]:
        """Yield the lines of the file that requests.lua reads."""
        yield from (request.line for request in self.pages or requests)
        if self.pictures:
            yield ""
            yield from (request.line for request in self.pictures)
        if self.pages:
            yield ""
            pages = set(map(id, self.pages))
            yield from ("-" if id(request) in pages else request.line for request in requests)


class System(Servers):
    """A measured system. `_start` sets `site`, and a method `_NAME` prepares each workload."""

    name: ClassVar[str]
    site: Site

    @property
    def pids(self) -> dict[str, list[int]]:
        """Process ids by kind."""
        pids = {"nginx": [self.site.nginx.pid], "origin": [self.site.origin.pid]}
        if replicas := [process.pid for process in self.site.replicas]:
            pids["replicas"] = replicas
        if hasattr(self.site, "redis"):
            pids["redis"] = [self.site.redis.pid]
        return pids

    def prepare(self, workload: str) -> Load | None:
        """Fill the room of a workload. Return its requests, or None if there are none."""
        make: Callable[[], Load] | None = getattr(self, f"_{workload}", None)
        return make() if make else None

    def room(self, workload: str) -> Room | None:  # noqa: ARG002 - there may be none
        return None


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts and latencies of wrk."""

    requests: int
    seconds: float
    bytes: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    refused: int
    broken: int
    ok: int


@dataclass(frozen=True, slots=True)
class Run:
    totals: Totals
    #: CPU seconds by kind of process.
    cpu: dict[str, float]
    each: int = 1
    joined: int = 0
    inside: int = 0
    cap: int = 0
    polls_per_minute: float = 0.0
    #: Highest memory usage of a replica, MB.
    memory_mb: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def arrivals(self) -> float:
        return self.totals.requests / self.each

    @property
    def per_second(self) -> float:
        return self.arrivals / self.totals.seconds

    def cpu_per_1000(self, *kinds: str) -> float:
        """Return CPU seconds per 1,000 arrivals, of these kinds of process or of all."""
        return 1000 * sum(self.cpu[k] for k in kinds or self.cpu if k in self.cpu) / self.arrivals

    @property
    def serving_us(self) -> float:
        """Return the CPU time of nginx and the replicas for an arrival in µs."""
        return 1000 * self.cpu_per_1000("nginx", "replicas")

    @property
    def replicas_us(self) -> float:
        return 1000 * self.cpu_per_1000("replicas")

    @property
    def own_ms(self) -> float:
        """Return the CPU time of all processes except the site for an arrival in ms."""
        return 1000 * self.own_cpu / self.arrivals

    @property
    def own_cpu(self) -> float:
        """Return the CPU time of all processes except the site in seconds."""
        return sum(value for kind, value in self.cpu.items() if kind != "origin")

    @property
    def joins_per_cpu_second(self) -> float:
        return self.joined / self.own_cpu if self.own_cpu else 0.0

    @property
    def cpu_per_waiting_minute(self) -> float:
        """Return the CPU time that a waiting visitor costs per minute in ms."""
        return self.polls_per_minute * self.own_ms

    @property
    def overshoot(self) -> int:
        return max(0, self.inside - self.cap)


class Runs(Rounds[tuple[str, str], Run]):
    """Runs by workload and system."""

    def cases(self, workload: str) -> dict[tuple[str, str], str]:
        """Return the titles of the systems that were measured."""
        cases = {(workload, system): title for system, title in NAMES.items()}
        return {case: title for case, title in cases.items() if case in self.runs}

    def cpu_by_kind(self, case: tuple[str, str]) -> dict[str, float | None]:
        """Return CPU seconds per 1,000 arrivals, None for processes that the system lacks."""
        there = {kind for run in self.of(case) for kind in run.cpu}
        return {
            kind: self.median(case, lambda run: run.cpu_per_1000(kind)) if kind in there else None  # noqa: B023
            for kind in KINDS
        }


def ask(system: System, load: Load, requests: Sequence[Request], seconds: int) -> Totals:
    """Send these requests in turn, as fast as possible."""
    path = system.site.folder / "requests.txt"
    path.write_text("".join(f"{line}\n" for line in load.lines(requests)))
    command = [
        "wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "--timeout", "10s",
        "-s", str(SCRIPT), system.site.url, "--", str(path),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds + 30
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), "")
    if done.returncode or not line:
        raise MeasurementError(f"wrk failed: {done.stdout}{done.stderr}")
    totals = Totals(**json.loads(line))
    if totals.requests == 0 or totals.seconds == 0:
        raise MeasurementError(f"wrk got no answer: {line}")
    return totals


def sample(system: System, requests: Sequence[Request]) -> list[str]:
    """Send some of the requests one by one. Return a line for each kind of wrong response."""
    wrong: Counter[str] = Counter()
    some = requests[:: max(1, len(requests) // SAMPLE)][:SAMPLE]
    for request, reply in zip(some, fetch_each(system, some), strict=True):
        if (served := classify(reply)) not in request.serves:
            wrong[f"{' or '.join(request.serves)} was due, {served} was served"] += 1
    return [f"{number} of a sample: {what}" for what, number in wrong.items()]


def fetch_each(system: System, requests: Iterable[Request]) -> Iterator[Reply]:
    """Send requests one by one, on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", system.site.port, timeout=10)
    with closing(connection):
        for request in requests:
            connection.request(request.method, request.path, headers=dict(request.headers))
            answer = connection.getresponse()
            yield Reply(answer.status, answer.headers, answer.read())


def classify(reply: Reply) -> str:
    """Return the kind of a response: "site", "status" (to a poll), "page" (the waiting page, or a
    redirect to it), or "place" (the same with a new visitor's cookie)."""
    is_redirect = reply.status == 302 and reply.headers.get("Location", "").endswith(WAITING_PAGE)
    if is_redirect or (reply.status in {200, 202} and b"<html" in reply.body):
        return "place" if "Set-Cookie" in reply.headers else "page"
    if reply.status == 200 and MARK.encode() in reply.body:
        return "site"
    if reply.status == 200 and re.search(rb'"state": ?"waiting"', reply.body):
        return "status"
    return f"status {reply.status}"


def measure(system: System, workload: str, *, warm_s: int, seconds: int) -> Run | None:
    """Run a workload once. Return None if the system lacks the workload."""
    load = system.prepare(workload)
    if load is None:
        return None
    problems: list[str] = []
    warming = requests = load.requests
    if load.apart:
        part = len(requests) // 8
        warming, requests = requests[:part], requests[part:]
    if warm_s:
        ask(system, load, warming, warm_s)
        problems += sample(system, requests)
    before, room = _cpu(system), system.room(workload)
    totals = ask(system, load, requests, seconds)
    after, then = _cpu(system), system.room(workload)
    problems += sample(system, requests)
    if totals.refused:
        problems.append(f"{totals.refused} of {totals.requests} answers had a status above 399")
    if totals.broken:
        problems.append(f"{totals.broken} requests broke or timed out")
    if load.pictures and not load.pages and totals.requests - totals.ok > SLACK:
        problems.append(
            f"{totals.requests - totals.ok} of {totals.requests} answers were not the site's"
        )
    if load.distinct and 2 * totals.requests / totals.seconds > len(requests):
        problems.append(f"{len(requests)} visitors are too few: answers came from nginx's cache")
    joined = 0
    if room and then:
        joined = then.inside + then.waiting - room.inside - room.waiting
        arrivals = totals.requests / load.each
        if load.joins and joined < 0.99 * arrivals - SLACK:
            problems.append(f"{arrivals:.0f} arrivals took {joined} places")
    return Run(
        totals=totals,
        cpu={kind: after[kind] - before[kind] for kind in after},
        each=load.each, joined=joined,
        inside=then.inside if then else 0, cap=then.cap if then else 0,
        polls_per_minute=load.polls_per_minute,
        memory_mb=max(
            (memory_mb(pid, is_peak=True) for pid in system.pids.get("replicas", [])), default=0.0
        ),
        problems=problems,
    )  # fmt: skip


def _cpu(system: System) -> dict[str, float]:
    return {kind: cpu_ns(pids) / 1e9 for kind, pids in system.pids.items()}
