"""arq's side of the benchmark: its worker, or a program that enqueues.

It runs in an environment that has arq, and imports nothing of this project.

    python arq_side.py worker ADDRESS MAX_JOBS POLL_DELAY
    python arq_side.py caller ADDRESS

A caller reads a JSON list a line (what to do, and its arguments) and answers each with a JSON
document a line. Moments are seconds of the machine's monotonic clock.
"""

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp
import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker


async def start(ctx: dict[str, Any]) -> None:
    ctx["session"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def stop(ctx: dict[str, Any]) -> None:
    await ctx["session"].close()


async def call(ctx: dict[str, Any], url: str, body: str) -> tuple[int, bytes]:
    """Do what a runner does for a job: one POST, whose answer is the result."""
    async with ctx["session"].post(url, data=body) as reply:
        return reply.status, await reply.read()


def work(address: str, max_jobs: int, poll_delay: float) -> None:
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.set_event_loop(asyncio.new_event_loop())
    Worker(
        [call],
        redis_settings=RedisSettings.from_dsn(address),
        on_startup=start,
        on_shutdown=stop,
        max_jobs=max_jobs,
        poll_delay=poll_delay,
        log_results=False,
    ).run()


async def submit(pool: ArqRedis, url: str, count: int, callers: int) -> list[float]:
    """Enqueue `count` jobs. Return the moments of the first and the last."""
    left = iter(range(count))
    began = time.monotonic()

    async def submit_some() -> None:
        for number in left:
            await pool.enqueue_job("call", url, json.dumps({"number": number}))

    await asyncio.gather(*(submit_some() for _ in range(callers)))
    return [began, time.monotonic()]


async def single(pool: ArqRedis, url: str, poll_delay: float) -> list[float]:
    """Return when a job was enqueued, and when its caller had the result."""
    began = time.monotonic()
    job = await pool.enqueue_job("call", url, "{}")
    await job.result(poll_delay=poll_delay)
    return [began, time.monotonic()]


async def results(pool: ArqRedis) -> int:
    """Delete all results. Return how many there were."""
    keys = [key async for key in pool.scan_iter("arq:result:*", count=1000)]
    for begin in range(0, len(keys), 1000):
        await pool.delete(*keys[begin : begin + 1000])
    return len(keys)


async def serve(address: str) -> None:
    pool = await create_pool(RedisSettings.from_dsn(address))
    acts: dict[str, Any] = {"submit": submit, "single": single, "results": results}
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        name, *arguments = json.loads(line)
        print(json.dumps(await acts[name](pool, *arguments)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        uvloop.run(serve(sys.argv[2]))
