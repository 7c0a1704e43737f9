"""A job's state in words; and a line on the terminal while you wait for jobs."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import click

from sidecar.cli.connection import explain
from sidecar.jobs.model import ENDED, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waitroom import Client, Job

BAR = 20
#: More jobs than this are counted, and not shown one by one.
MOST_LINES = 8


def standing(job: Job) -> str:
    """A job's document in a few words."""
    state, words = job["state"], [job["state"]]
    if state == State.PENDING:
        if job["position"] is not None:
            words.append(f"position {job['position']:,}")
        if job["retry_at"]:
            words.append(f"tries again at {job['retry_at']}")
        elif job["wait_seconds"] is not None:
            words.append(f"about {seconds(job['wait_seconds'])}")
    elif state == State.CALLED:
        words.append(f"the permit {job['permit']} is good until {job['permit_expires_at']}")
    elif state == State.PROCESSING and job["attempts"] > 1:
        words.append(f"attempt {job['attempts']}")
    elif result := job["result"]:
        words.append(f"{result['status']}, {result['size']:,} bytes")
    elif job["status"] and state == State.COMPLETED:
        words.append(str(job["status"]))
    if state in ENDED | {State.PENDING} and job["error"]:
        words.append(job["error"])
    return ", ".join(words)


def seconds(wait_s: float) -> str:
    return f"{wait_s:.0f} s" if wait_s < 120 else f"{wait_s / 60:.0f} min"


def under_way(client: Client, target: str) -> dict[str, Job]:
    """All jobs of a target that have not ended."""
    return {
        job["id"]: job
        for state in State
        if state not in ENDED
        for job in client.jobs.iterate(target=target, state=state)
    }


def watch(
    client: Client,
    ids: Iterable[str],
    *,
    every_s: float,
    target: str | None = None,
    until_called: bool = False,
) -> bool:
    """Waits until all have ended; returns whether all were completed. `target`: of all of them,
    which makes looking at many cheaper. `until_called`: or until online jobs are called."""
    output, left = _Output(), list(ids)
    is_many = len(left) > MOST_LINES
    over = ENDED | {State.CALLED} if until_called else ENDED
    found: dict[str, Job] = {}
    first: dict[str, int] = {}
    while left:
        for id_, job in _look(client, left, target, is_first=not found).items():
            found[id_] = job
            first.setdefault(id_, job["position"] or 1)
            if is_many:
                is_shown = job["state"] in over - {State.COMPLETED}
            else:
                is_shown = job["state"] in over or not output.is_terminal
            if is_shown:
                facts = job["state"], job["position"], job["attempts"], job["error"]
                output.say(id_, standing(job), facts)
        left = [id_ for id_ in left if id_ not in found or found[id_]["state"] not in over]
        if output.is_terminal and left:
            output.draw(_summary(found), _share(found, first))
        elif is_many:
            output.say("", _summary(found), Counter(job["state"] for job in found.values()))
        if left:
            time.sleep(every_s)
    return all(job["state"] not in ENDED - {State.COMPLETED} for job in found.values())


def _look(client: Client, ids: list[str], target: str | None, *, is_first: bool) -> dict[str, Job]:
    """These jobs; none while no replica answers, unless that is so from the first."""
    from waitroom import RejectedError, WaitroomError  # noqa: PLC0415 - other commands start faster

    try:
        known = under_way(client, target) if target else {}
        return {id_: known.get(id_) or client.jobs.get(id_) for id_ in ids}
    except WaitroomError as error:
        if is_first or (isinstance(error, RejectedError) and error.status < 500):
            raise
        click.echo(explain(error), err=True)
        return {}


def _summary(found: dict[str, Job]) -> str:
    if len(found) == 1:
        [job] = found.values()
        return f"{job['target']}: {standing(job)}"
    counts = Counter(job["state"] for job in found.values())
    text = ", ".join(f"{counts[state]:,} {state}" for state in State if counts[state])
    waits = [job["wait_seconds"] for job in found.values() if job["wait_seconds"] is not None]
    return f"{text}; the last is called in about {seconds(max(waits))}" if waits else text


def _share(found: dict[str, Job], first: dict[str, int]) -> float:
    """How far they have come, 0 to 1; the queue is half of the way."""
    shares = []
    for id_, job in found.items():
        share = 0.5
        if job["state"] == State.PENDING:
            share = 0.5 * max(0, 1 - (job["position"] or first[id_]) / max(2, first[id_]))
        shares.append(1.0 if job["state"] in ENDED else share)
    return sum(shares) / max(1, len(shares))


class _Output:
    """On a terminal a line that is written over; else a line each time that something is new."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._shown: dict[str, object] = {}

    def draw(self, text: str, share: float) -> None:
        full = round(BAR * share)
        bar = "█" * full + "░" * (BAR - full)
        columns = shutil.get_terminal_size().columns
        click.echo(f"\r\x1b[K{f'{bar} {text}'[: columns - 1]}", nl=False)

    def say(self, about: str, text: str, facts: object) -> None:
        """Nothing where `facts` are as they were the last time."""
        if self._shown.get(about) == facts:
            return
        self._shown[about] = facts
        begin = "\r\x1b[K" if self.is_terminal else f"{datetime.now():%H:%M:%S} "  # noqa: DTZ005 - the clock on the wall
        click.echo(f"{begin}{about} {text}" if about else f"{begin}{text}")
