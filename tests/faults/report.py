"""Writes the report docs/reliability.md from the results of the scenarios."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from loadtest.machine import Machine
from tests.faults.outages import CAP, WAITING
from tests.faults.verdict import Overtaking, Row

HEAD = """\
# What breaks, and what it does to visitors

This page shows what visitors notice when a part of the waiting room fails. Read it before you
decide how many replicas and which Redis you need. What to do about a failure is in
[operations](operations.md#when-something-is-wrong).

`make faults` wrote this page from a test run. It starts nginx, three replicas and a real Redis on
one machine. Simulated visitors behave as browsers do. Then it breaks one thing at a time and checks
what each visitor saw. The sales with hidden tabs run on a simulated clock, without nginx.

Three settings differ from the defaults. `session_duration` is 30 s, so that sessions end within a
run. `queueing_status_code` is 202, so that every 5xx is a failure. `shutdown_delay` is 0.5 s.

{machine}. {date}.
"""

OUTAGES = """\
## Outages

{waiting} visitors wait for a room with {cap} slots, all taken. Their pages poll as the waiting page
does: where nothing answers, they try again after 2 to 60 s. In the outages of 60 s Redis hangs
(SIGSTOP). In those of 150 s it stops and starts again with its data (AOF), or without them where
the data are lost. The visitors inside are gone when the outage ends, unless the row says that they
stay. From its end on, one newcomer arrives per second.

{table}
* **overtaken by people behind (worst)**: how many of those who waited before the outage saw
  somebody called who stood behind them. In brackets: the largest number who overtook one visitor.
  The order is that of the signed cookies. Even a short delay counts.
* **by newcomers**: how many of them saw somebody called, or admitted at once, who came after the
  outage.
* **first call after**: seconds from the end of the outage to the first call. The outage ends when
  Redis and all replicas answer.
    * In the first 2 s no session ends, because replicas first report which visitors they kept
      inside.
    * Where the visitors inside stay, no slot is free for about 15 s.
    * Where the data are lost, nobody is called before the visitors near the head could come back.
      That takes two of their polls if a replica knows how often they poll. Otherwise it takes the
      60 s of the longest pause between two tries.
* **holds**: both counts are 0, somebody is called, the cap holds, nobody inside has to wait, and
  nobody loses a place.

If the data are lost *and* all replicas are down, nothing knows the queue any more. A newcomer who
arrives before the first returning visitor then finds a free room and enters.
"""

WORDS = """\
## What the columns say

* **requests**: all requests that visitors sent in the run, before and after the fault too.
* **failures**: responses that did not arrive whole within 5 seconds, and unexpected statuses. A 503
  is expected in two cases. While no replica runs, it is the waiting page. While Redis is
  unavailable, it answers a visitor without a cookie who wants a place, and a visitor who wants to
  leave. When nginx closes an idle connection, the visitor opens a new one, as browsers do.
* **places lost**: a visitor with a ticket gets another place or none, or a visitor inside has to
  wait.
* **inversions**: visitors who were overtaken. Somebody who joined later was called more than one
  refresh before them. The order is that of the signed cookies, the calls are those in Redis' stream
  of events. A visitor whom a replica admits by itself while Redis is unavailable is not called.
* **peak/cap**: the most visitors inside at one moment, by the site's own log. A visitor is inside
  from the first request that the site answered to the last. The sessions that the ops listener
  reports, read twice a second, may not exceed the cap either.
* **recovered**: seconds from the end of the fault until the last visitor saw something unusual: an
  error, no place yet, or a paused queue. 0 means that nobody noticed anything after its end.
"""

CUT_OFF = """\
## One replica cut off from Redis

One replica cannot reach Redis, and the others can. It then does not know which slots the others
give away. Waitroom promises this:

* **Visitors inside stay inside**, whichever replica answers them, also when the replica is back. A
  pass that the replica gave or prolonged says so. Redis makes it a session even if no slot is free.
* **Visitors in the queue keep their places.** The replica answers that entry is paused. Its ticket
  leads nginx to another replica, which serves them.
* **The cap may be exceeded**, by at most the sum of two numbers:
    * The newcomers whom the replica admitted. With `on_store_failure = "bounded"` these are at most
      its share of the slots that were free when it last reached Redis: three, for 10 free slots and
      three replicas. With `"wait"` there are none. With `"admit"` there is no bound.
    * The visitors inside who met only this replica for a whole `session_duration`. Redis gave their
      slots to others. They are few, because nginx asks the replicas in turn.
* **You can see it.** `waitroom_store_away` is 1 at this replica alone. When Redis hears of these
  visitors, `waitroom_over_cap_total` counts each session without a slot, and the alert
  `WaitroomLetInAboveCap` fires. Nobody is called until the room is below its cap.
* **Changes reach the replica late.** It learns of a release or a changed setting when it is back.
  Until then it honours a released pass. Redis ends that session with the next request.

If the cap matters more than newcomers, set `on_store_failure = "wait"`. `tests/gate/test_away.py`
tests all this with two replicas.
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
        _make_table([row for row in rows if not row.overtaking]),
        WORDS,
        _make_outages([row for row in rows if row.overtaking]),
        CUT_OFF,
        "## Run by run\n",
        *(_make_details(row) for row in rows),
    ]
    return "\n".join(filter(None, parts))


