"""Writes what was measured: jobs.md, and jobs.json with the figures of each round."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.jobs.idle import Idle
from loadtest.jobs.measure import CALLERS, OWN_DELAY, Figures, Rate, Single
from loadtest.jobs.systems import CONCURRENCY
from loadtest.machine import Machine, table

_HOW = (
    "One redis-server for all, one replica and one runner of each of ours, one worker of arq's; a "
    "target that says 200 at once (nginx, on loopback), {concurrency} calls at a time. {rounds}, "
    "one system after the other, each round beginning with another; medians of the rounds, ± is "
    "half the distance between the best and the worst. Callers, replicas, workers, Redis, SQL and "
    "the target shared this machine. The machine's load when each round began: {loads}."
)
_WHAT = (
    "*Submitted*: so many callers, each submitting again as soon as it is answered, while nothing "
    "is called. *Executed*: from the queue that this left, by a worker that was just started: the "
    "calls that the target saw, from the first tenth to the last. *Both at once*: "
    "{most} callers submit while the worker works, until the last job was called. CPU is ms a job: "
    "*caller* (a client that writes prepared requests and reads next to nothing; arq's own), "
    "*replica*, *worker* (ours: the runner), *Redis*, *SQL* (the server; SQLite works within "
    "replica and worker)."
)
_DIFFERS = (
    "**What differs.** A job of ours is an HTTP request to a replica, which checks it, and is in "
    "SQL, flushed to the disk, before it is answered (202); its result is too, before its place "
    "is free. arq's callers speak to Redis themselves, and that is all there is: no endpoint with "
    "tokens, no SQL, and what Redis loses is lost (this one writes nothing to the disk). arq calls "
    "a Python function; here that makes the same POST with aiohttp and returns the answer. It has "
    "no rate, no priority, no position, no breaker; its bound of {concurrency} at a time is "
    "each worker's own, ours is exact over all runners. arq's worker looks at its queue every "
    "{own:g} s by itself; for these figures it looks every {delay:g} s, with which it was quickest."
)
_VERSIONS = (
    "arq {arq}, in an environment of its own: it wants redis-py below 6 (it has {theirs}, "
    "Waitroom {ours})."
)
_SINGLE = (
    "One job while nothing else happens, ms from its submission on. *Called*: the target hears of "
    "it. *Done*: seen by somebody who looks every 2 ms; arq's worker looks every {delay:g} s for "
    "these two. *Reported*: to a caller who waits for it in the way that is meant: `?wait=20`, and "
    "arq's `result()` with a worker that looks every {own:g} s, both arq's defaults."
)
_IDLE = (
    "A worker without jobs, for {seconds:g} s, as a minute. Of ours that is a runner with its "
    "reconciler and callbacks, on SQLite. Commands are those sent to Redis, statements those "
    "sent to SQL."
)
_TITLES = {
    **{f"submit {callers}": f"submitted, {callers} callers" for callers in CALLERS},
    "execute": "executed",
    "both": "both at once",
}
KINDS = ("caller", "replica", "worker", "Redis", "SQL")


def write(figures: Figures, machine: Machine, folder: Path) -> str:
    """Both files into `folder`; the report's text."""
    folder.mkdir(parents=True, exist_ok=True)
    text = render(figures, machine)
    (folder / "jobs.md").write_text(text)
    (folder / "jobs.json").write_text(json.dumps(_as_dict(figures, machine), indent=1) + "\n")
    return text


def render(figures: Figures, machine: Machine) -> str:
    how = _HOW.format(
        concurrency=CONCURRENCY, rounds=_times(figures.amount.rounds),
        loads=", ".join(f"{load:.1f}" for load in figures.loads),
    )  # fmt: skip
    differs = _DIFFERS.format(
        concurrency=CONCURRENCY, own=OWN_DELAY, delay=figures.poll_delay_s
    )  # fmt: skip
    versions = _VERSIONS.format(
        arq=figures.versions["arq"], theirs=figures.versions["arq's redis-py"],
        ours=figures.versions["our redis-py"],
    )  # fmt: skip
    parts = [
        "# Jobs, measured",
        f"{machine}.",
        how,
        *(f"**{problem}.**" for problem in figures.problems),
        f"{differs} {versions}",
        "## Jobs a second",
        _WHAT.format(most=CALLERS[-1]),
        _rates(figures),
        "## One job, on an idle machine",
        _SINGLE.format(own=OWN_DELAY, delay=figures.poll_delay_s),
        _singles(figures),
        "## A worker that has nothing to do",
        _IDLE.format(seconds=figures.amount.idle_s),
        _idle(figures.idle),
    ]
    return "\n\n".join(parts) + "\n"


