"""What idle workers cost: CPU time, commands to Redis and statements to SQL.

Each has a redis-server of its own, and all are idle at the same time.
"""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from loadtest.machine import cpu_ns
from tests.support.processes import Process, wait_until
from tests.support.site import ROOT, SECRET, SocketRedis

TARGETS = (1, 20)
#: How long workers get to start, seconds.
SETTLE_S = 3.0
_OWN_DELAY_S = 0.5


@dataclass(frozen=True, slots=True)
class Idle:
    """What a worker without jobs costs in a minute."""

    name: str
    cpu_ms: float
    #: CPU time of its Redis.
    redis_cpu_ms: float
    #: Commands sent to Redis, those within scripts left out; statements sent to SQL.
    commands: float
    statements: float | None


async def measure(python: str, seconds: float, poll_delay_s: float) -> list[Idle]:
    async with AsyncExitStack() as stack:
        workers = []
        for delay_s in sorted({poll_delay_s, _OWN_DELAY_S}, reverse=True):
            redis = stack.enter_context(SocketRedis())
            side = str(Path(__file__).with_name("arq_side.py"))
            command = [python, side, "worker", redis.url, "50", str(delay_s)]
            process = Process(command, log=redis.folder / "worker.log")
            stack.enter_context(process)
            workers.append(_Worker(f"arq, poll_delay {delay_s:g} s", process, redis))
        for number in TARGETS:
            redis = stack.enter_context(SocketRedis())
            counts = redis.folder / "statements"
            command = [sys.executable, "-m", "loadtest.jobs.counted", str(counts), "run-jobs",
                       "--config", str(_settings(redis, number))]  # fmt: skip
            process = Process(command, log=redis.folder / "worker.log", cwd=ROOT)
            stack.enter_context(process)
            wait_until(lambda p=process: "running_jobs" in p.output, "a runner", 30)  # type: ignore[misc]
            name = f"Waitroom, {number} target{'s' * (number != 1)}"
            workers.append(_Worker(name, process, redis, counts))
        await asyncio.sleep(SETTLE_S)
        return await asyncio.gather(*(worker.watch(seconds) for worker in workers))


def _settings(redis: SocketRedis, targets: int) -> Path:
    lines = [
        f'store = "{redis.url}"', f'secret_keys = ["{SECRET}"]',
        f'jobs = "sqlite:///{redis.folder}/jobs.db"',
    ]  # fmt: skip
    for number in range(targets):
        lines += [f"[targets.t{number}]", 'url = "http://127.0.0.1:9/"']
    file = redis.folder / "waitroom.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


class _Worker:
    def __init__(
        self, name: str, process: Process, redis: SocketRedis, counts: Path | None = None
    ) -> None:
        self._name, self._process, self._redis, self._counts = name, process, redis, counts

    async def watch(self, seconds: float) -> Idle:
        def cpu() -> tuple[int, int]:
            return cpu_ns([self._process.pid]), cpu_ns([self._redis.pid])

        before, statements = cpu(), self._statements()
        await asyncio.sleep(seconds)
        after = cpu()
        more = None if statements is None else (self._statements() or 0) - statements
        # MONITOR makes Redis work, so it comes after the CPU time was read.
        commands = await _commands(self._redis, seconds / 2)
        assert self._process.running, self._process.output
        minutes = seconds / 60
        return Idle(
            self._name,
            (after[0] - before[0]) / 1e6 / minutes,
            (after[1] - before[1]) / 1e6 / minutes,
            commands / (minutes / 2),
            None if more is None else more / minutes,
        )

    def _statements(self) -> int | None:
        return None if self._counts is None else int(self._counts.read_text())


async def _commands(redis: SocketRedis, seconds: float) -> int:
    """Count the commands that arrive at Redis, without those that scripts run."""
    reader, writer = await asyncio.open_unix_connection(str(redis.socket))
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    count = 0
    try:
        async with asyncio.timeout(seconds):
            while line := await reader.readline():
                count += b" lua]" not in line
    except TimeoutError:
        return count
    finally:
        writer.close()
    return count


def versions(python: str) -> dict[str, str]:
    """Return the versions of arq and of both redis-py."""
    code = "from importlib.metadata import version as v; print(v('arq'), v('redis'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    arq, theirs = done.stdout.split()
    return {"arq": arq, "arq's redis-py": theirs, "our redis-py": version("redis")}