def write(
    rows: Sequence[Row], machine: Machine, path: Path, *, seconds: float, quick: bool
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(rows, machine, seconds=seconds, quick=quick))


def format_line(row: Row) -> str:
    """Return a row of the report as a line for the terminal."""
    verdict = "held" if row.held else f"NOT HELD: {'; '.join(row.broken)}"
    if row.overtaking:
        cells = dict(
            zip(OVERTAKEN.split(" | ")[1:-1], _format_overtaking(row.overtaking), strict=True)
        )
        figures = ", ".join(f"{name} {cell}" for name, cell in cells.items())
        return f"{row.scenario}: {figures}, peak {row.peak}, {row.seconds:.0f} s: {verdict}"
    return (
        f"{row.scenario}: {row.requests:,} requests, {row.failures} failures, {row.lost} lost,"
        f" {row.inversions} inversions, peak {row.peak}, recovered {_format_recovery(row)},"
        f" {row.seconds:.0f} s: {verdict}"
    )


def _make_table(rows: Sequence[Row]) -> str:
    lines = _make_head(FIGURES)
    for row in rows:
        cells = [row.scenario, f"{row.requests:,}", row.failures, row.lost, row.inversions,
                 row.peak, _format_recovery(row), _make_verdict(row)]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _make_outages(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = _make_head(OVERTAKEN)
    for row in rows:
        figures = _format_overtaking(row.overtaking or Overtaking())
        lines.append(f"| {' | '.join([row.scenario, *figures, _make_verdict(row)])} |")
    table = "\n".join(lines) + "\n"
    return OUTAGES.format(cap=CAP, waiting=WAITING, table=table)


def _format_overtaking(found: Overtaking) -> list[str]:
    first = "none" if found.first_call_s is None else f"{found.first_call_s:.1f} s"
    worst = f" ({found.worst})" if found.people else ""
    return [f"{found.people}{worst}", str(found.by_newcomers), first]


def _make_head(columns: str) -> list[str]:
    figures = columns.count(" | ") - 1
    return [f"| {columns} |", "|---|" + "--:|" * figures + "---|"]


def _make_verdict(row: Row) -> str:
    return "held" if row.held else f"**not held**: {_shorten('; '.join(row.broken))}"


def _make_details(row: Row) -> str:
    lines = [f"**{row.scenario}**, {row.seconds:.0f} s.", ""]
    lines += [f"* not held: {text}" for text in row.broken]
    lines += [f"* {text}" for text in row.notes]
    return "\n".join(lines) + "\n"


def _format_recovery(row: Row) -> str:
    return "–" if row.recover_s is None else f"{row.recover_s:.1f} s"


def _shorten(text: str) -> str:
    text = text.replace("|", "/")
    return text if len(text) < 300 else text[:300] + " …"
