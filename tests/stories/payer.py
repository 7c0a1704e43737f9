"""A worker that pays: each call goes to the target once, at a moment that a limit gave.

`payer.py URL TARGET FIRST STEP CALLS AT_ONCE RULE…`: of CALLS calls of each rule it makes those
with the numbers FIRST, FIRST + STEP, …; so many of a rule AT_ONCE. In the end it tells all of them.
"""

import sys
import threading
import time
from collections import deque
from typing import Any

from tests.support.service import Api, print_document

PAYMENT = {"fields": {"biz": "pay", "channel": "wx"}}


def pay(url: str, target: str, rule: str, numbers: deque[int], told: list[Any]) -> None:
    limits, there = Api(url), Api(target)
    while True:
        try:
            number = numbers.popleft()
        except IndexError:
            return
        asked = 0
        status = 429
        while status == 429:
            asked += 1
            status, leave = limits.call("POST", f"/limits/{rule}/acquire", PAYMENT)
            time.sleep(leave["wait_seconds"])  # until it may ask again, or a paced call may go
        there.call("POST", f"/{rule}/{number}")
        told.append({"rule": rule, "number": number, "asked": asked, **leave})


def main(url: str, target: str, *words: str) -> None:
    first, step, calls, at_once = map(int, words[:4])
    threads, told = [], []
    for rule in words[4:]:
        numbers = deque(range(first, calls, step))
        threads += [
            threading.Thread(target=pay, args=(url, target, rule, numbers, told))
            for _ in range(at_once)
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in told:
        print_document(each)


if __name__ == "__main__":
    main(*sys.argv[1:])
