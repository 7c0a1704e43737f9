"""A program that asks a rate limit for refunds. The limit allows one refund in each window.

`refunder.py URL RULE WINDOW_MS REFUNDS` sends REFUNDS requests at once, prints that it has done so,
and in the end prints each response. Meanwhile GONE more requests wait behind these. Their clients
disconnect, and as many later requests get their times.
"""

import select
import sys

from tests.support.processes import wait_until
from tests.support.service import Api, print_document, to_ms

REFUND = {"biz": "refund", "channel": "wx"}
GONE = 2


def main(url: str, rule: str, window_ms: int, refunds: int) -> None:
    reader = Api(url)

    def ask() -> Api:
        api = Api(url)
        api.send("POST", f"/limits/{rule}/acquire?wait=60", {"fields": REFUND})
        return api

    def free_ms() -> int:
        """Return the time that would be granted to the next refund."""
        query = "&".join(f"{name}={value}" for name, value in REFUND.items())
        return to_ms(reader.call("GET", f"/limits/{rule}?{query}")[1]["at"])

    asked = [ask() for _ in range(refunds)]
    [first], _, _ = select.select(asked, [], [])
    asked.remove(first)
    responses = [first.read_response()[1]]
    behind_ms = to_ms(responses[0]["at"]) + refunds * window_ms
    wait_until(lambda: free_ms() == behind_ms, "a time for each refund")
    print_document({"state": "asked"})
    gone = [ask() for _ in range(GONE)]
    last_ms = behind_ms + GONE * window_ms
    wait_until(lambda: free_ms() == last_ms, "times for those who disconnect")
    for api in gone:
        api.close()
    for _ in gone:
        wait_until(lambda: free_ms() < last_ms, "a time that was given back")
        given_back_ms = free_ms()
        asked.append(ask())
        wait_until(lambda ms=given_back_ms: free_ms() > ms, "a request that gets it")
    responses += [api.read_response()[1] for api in asked]
    for response in responses:
        print_document(response)


if __name__ == "__main__":
    url, rule, *numbers = sys.argv[1:]
    main(url, rule, *map(int, numbers))
