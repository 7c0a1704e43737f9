"""Writes docs/reliability.md and loadtest/reports/faults.md from the results of the scenarios."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from tests.faults.outages import CAP, WAITING
from tests.faults.verdict import Row

HEAD = """\
# What visitors notice when a part fails

Use this page to decide how many replicas and what kind of Redis you need. For what to do when a
part fails, see [operations](operations.md#when-something-is-wrong).

`make faults` generates this page. The command starts nginx, three replicas and a real Redis on one
machine, breaks one thing at a time, and checks every response that the simulated visitors receive.
The simulated sales run on a simulated clock, without nginx. The details of each run are in [its
report](../loadtest/reports/faults.md).

Three settings differ from the defaults: `session_duration` is 30 s, so that sessions end within a
run; `queueing_status_code` is 202, so that every 5xx counts as a failure; `shutdown_delay` is 0.5
s.

{machine}. {date}.
"""

OUTAGES = """\
## Outages

{waiting} visitors wait for a room with {cap} slots, all taken. Their pages poll like the waiting
page: after an error, they retry within 2 to 60 s. In an outage of 60 s, Redis hangs (SIGSTOP). In
an outage of 150 s, Redis stops and restarts, with its data (AOF) or without. The visitors inside
will have left when the outage ends, unless the row says that they stay. After the outage, one
newcomer arrives per second.

{table}
* **overtaken by people behind (worst)**: visitors who were in the queue before the outage and
  were overtaken, even if only for a while: somebody behind them was called first. The number in
  brackets is the highest number of people who overtook one visitor.
* **by newcomers**: visitors in the queue who were overtaken by a newcomer.
* **first call after**: seconds from the end of the outage (Redis and all replicas answer again) to
  the first call.
    * During the first 2 s, no session ends, because replicas must first report which visitors they
      kept inside.
    * If the visitors inside stay, no slot becomes free until about 15 s later.
    * If the data are lost, nobody is called until the visitors near the head of the queue have had
      time to return: two poll intervals if a replica knows the interval, otherwise 65 s.
* **holds**: nobody was overtaken, somebody was called, the cap was not exceeded, nobody inside had
  to wait, and nobody lost a place.

If the data are lost *and* all replicas are down, only the visitors' cookies still contain the
queue. A newcomer who arrives before the first visitor returns then finds an empty room and enters.
"""

WORDS = """\
* **requests**: all requests in the run, including those before and after the fault.
* **failures**: requests without a response within 5 seconds, and responses with an unexpected
  status. A 503 is expected while no replica runs (the waiting page). While Redis is unavailable, it
  is also expected if a visitor without a cookie wants a place, or if a visitor wants to leave.
* **places lost**: visitors in the queue who lost their place or got another one, and visitors
  inside who had to wait again.
* **inversions**: visitors who joined before somebody else but were called after them, by more than
  one refresh interval. A visitor whom a replica admits while Redis is unavailable does not count as
  called.
* **peak/cap**: the highest number of visitors inside at once, according to the site's own log, and
  the cap.
* **recovered**: seconds from the end of the fault until the last moment when any visitor saw an
  error, had no place, or saw a paused queue.
"""

CUT_OFF = """\
## One replica cut off from Redis

If one replica cannot reach Redis and the others can, that replica does not know which slots the
others give away. Waitroom promises:

* **Visitors inside stay inside**, whichever replica answers them, even after the replica
  reconnects. Redis then creates a session for each pass that the replica issued or renewed, even if
  no slot is free.
* **Visitors in the queue keep their places.** The replica answers that entry is paused. It also
  changes the text of the ticket, so that nginx chooses another replica.
* **The cap may be exceeded**, by at most the sum of:
    * the newcomers whom the replica admitted. With `on_store_failure = "bounded"`, their number is
      at most the replica's share of the slots that were free when it last reached Redis: with 10
      free slots and three replicas, three. With `"wait"`, the replica admits no newcomers. With
      `"admit"`, there is no bound.
    * the visitors inside whose requests all went to this replica for a whole `session_duration`, so
      that Redis gave their slots to others. This affects few visitors, because nginx asks the
      replicas in turn.
* **The metrics show the cut-off.** `waitroom_store_away` is 1 only for this replica. When Redis
  learns of the additional visitors, `waitroom_over_cap_total` counts each session without a slot,
  and the alert `WaitroomLetInAboveCap` fires. Nobody is called until the room is below its cap.
* **The replica learns of changes late.** It applies a release or a changed setting when it
  reconnects. Until then, the replica accepts a released pass. After that, the visitor's next
  request ends the session.

If the cap matters more to you than letting newcomers in, set `on_store_failure = "wait"`.
"""

DETAILS = """\
# The faults, run by run

`make faults` generates this report and [docs/reliability.md](../../docs/reliability.md), which
explains the scenarios. {machine}. {date}.
"""


def render(rows: Sequence[Row], machine: str, *, date: str) -> str:
    held = sum(row.held for row in rows)
    parts = [
        HEAD.format(machine=machine, date=date),
        f"**{held} of {len(rows)} scenarios passed.**\n",
    ]
    if others := [row for row in rows if row.overtaking is None]:
        parts.append(_make_table("scenario", others))
    parts.append(WORDS)
    if outages := [row for row in rows if row.overtaking is not None]:
        table = _make_table("outage", outages)
        parts.append(OUTAGES.format(cap=CAP, waiting=WAITING, table=table))
    return "\n".join([*parts, CUT_OFF])


def render_details(rows: Sequence[Row], machine: str, *, date: str) -> str:
    return "\n".join([DETAILS.format(machine=machine, date=date), *map(_make_details, rows)])


def write(
    rows: Sequence[Row], machine: str, path: Path, details: Path, *, seconds: float, quick: bool
) -> None:
    """Write the page to `path` and the details of each run to `details`."""
    date = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {seconds / 60:.0f} minutes"
    date += ", the quick subset" if quick else ""
    for file, make in ((path, render), (details, render_details)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(make(rows, machine, date=date))


def format_line(row: Row) -> str:
    """Return a row of the report as a line for the terminal."""
    verdict = "held" if row.held else f"NOT HELD: {'; '.join(row.broken)}"
    figures = {**_list_figures(row), "peak/cap": row.peak}
    text = ", ".join(f"{name} {figure}" for name, figure in figures.items())
    return f"{row.scenario}: {text}, {row.seconds:.0f} s: {verdict}"


def _list_figures(row: Row) -> dict[str, str]:
    """Return what was measured, by the names of the report's columns."""
    found = row.overtaking
    if found is None:
        recovered = "–" if row.recover_s is None else f"{row.recover_s:.1f} s"
        return {
            "requests": f"{row.requests:,}", "failures": f"{row.failures}",
            "places lost": f"{row.lost}", "inversions": f"{row.inversions}", "peak/cap": row.peak,
            "recovered": recovered,
        }  # fmt: skip
    worst = f" ({found.worst})" if found.people else ""
    first = "none" if found.first_call_s is None else f"{found.first_call_s:.1f} s"
    return {
        "overtaken by people behind (worst)": f"{found.people}{worst}",
        "by newcomers": f"{found.by_newcomers}", "first call after": first,
    }  # fmt: skip


def _make_table(what: str, rows: Sequence[Row]) -> str:
    """Return a table with a row for each scenario, whose first column is called `what`."""
    names = [what, *_list_figures(rows[0]), "holds"]
    lines = [f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 2) + "---|"]
    for row in rows:
        verdict = "held" if row.held else f"**not held**: {_shorten('; '.join(row.broken))}"
        cells = [row.scenario, *_list_figures(row).values(), verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _make_details(row: Row) -> str:
    lines = [f"**{row.scenario}**, {row.seconds:.0f} s.", ""]
    lines += [f"* not held: {text}" for text in row.broken]
    lines += [f"* {text}" for text in row.notes]
    return "\n".join(lines) + "\n"


def _shorten(text: str) -> str:
    text = text.replace("|", "/")
    return text if len(text) < 300 else text[:300] + " …"
