"""Leases: one holder of a resource at a time, for a term."""

from __future__ import annotations

import math
import time
from typing import Any

from waitroom.core import Core, Flow, Pause, log, retry_s
from waitroom.errors import LeaseLost, Problem, Queued, Refused, RejectedError, WaitroomError
from waitroom.model import LEASE, Held
from waitroom.wire import Answer, Call, path

#: Where a response says nothing of when to ask again.
DEFAULT_REFRESH_S = 1.0


def take(core: Core, lease: Held, wait: float | None) -> Flow[None]:
    """Takes the lease, or waits in the queue for it; leaves it when that does not end so."""
    ends = math.inf if wait is None else time.monotonic() + wait
    try:
        found = yield from _join(core, lease)
        while found["state"] != "granted":
            left_s = ends - time.monotonic()
            if left_s <= 0:
                raise Queued(f"lease {lease} is held by somebody else", found)  # noqa: TRY301
            refresh_s = found["refresh_after_seconds"]
            yield Pause(min(left_s, DEFAULT_REFRESH_S if refresh_s is None else refresh_s))
            sent_at, order = time.monotonic(), found["order"]
            found = yield from core.document(_looking(lease))
            if found["state"] == "granted":
                lease.granted(found, sent_at)
            elif found["state"] == "gone":
                found = yield from _join(core, lease, order)
    except (Refused, RejectedError):
        raise  # it is not even in the queue
    except BaseException:
        yield from core.quietly(Call("DELETE", _path_of(lease), {"holder": lease.holder}))
        raise


def _join(core: Core, lease: Held, order: int | None = None) -> Flow[dict[str, Any]]:
    body: dict[str, Any] = {"holder": lease.holder}
    if order is not None:
        body["order"] = order
    sent_at = time.monotonic()
    call = Call("POST", _path_of(lease), body=body, members=LEASE, statuses=frozenset({429}))
    answer: Answer = yield from core.sent(call)
    found: dict[str, Any] = answer.document
    if answer.status == 429:
        raise Refused(f"the queue for {lease} is full", retry_s(found), found)
    if found["state"] == "granted":
        lease.granted(found, sent_at)
    return found


def renew(core: Core, lease: Held) -> Flow[None]:
    sent_at = time.monotonic()
    body = {"holder": lease.holder, "fence": lease.fence}
    call = Call("PUT", _path_of(lease), body=body, members=LEASE, statuses=frozenset({409}))
    answer: Answer = yield from core.sent(call)
    if answer.status == 200:
        lease.granted(answer.document, sent_at)
        return
    # Not renewed, and either over or not.
    problem = Problem.read(409, answer.document)
    if (yield from core.document(_looking(lease)))["fence"] == lease.fence:
        raise RejectedError(f"lease {lease} is not renewed: {problem.detail}", problem)
    raise LeaseLost(f"lease {lease} is over: {problem.detail}")


def give_up(core: Core, lease: Held) -> Flow[None]:
    """Ends the lease early. Where that fails, its term ends it; where that was over before, it
    says so."""
    if not lease.left_seconds:
        log.warning("lease %s was over before its block", lease)
    query = {"holder": lease.holder, "fence": str(lease.fence)}
    call = Call("DELETE", _path_of(lease), query, statuses=frozenset({409}))
    try:
        yield from core.sent(call)
    except WaitroomError as error:
        log.warning("lease %s is not given up before its term: %s", lease, error)


def _looking(lease: Held) -> Call:
    return Call("GET", _path_of(lease), {"holder": lease.holder}, members=LEASE)


def _path_of(lease: Held) -> str:
    return path("leases", lease.template, lease.resource)
