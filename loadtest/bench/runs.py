"""One measured run: wrk asks, the processes' CPU time is read before and after.

wrk says only how many answers had a status above 399, and every workload is made so that
none should. What was served is looked at in a sample before and after, and by the room's
counters: a run whose answers are not what the workload claims says so in `problems`.
"""

import http.client
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, Protocol

from loadtest.machine import cpu_seconds, peak_memory_mb

SCRIPT = Path(__file__).with_name("requests.lua")
CONNECTIONS = 64
SAMPLE = 60
#: Requests that were on their way when wrk stopped are in a room's counters only.
SLACK = 2 * CONNECTIONS


class MeasurementError(Exception):
    """A run that cannot be measured at all."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    #: What has to be served, in the words of `System.served`; any of several.
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
    """How many are in a room, and how many may be."""

    inside: int
    waiting: int
    cap: int


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of a workload asks of one system."""

    requests: list[Request]
    #: What a visitor whose page was asked for asks for next, with the cookies that they were given.
    pictures: tuple[Request, ...] = ()
    #: Of all requests those that are pages of such visitors; empty: all are.
    pages: Sequence[Request] = ()
    #: Requests that make one arrival.
    each: int = 1
    #: Every arrival takes a place, or the run is spoiled.
    joins: bool = False
    #: Whether the answers with status 200 are counted.
    count: bool = False
    #: Warming asks an eighth of the requests and the run the others: who has just polled is
    #: not to poll again.
    apart: bool = False
    #: Nobody is to be asked about twice within two seconds: nginx may have kept the answer.
    distinct: bool = False
    #: How often a waiting visitor should ask, times a minute.
    polls_per_minute: float = 0.0
    connections: int = CONNECTIONS

    def lines(self, requests: Sequence[Request]) -> Iterator[str]:
        """The file that requests.lua reads."""
        yield from (request.line for request in self.pages or requests)
        if self.pictures:
            yield ""
            yield from (request.line for request in self.pictures)
        if self.pages:
            yield ""
            pages = set(map(id, self.pages))
            yield from ("-" if id(request) in pages else request.line for request in requests)

    @property
    def words(self) -> list[str]:
        if self.pictures:
            return ["visits"]
        return ["count"] if self.count else []


class System(Protocol):
    name: str

    @property
    def url(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def folder(self) -> Path:
        """Where it keeps its files; it goes with the system."""

    @property
    def pids(self) -> dict[str, list[int]]: ...

    def prepare(self, workload: str) -> Load | None:
        """Empties the workload's room, fills it, and makes the requests, if the system has it."""

    def room(self, workload: str) -> Room | None: ...

    def served(self, reply: Reply) -> str:
        """What this answer is, in a word or two."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What wrk said."""

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
    workload: str
    system: str
    round: int
    totals: Totals
    #: CPU seconds by kind of process.
    cpu: dict[str, float]
    each: int = 1
    joined: int = 0
    inside: int = 0
    cap: int = 0
    polls_per_minute: float = 0.0
    #: The most memory that any replica had until then, MB.
    memory_mb: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def arrivals(self) -> float:
        return self.totals.requests / self.each

    @property
    def per_second(self) -> float:
        return self.arrivals / self.totals.seconds

    def cpu_per_1000(self, *kinds: str) -> float:
        """CPU seconds per 1,000 arrivals, of these kinds of process; of all if none is named."""
        return 1000 * sum(self.cpu[k] for k in kinds or self.cpu if k in self.cpu) / self.arrivals

    @property
    def serving_us(self) -> float:
        """CPU microseconds of nginx and the replicas for one arrival."""
        return 1000 * self.cpu_per_1000("nginx", "replicas")

    @property
    def own_cpu(self) -> float:
        """CPU seconds of everything but the site."""
        return sum(value for kind, value in self.cpu.items() if kind != "origin")

    @property
    def joins_per_cpu_second(self) -> float:
        return self.joined / self.own_cpu if self.own_cpu else 0.0

    @property
    def cpu_per_waiting_minute(self) -> float:
        """CPU milliseconds that one waiting visitor costs in a minute."""
        return 1000 * self.polls_per_minute * self.own_cpu / self.arrivals

    @property
    def overshoot(self) -> int:
        return max(0, self.inside - self.cap)

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "per_second": self.per_second,
            "cpu_per_1000": self.cpu_per_1000(),
            "overshoot": self.overshoot,
        }


def parse(output: str) -> Totals:
    """What requests.lua wrote; raises MeasurementError where it did not."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            totals = Totals(**json.loads(line))
            if totals.requests == 0 or totals.seconds == 0:
                raise MeasurementError(f"wrk got no answer: {line}")
            return totals
    raise MeasurementError(f"wrk said nothing that can be read:\n{output}")


def ask(system: System, load: Load, requests: Sequence[Request], seconds: int) -> Totals:
    """These requests in turn, as fast as they are answered."""
    path = system.folder / "requests.txt"
    path.write_text("".join(f"{line}\n" for line in load.lines(requests)))
    command = [
        "wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "--timeout", "10s",
        "-s", str(SCRIPT), system.url, "--", str(path), *load.words,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds + 30
    )
    if done.returncode:
        raise MeasurementError(f"wrk failed: {done.stdout}{done.stderr}")
    return parse(done.stdout)


def sample(system: System, requests: Sequence[Request]) -> list[str]:
    """Some of the requests, one by one; what was served that should not have been."""
    wrong: Counter[str] = Counter()
    step = max(1, len(requests) // SAMPLE)
    connection = http.client.HTTPConnection("127.0.0.1", system.port, timeout=10)
    try:
        for request in requests[::step][:SAMPLE]:
            served = system.served(fetch(connection, request))
            if served not in request.serves:
                wrong[f"{' or '.join(request.serves)} was due, {served} was served"] += 1
    finally:
        connection.close()
    return [f"{number} of a sample: {what}" for what, number in wrong.items()]


def fetch(connection: http.client.HTTPConnection, request: Request) -> Reply:
    connection.request(request.method, request.path, headers=dict(request.headers))
    answer = connection.getresponse()
    return Reply(answer.status, answer.headers, answer.read())


def measure(system: System, workload: str, number: int, *, warm_s: int, seconds: int) -> Run | None:
    """One run of a workload; None where the system has none."""
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
        workload=workload, system=system.name, round=number, totals=totals,
        cpu={kind: after[kind] - before[kind] for kind in after},
        each=load.each, joined=joined,
        inside=then.inside if then else 0, cap=then.cap if then else 0,
        polls_per_minute=load.polls_per_minute,
        memory_mb=max(map(peak_memory_mb, system.pids.get("replicas", [])), default=0.0),
        problems=problems,
    )  # fmt: skip


def _cpu(system: System) -> dict[str, float]:
    return {kind: cpu_seconds(pids) for kind, pids in system.pids.items()}
