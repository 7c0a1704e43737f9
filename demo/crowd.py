"""Visitors for the demo, who join, poll as advised, visit the shop and finish.

The program sends requests to this machine only, and ends by itself.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from urllib.parse import urlsplit

import aiohttp

LONGEST_S = 1800.0


async def visit(url: str, stay_s: float, end: float, states: Counter[str]) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    headers = {"Accept": "text/html"}
    async with aiohttp.ClientSession(cookie_jar=jar, headers=headers) as session:
        state = "arriving"
        states[state] += 1

        def change_state(new_state: str) -> None:
            nonlocal state
            states[state] -= 1
            state = new_state
            states[state] += 1

        while time.monotonic() < end:
            async with session.get(f"{url}/") as reply:
                inside = reply.status == 200
            if inside:
                change_state("inside")
                await asyncio.sleep(random.expovariate(1 / stay_s))
                async with session.get(f"{url}/checkout/done"):
                    change_state("done")
                return
            change_state("waiting")
            while time.monotonic() < end:
                async with session.get(f"{url}/_waitroom/shop/status") as reply:
                    pause = float(reply.headers.get("Retry-After", "5"))
                    if reply.status == 200:
                        document = await reply.json()
                        if document["state"] != "waiting":
                            break
                        pause = document["refresh_after_seconds"]
                await asyncio.sleep(pause)


async def send_visitors(url: str, visitors: int, stay_s: float, minutes: float) -> None:
    states: Counter[str] = Counter()
    end = time.monotonic() + min(minutes * 60, LONGEST_S)

    async def arrive(delay: float) -> None:
        await asyncio.sleep(delay)
        await visit(url, stay_s, end, states)

    tasks = [asyncio.create_task(arrive(random.uniform(0, 3))) for _ in range(visitors)]
    while any(not task.done() for task in tasks):
        counts = "  ".join(f"{name} {states[name]:>4}" for name in ("waiting", "inside", "done"))
        print(f"\r{counts}  (Ctrl-C sends them home)", end="", flush=True)
        await asyncio.sleep(1)
    failures = [task.exception() for task in tasks if task.exception()]
    print(f"\n{states['done']} visitors finished" + (f", {len(failures)} failed: {failures[0]}"
          if failures else ""))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://localhost:8080")
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--stay", type=float, default=20, help="mean stay inside, seconds")
    parser.add_argument("--minutes", type=float, default=15, help="go home after this")
    options = parser.parse_args()
    if urlsplit(options.url).hostname not in {"localhost", "127.0.0.1", "::1"}:
        parser.error("the crowd visits this machine only")
    try:
        url = options.url.rstrip("/")
        asyncio.run(send_visitors(url, options.visitors, options.stay, options.minutes))
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
