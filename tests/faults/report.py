"""Writes docs/reliability.md."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from loadtest.machine import Machine
from tests.faults.outages import CAP, WAITING
from tests.faults.verdict import Overtaking, Row

HEAD = """\
# What breaks, and what it does to visitors

`make faults` wrote this page. It starts nginx, three replicas and a real store on loopback,
lets simulated visitors do what browsers and the waiting page do, breaks one thing at a known
moment, and reads the diaries that the visitors kept. What each failure looks like, and what to
do: [operations.md](operations.md).

Three settings are not the default: `session_duration` is 30 s, so that sessions end within a
run; `queueing_status_code` is 202, so that every 5xx is a failure; `shutdown_delay` is 0.5 s.

{machine}. {date}.
"""

OUTAGES = """\
## Outages

{waiting} wait before a room with {cap} slots, all taken. Their pages poll, and back off where
nothing answers, as the waiting page does: for 2 to 60 s. Redis hangs in the outages of 60 s
(SIGSTOP); in those of 150 s it ends and starts again with its data (AOF), or without them where
they are lost. Those inside are gone when the outage is over, unless they stay. From its end on a
newcomer comes every second.

{table}
* **overtaken by people behind (worst)**: how many of those who waited before the outage saw
  somebody called who stood behind them; in brackets, by how many the worst off was overtaken. The
  order is that of their signed cookies, and no delay is excused.
* **by newcomers**: how many of them saw somebody called, or let in at once, who came after it.
* **first call after**: seconds from the end of the outage, when Redis and all replicas answer, to
  the first call. In the first 2 s no session is over, as replicas tell whom they kept inside. Where
  those inside stay, no slot is free for some 15 s. Where the data are lost nobody is called before
  those near the head could come back: within two of their polls where a replica knows how often
  they poll, within the 60 s of the longest back-off where all replicas are new too.
* **holds**: both are 0, somebody is called, no more than the cap are inside, nobody inside is told
  to wait, and nobody loses a place.

With the data lost *and* all replicas down, nobody is left who knows of the queue: a newcomer who
comes before the first of those who waited finds a free room and is let in.
"""

WORDS = """\
## What the columns say

* **requests**: all that visitors sent in the run, before and after the fault too.
* **failures**: answers that did not come whole within 5 seconds, and statuses that nothing
  explains. Two 503 are explained: the waiting page's while no replica is there, and, while the
  store is away, the one to somebody without a cookie who asks for a place, and to somebody who
  wants to leave. A connection that nginx closes while nothing is under way on it is opened
  anew, as browsers do.
* **places lost**: somebody with a ticket is given another one or told that they have none;
  somebody inside is told to wait.
* **inversions**: visitors who were overtaken: somebody who had joined later was called while
  they were in line, more than one refresh of theirs before their own call. Order is what the
  signed cookies say; calls are what the store's stream of events says. Whom a replica lets in
  by itself while the store is away is not called by anybody.
* **peak/cap**: the most holders inside at one moment. A holder is inside from the first request
  that the site itself answered to the last, by the site's own log; where somebody inside was
  told to wait, they were outside until the site answered again. The sessions that the ops
  listener tells, looked at twice a second, may not exceed the cap either.
* **recovered**: seconds from the end of the fault (where it has no duration: from the fault)
  until the last visitor was told anything out of the ordinary: an error, no place yet, a paused
  line. 0: nobody noticed after its end.
"""

CUT_OFF = """\
## One replica cut off from Redis

While one replica does not reach Redis and the others do, it cannot know what they give away. What
is promised then:

* **Whoever is inside stays inside**, whichever replica answers them, and stays when the replica is
  back. A pass that the replica gave, or made longer, says so, and Redis makes it a session although
  no slot is free.
* **Those in the queue keep their places.** The replica tells them that it is paused, with a ticket
  that leads nginx to another; the others serve them.
* **The cap may be exceeded**, by no more than the sum of two numbers: those whom the replica let
  in, which with `on_store_failure = "bounded"` is at most its share of the slots that were free
  when it last reached Redis (with 10 free and three replicas: three), and with `"wait"` nobody; and
  those inside who met this replica alone for a whole `session_duration`, whose slots Redis gave to
  others. nginx asks the replicas in turn, so there are few of these. With `"admit"` there is no
  bound.
