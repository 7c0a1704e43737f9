"""arq's side of the benchmark: a worker, or a program that enqueues jobs (caller). It runs in an
environment with arq, and imports nothing of this project.

    python arq_side.py worker ADDRESS MAX_JOBS POLL_DELAY
    python arq_side.py caller ADDRESS

A caller reads JSON lists, one per line: the name of a function and its arguments. It prints each
result as a line of JSON. Times are in seconds by the monotonic clock of the machine.
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


async def open_session(ctx: dict[str, Any]) -> None:
    ctx["session"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def close_session(ctx: dict[str, Any]) -> None:
    await ctx["session"].close()


async def call(ctx: dict[str, Any], url: str, body: str) -> tuple[int, bytes]:
    """Make one POST, as a Waitroom worker does for a job, and return the response."""
    async with ctx["session"].post(url, data=body) as reply:
        return reply.status, await reply.read()


def run_worker(address: str, max_jobs: int, poll_delay: float) -> None:
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.set_event_loop(asyncio.new_event_loop())
    Worker(
        [call],
        redis_settings=RedisSettings.from_dsn(address),
        on_startup=open_session,
        on_shutdown=close_session,
        max_jobs=max_jobs,
        poll_delay=poll_delay,
        log_results=False,
    ).run()


async def submit(pool: ArqRedis, url: str, count: int, callers: int) -> list[float]:
    """Enqueue `count` jobs. Return the times of the first and the last."""
    numbers = iter(range(count))
    began = time.monotonic()

    async def submit_some() -> None:
        for number in numbers:
            await pool.enqueue_job("call", url, json.dumps({"number": number}))

    await asyncio.gather(*(submit_some() for _ in range(callers)))
    return [began, time.monotonic()]


async def run_job(pool: ArqRedis, url: str, poll_delay: float) -> list[float]:
    """Return the times when a job was enqueued, and when its caller had the result."""
    began = time.monotonic()
    job = await pool.enqueue_job("call", url, "{}")
    await job.result(poll_delay=poll_delay)
    return [began, time.monotonic()]


async def delete_results(pool: ArqRedis) -> int:
    """Delete all results, and return their number."""
    keys = [key async for key in pool.scan_iter("arq:result:*", count=1000)]
    for begin in range(0, len(keys), 1000):
        await pool.delete(*keys[begin : begin + 1000])
    return len(keys)


_FUNCTIONS: dict[str, Any] = {
    function.__name__: function for function in (submit, run_job, delete_results)
}


async def serve(address: str) -> None:
    pool = await create_pool(RedisSettings.from_dsn(address))
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        name, *arguments = json.loads(line)
        print(json.dumps(await _FUNCTIONS[name](pool, *arguments)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        run_worker(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        uvloop.run(serve(sys.argv[2]))
