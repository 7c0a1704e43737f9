"""A program that sends each of its payments once, at the time that a rate limit has granted.

`payer.py URL TARGET FIRST STEP CALLS AT_ONCE RULE…` pays under each limit RULE, with AT_ONCE
threads. Of the payments 0 to CALLS - 1 it sends FIRST, FIRST + STEP and so on to the server at
TARGET. At the end it prints all payments. URL is that of the service API.
"""

import sys
import threading
import time
from collections import deque
from typing import Any

from tests.support.service import Api, print_document

PAYMENT = {"fields": {"biz": "pay", "channel": "wx"}}


def pay(url: str, target: str, rule: str, numbers: deque[int], payments: list[Any]) -> None:
    limits, receiver = Api(url), Api(target)
    while True:
        try:
            number = numbers.popleft()
        except IndexError:
            return
        asked, status = 0, 429
        while status == 429:
            asked += 1
            status, leave = limits.call("POST", f"/limits/{rule}/acquire", PAYMENT)
            time.sleep(leave["wait_seconds"])  # until the payment, or the next request if refused
        receiver.call("POST", f"/{rule}/{number}")
        payments.append({"rule": rule, "number": number, "asked": asked, **leave})


def main(url: str, target: str, *words: str) -> None:
    first, step, calls, at_once = map(int, words[:4])
    threads, payments = [], []
    for rule in words[4:]:
        numbers = deque(range(first, calls, step))
        threads += [
            threading.Thread(target=pay, args=(url, target, rule, numbers, payments))
            for _ in range(at_once)
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for payment in payments:
        print_document(payment)


if __name__ == "__main__":
    main(*sys.argv[1:])