* **It is visible.** `waitroom_store_away` is 1 at that replica alone. When Redis has heard of them,
  `waitroom_over_cap_total` counts each session for which there was no slot, and
  `WaitroomLetInAboveCap` is raised. Nobody is called until the room is below its cap.
* **What is done meanwhile** (a release, a changed setting) this replica hears of when it is back;
  until then it honours a released pass, and Redis ends it with the first request after.

`tests/gate/test_away.py` plays it with two replicas. Where the cap matters more than newcomers, set
`on_store_failure = "wait"`.
"""

FIGURES = "scenario | requests | failures | places lost | inversions | peak/cap | recovered | holds"
OVERTAKEN = "outage | overtaken by people behind (worst) | by newcomers | first call after | holds"


def render(rows: Sequence[Row], machine: Machine, *, seconds: float, quick: bool) -> str:
    now = dt.datetime.now(dt.UTC)
    date = f"{now:%Y-%m-%d}, {seconds / 60:.0f} minutes"
    held = sum(row.held for row in rows)
    parts = [
        HEAD.format(machine=machine, date=date + (", the quick subset" if quick else "")),
        f"**{held} of {len(rows)} hold.**\n",
        _table([row for row in rows if not row.overtaking]),
        WORDS,
        _outages([row for row in rows if row.overtaking]),
        CUT_OFF,
        "## Run by run\n",
        *(_details(row) for row in rows),
    ]
    return "\n".join(filter(None, parts))


def write(
    rows: Sequence[Row], machine: Machine, path: Path, *, seconds: float, quick: bool
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(rows, machine, seconds=seconds, quick=quick))


def line(row: Row) -> str:
    """For the terminal."""
    said = "held" if row.held else f"NOT HELD: {'; '.join(row.broken)}"
    if row.overtaking:
        cells = dict(zip(OVERTAKEN.split(" | ")[1:-1], _overtaken(row.overtaking), strict=True))
        figures = ", ".join(f"{name} {cell}" for name, cell in cells.items())
        return f"{row.scenario}: {figures}, peak {row.peak}, {row.seconds:.0f} s: {said}"
    return (
        f"{row.scenario}: {row.requests:,} requests, {row.failures} failures, {row.lost} lost,"
        f" {row.inversions} inversions, peak {row.peak}, recovered {_recovered(row)},"
        f" {row.seconds:.0f} s: {said}"
    )


def _table(rows: Sequence[Row]) -> str:
    lines = _head(FIGURES)
    for row in rows:
        cells = [row.scenario, f"{row.requests:,}", row.failures, row.lost, row.inversions,
                 row.peak, _recovered(row), _holds(row)]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _outages(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = _head(OVERTAKEN)
    for row in rows:
        figures = _overtaken(row.overtaking or Overtaking())
        lines.append(f"| {' | '.join([row.scenario, *figures, _holds(row)])} |")
    table = "\n".join(lines) + "\n"
    return OUTAGES.format(cap=CAP, waiting=WAITING, table=table)


def _overtaken(found: Overtaking) -> list[str]:
    first = "none" if found.first_call_s is None else f"{found.first_call_s:.1f} s"
    worst = f" ({found.worst})" if found.people else ""
    return [f"{found.people}{worst}", str(found.by_newcomers), first]


def _head(columns: str) -> list[str]:
    figures = columns.count(" | ") - 1
    return [f"| {columns} |", "|---|" + "--:|" * figures + "---|"]


def _holds(row: Row) -> str:
    return "held" if row.held else f"**not held**: {_short('; '.join(row.broken))}"


def _details(row: Row) -> str:
    lines = [f"**{row.scenario}**, {row.seconds:.0f} s.", ""]
    lines += [f"* not held: {text}" for text in row.broken]
    lines += [f"* {text}" for text in row.notes]
    return "\n".join(lines) + "\n"


def _recovered(row: Row) -> str:
    return "–" if row.recover_s is None else f"{row.recover_s:.1f} s"


def _short(text: str) -> str:
    text = text.replace("|", "/")
    return text if len(text) < 300 else text[:300] + " …"