def section(figures: Figures) -> str:
    """For the report of the whole benchmark."""
    head = ["jobs a second", *figures.systems]
    rows = [
        [title, *(f"{_median(figures, what, system):,.0f}" for system in figures.systems)]
        for what, title in _TITLES.items()
    ]
    said = (
        "From submission to result against a target that says 200 at once; what differs between "
        "the two, what a job costs and what a runner that has nothing to do: [jobs.md](jobs.md)."
    )
    return "\n\n".join(["## Jobs", table(head, rows), said])


def _times(rounds: int) -> str:
    return f"{rounds} round{'s' * (rounds != 1)}"


def per_second(rate: Rate) -> float:
    return rate.per_second


def _median(
    figures: Figures, what: str, system: str, value: Callable[[Rate], float] = per_second
) -> float:
    return median(map(value, figures.rates[what, system]))


def _rates(figures: Figures) -> str:
    rows = []
    for what, title in _TITLES.items():
        for system in figures.systems:
            found = figures.rates[what, system]
            rates = [rate.per_second for rate in found]
            spread = (max(rates) - min(rates)) / 2 / median(rates)
            rows.append([
                title, system, f"{median(rates):,.0f}",
                f"±{spread:.0%}" if len(rates) > 1 else "",
                *(_cpu(found, kind, is_submitted=what.startswith("submit")) for kind in KINDS),
            ])  # fmt: skip
    return table(["", "", "jobs/s", "", *KINDS], rows, words=2)


def _cpu(found: list[Rate], kind: str, *, is_submitted: bool) -> str:
    # While a line is worked off, the caller is who watches it.
    if kind not in found[0].cpu_us or (kind == "caller" and not is_submitted):
        return ""
    return f"{median(rate.cpu_us[kind] for rate in found) / 1000:.2f}"


def _singles(figures: Figures) -> str:
    rows = []
    for system in figures.systems:
        watched, reported = (figures.singles[system, way] for way in ("watched", "reported"))
        rows.append([
            system, *(f"{_ms(of, name):.0f}" for of, name in (
                (watched, "called_ms"), (watched, "seen_ms"), (reported, "seen_ms"))),
        ])  # fmt: skip
    return table(["median, ms", "called", "done", "reported"], rows)


def _ms(singles: list[Single], name: str) -> float:
    return float(median(getattr(single, name) for single in singles))


def _idle(found: list[Idle]) -> str:
    rows = [
        [
            idle.name, f"{idle.cpu_ms:,.0f}", f"{idle.redis_cpu_ms:,.0f}", f"{idle.commands:,.0f}",
            "" if idle.statements is None else f"{idle.statements:,.0f}",
        ]
        for idle in found
    ]  # fmt: skip
    head = ["a minute", "CPU, ms", "Redis' CPU, ms", "commands to Redis", "statements to SQL"]
    return table(head, rows)


def _as_dict(figures: Figures, machine: Machine) -> dict[str, Any]:
    return {
        "machine": machine.as_dict(),
        "versions": figures.versions,
        "amount": asdict(figures.amount),
        "poll_delay_s": figures.poll_delay_s,
        "loads": figures.loads,
        "problems": figures.problems,
        "rates": [
            {"what": what, "system": system, "rounds": [asdict(rate) for rate in found]}
            for (what, system), found in figures.rates.items()
        ],
        "singles": [
            {"system": system, "seen": way, "jobs": [single._asdict() for single in found]}
            for (system, way), found in figures.singles.items()
        ],
        "idle": [asdict(idle) for idle in figures.idle],
    }
