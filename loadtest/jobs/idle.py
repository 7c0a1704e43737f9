"""Measures what idle workers cost: CPU time, commands to Redis and statements to SQL. All workers
are idle at the same time, each with its own redis-server."""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from loadtest.machine import cpu_ns
from loadtest.report import count
from tests.support.processes import Process, wait_until
from tests.support.site import ROOT, SECRET, SocketRedis

TARGETS = (1, 20)
#: How long workers have to start, in seconds.
SETTLE_S = 3.0
#: arq's default poll_delay, in seconds.
OWN_DELAY_S = 0.5


@dataclass(frozen=True, slots=True)
class Idle:
    """The costs of a worker without jobs, per minute."""

    name: str
    cpu_ms: float
    redis_cpu_ms: float
    #: The commands sent to Redis, without those within scripts, and the statements sent to SQL.
    commands: float
    statements: float | None


async def measure(python: str, seconds: float, poll_delay_s: float) -> list[Idle]:
    async with AsyncExitStack() as stack:
        workers = list[tuple[str, Process, SocketRedis, Path | None]]()
        for delay_s in sorted({poll_delay_s, OWN_DELAY_S}, reverse=True):
            redis = stack.enter_context(SocketRedis())
            side = str(Path(__file__).with_name("arq_side.py"))
            command = [python, side, "worker", redis.url, "50", str(delay_s)]
            process = Process(command, log=redis.folder / "worker.log")
            stack.enter_context(process)
            workers.append((f"arq, poll_delay {delay_s:g} s", process, redis, None))
        for number in TARGETS:
            redis = stack.enter_context(SocketRedis())
            counts = redis.folder / "statements"
            command = [sys.executable, "-m", "loadtest.jobs.counted", str(counts), "run-jobs",
                       "--config", str(_write_settings(redis, number))]  # fmt: skip
            process = Process(command, log=redis.folder / "worker.log", cwd=ROOT)
            stack.enter_context(process)
            wait_until(lambda p=process: "running_jobs" in p.output, "a runner", 30)  # type: ignore[misc]
            name = f"Waitroom, {count(number, 'target')}"
            workers.append((name, process, redis, counts))
        await asyncio.sleep(SETTLE_S)
        return await asyncio.gather(*(_measure_worker(*worker, seconds) for worker in workers))


def _write_settings(redis: SocketRedis, targets: int) -> Path:
    text = (
        f'store = "{redis.url}"\nsecret_keys = ["{SECRET}"]\n'
        f'jobs = "sqlite:///{redis.folder}/jobs.db"\n'
    )
    text += "".join(f'[targets.t{n}]\nurl = "http://127.0.0.1:9/"\n' for n in range(targets))
    file = redis.folder / "waitroom.toml"
    file.write_text(text)
    return file


async def _measure_worker(
    name: str, process: Process, redis: SocketRedis, counts: Path | None, seconds: float
) -> Idle:
    def read() -> tuple[int, int, int]:
        statements = int(counts.read_text()) if counts else 0
        return cpu_ns([process.pid]), cpu_ns([redis.pid]), statements

    before = read()
    await asyncio.sleep(seconds)
    cpu, redis_cpu, statements = (
        (later - earlier) * 60 / seconds for earlier, later in zip(before, read(), strict=True)
    )
    # MONITOR makes Redis work, so the commands are counted after the CPU time was read.
    commands = await _count_commands(redis, seconds / 2) * 120 / seconds
    assert process.running, process.output
    return Idle(name, cpu / 1e6, redis_cpu / 1e6, commands, statements if counts else None)


async def _count_commands(redis: SocketRedis, seconds: float) -> int:
    """Count the commands that arrive at Redis, without those that scripts run."""
    reader, writer = await asyncio.open_unix_connection(str(redis.socket))
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    number = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while line := await reader.readline():
                number += b" lua]" not in line
    writer.close()
    return number


def read_versions(python: str) -> dict[str, str]:
    """Return the versions of arq and of redis-py in both environments."""
    code = "from importlib.metadata import version as v; print(v('arq'), v('redis'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    arq, theirs = done.stdout.split()
    return {"arq": arq, "arq's redis-py": theirs, "our redis-py": version("redis")}
