"""`make bench-adaptive`: a room that sizes itself, before a real shop whose capacity is halved.

Locust's visitors wait, enter, look at pages and leave. First the room has fixed caps, of which a
search finds the best. Then it begins at `min` and finds its size alone. At last the shop loses half
of its threads. What the visitors got is from nginx's own log. All constants of the control law are
those of the product: visits of two minutes make the run short.
"""

import json
import math
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from loadtest.amount import option
from loadtest.bench.runs import measure
from loadtest.bench.systems import in_memory
from loadtest.bench.waitroom import Waitroom
from loadtest.generator import Generator
from loadtest.machine import cpu_ns
from loadtest.report import OLD, OURS, PLAIN, Report, Target, draw_bars, new_figure
from loadtest.rounds import Rounds
from tests.support.processes import free_port
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, ROOT, TO_ORIGIN, Site, gated

THREADS, THINK_S, PAGES = 8, 3.0, 40
TARGET_S, MAX_ERRORS = 0.9, 0.02
#: How many visitors the adaptive room lets in at first.
LEAST = 20
#: More visitors than any room here lets in, so that the queue never ends.
USERS = 640
#: The caps of the search: the first, and by how much the next ones differ from the best so far.
FIRST, CLIMB, FINER = 90, 1.5, (1.22, 1.1)
#: A fixed cap that is too low or too high differs from the best by this factor.
WRONG = 3
#: The time that one point of the chart and the judgement of a moment cover, in seconds.
STEP_S, MOMENT_S = 10, 30
#: Fixed caps serve alike with this share of the best one's good pages.
ALIKE = 0.95
#: How near is near enough, and the time at the end that shows the halved shop, in seconds.
NEAR, TAIL_S = 0.15, 60
DATAGRAMS = 20_000
_COLOURS = {"fixed cap": PLAIN, "adaptive": OURS}
REPORT = b"<190>Nov 27 10:00:00 waitroom: kept|25|200|0.120|0.121|200"


@dataclass(frozen=True, slots=True)
class Amount:
    #: How long a fixed cap settles, and is measured.
    settle_s: int = 12
    fixed_s: int = 32
    #: When the shop is halved, for how long the room is settled before, and the end.
    halved_s: int = 840
    settled_s: int = 180
    end_s: int = 1140
    #: 0: a search finds it.
    best: int = option(0, "the best fixed cap, in place of a search")
    rounds: int = 5


WHOLE = Amount()
QUICK = Amount(5, 10, 80, 20, 110, best=150, rounds=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """The room at a moment, in seconds of the run."""

    at: float
    inside: int
    ceiling: int
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """A response of the shop: when it ended, how long it took, and whether it was a page."""

    at: float
    taken_s: float
    is_page: bool


@dataclass(slots=True)
class Run:
    """A run, or a part of one."""

    cap: int
    seconds: float
    samples: list[Sample] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def between(self, since: float, until: float) -> "Run":
        """Return a part of the run."""
        samples = [each for each in self.samples if since <= each.at < until]
        views = [each for each in self.views if since <= each.at < until]
        return Run(self.cap, until - since, samples, views, self.problems)

    @property
    def goodput(self) -> float:
        """Return the pages per second that came within the target."""
        return sum(each.is_page and each.taken_s <= TARGET_S for each in self.views) / self.seconds

    @property
    def p90_s(self) -> float:
        """Return the p90 of the response times; 0 without responses."""
        times = sorted(each.taken_s for each in self.views)
        return times[int(0.9 * len(times))] if times else 0.0

    @property
    def mean_s(self) -> float:
        return fmean([each.taken_s for each in self.views] or [0])

    @property
    def inside(self) -> float:
        return fmean([each.inside for each in self.samples] or [0])


class ShopSite(Site):
    """A site whose origin is the shop, and which reports its responses as the product's file says.

    Args:
        room: Settings of the room.
    """

    def __init__(self, room: dict[str, Any]) -> None:
        address, health = _health()
        super().__init__(
            rooms={"shop": room},
            settings={**BY_DEFAULT, "log_level": "warning", "health_listen": address},
            stamps=True,
            http="log_format views '$msec $status $upstream_response_time';",
            locations=gated("/", *TO_ORIGIN, health, "access_log @folder@/views.log views;"),
        )

    def _origin_command(self) -> list[str]:
        shop = str(ROOT / "loadtest/shop.py")
        return [
            sys.executable, shop, str(self.origin_port), f"{self.folder}/shop.db", str(THREADS)
        ]  # fmt: skip

    def read_views(self, since_s: float) -> Iterator[View]:
        for line in (self.folder / "views.log").read_text().splitlines():
            moment, status, taken = line.split(" ", 2)
            if taken != "-":  # the visitor was gone before the shop was asked
                yield View(float(moment) - since_s, float(taken), status == "200")


def _health() -> tuple[str, str]:
    """Return an address for reports, and the lines of health.conf with this address."""
    address = f"127.0.0.1:{free_port()}"
    text = (ROOT / "nginx/waitroom/health.conf").read_text()
    return address, text.replace("127.0.0.1:8403", address)


def measure_reports(amount: Amount) -> Iterator[Report]:
    costs = measure_costs(amount.rounds)
    fixed = find_best(amount) if not amount.best else {amount.best: run_fixed(amount, amount.best)}
    best = max(fixed, key=lambda cap: fixed[cap].goodput)
    for cap in (best // WRONG, best * WRONG):
        fixed[cap] = run_fixed(amount, cap)
    adaptive = {"mode": "on", "p90": TARGET_S, "max_errors": MAX_ERRORS, "min": LEAST}
    run = run_room(best * WRONG, amount.end_s, json.dumps(adaptive), amount.halved_s)
    yield report(amount, best, fixed, run, costs)


def run_fixed(amount: Amount, cap: int) -> Run:
    """Return the run with a fixed cap, from the time on when the room has settled."""
    lasts_s = amount.settle_s + amount.fixed_s
    run = run_room(cap, lasts_s).between(amount.settle_s, lasts_s)
    print(f"cap {cap}: {run.goodput:.1f} good pages/s, p90 {run.p90_s:.2f} s", flush=True)
    return run


def find_best(amount: Amount) -> dict[int, Run]:
    """Return the runs of a search for the fixed cap with the most good pages: it climbs in large
    steps until there are fewer, and then looks nearer to the best."""
    runs: dict[int, Run] = {}

    def score(cap: int) -> float:
        if cap not in runs:
            runs[cap] = run_fixed(amount, cap)
        return runs[cap].goodput

    cap = FIRST
    while score(higher := round(cap * CLIMB)) > score(cap):
        cap = higher
    for step in FINER:
        cap = max((round(cap / step), cap, round(cap * step)), key=score)
    return runs


def run_room(cap: int, seconds: int, adaptive: str = "", halved_at: float = math.inf) -> Run:
    """Let visitors use a new site for so many seconds. Halve the shop after `halved_at`."""
    room: dict[str, Any] = {"total_active_users": cap, "session_duration": 120}
    if adaptive:
        room["adaptive"] = adaptive
    run = Run(cap, seconds)
    with ShopSite(room) as site:
        with Generator(
            site, USERS, seconds + 5, mix="shopper=1", think=THINK_S, stay=PAGES, abandon=0,
            silent=0, ops=site.ops[0], admin_token=ADMIN_TOKEN,
        ) as generator:  # fmt: skip
            while not site.room()["active"]:
                time.sleep(0.1)
            began_s = time.time()
            while (at := time.time() - began_s) < seconds:
                if at >= halved_at:
                    site.origin.signal(signal.SIGUSR1)
                    halved_at = math.inf
                run.samples.append(_sample(site.room(), at))
                time.sleep(1)
            findings = generator.finish()["findings"]
        run.problems = [
            f"cap {cap}: {each['promise']}: {each['text']}"
            for each in findings
            if each["kept"] is False
        ]
        run.views = list(site.read_views(began_s))
    return run


def _sample(room: dict[str, Any], at: float) -> Sample:
    found = room["site"] or {"ceiling": 0, "state": "", "text": ""}
    return Sample(at, room["active"], found["ceiling"], found["state"], found["text"])


# What it costs ------------------------------------------------------------------------------------


#: CPU time in µs of nginx for one request of a visitor inside, and of a replica for one report.
Costs = Rounds[str, float]
WITHOUT, WITH, REPORTED = "without health.conf", "with health.conf", "a report"


def measure_costs(times: int) -> Costs:
    """Measure nginx without and with health.conf in turns, and a replica that gets reports."""
    address, health = _health()
    room = {"adaptive": json.dumps({"mode": "advise", "p90": TARGET_S})}
    # Only one replica can listen for reports.
    plain = Waitroom(replicas=1)
    measured = Waitroom({"health_listen": address}, room, (health,), replicas=1)
    costs = Costs(times)
    with in_memory(), plain, measured:
        for turn in costs.turns([(WITHOUT, plain), (WITH, measured)]):
            for name, system in turn:
                run = measure(system, "kept", warm_s=1, seconds=3)
                assert run is not None
                costs.add(name, 1e6 * run.cpu["nginx"] / run.totals.requests)
            costs.add(REPORTED, _measure_report(measured.site, address))
    return costs


def _measure_report(site: Site, address: str) -> float:
    """Return a replica's CPU time for one report in µs."""
    host, _, port = address.partition(":")
    replica, before = site.replicas[0].pid, site.count_reports().get("counted", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nginx:
        began_ns = cpu_ns([replica])
        for _ in range(DATAGRAMS // 100):
            for _ in range(100):
                nginx.sendto(REPORT, (host, int(port)))
            time.sleep(0.01)
        time.sleep(1.5)  # the counts are written once a second
        used_ns = cpu_ns([replica]) - began_ns
    return used_ns / 1000 / (site.count_reports().get("counted", 0) - before)


# The report ---------------------------------------------------------------------------------------


def report(amount: Amount, best: int, fixed: dict[int, Run], run: Run, costs: Costs) -> Report:
    settled = run.between(amount.halved_s - amount.settled_s, amount.halved_s)
    parts = {
        **{f"cap {cap}": fixed[cap] for cap in sorted(fixed)},
        "adaptive, settled": settled,
        "adaptive, half of the threads": run.between(amount.end_s - TAIL_S, amount.end_s),
    }
    modes = {"too low": best // WRONG, "best": best, "too high": best * WRONG}
    goodputs = {
        f"cap {cap}, {what}": {"fixed cap": fixed[cap].goodput} for what, cap in modes.items()
    }
    goodputs[f"adaptive, {settled.inside:.0f} inside"] = {"adaptive": settled.goodput}
    least = ALIKE * fixed[best].goodput
    changes = [
        each
        for before, each in pairwise([Sample(0, 0, 0, "", ""), *run.samples])
        if each.state != before.state
    ]
    values = {
        "amount": amount, "threads": THREADS, "users": USERS, "pages": PAGES, "think_s": THINK_S,
        "target_s": TARGET_S, "max_errors": MAX_ERRORS, "least": LEAST, "most": best * WRONG,
        "share": ALIKE, "alike": [cap for cap in fixed if fixed[cap].goodput >= least],
        "changes": changes, "parts": parts, "costs": costs,
        "cost_us": [costs.median(name, float) for name in (WITHOUT, WITH, REPORTED)],
    }  # fmt: skip
    problems = [problem for each in (*fixed.values(), run) for problem in each.problems]
    files: dict[str, Figure | str] = {
        "adaptive.svg": _draw_run(amount, best, run),
        "adaptive-modes.svg": draw_bars(goodputs, _COLOURS, "good pages/s", ".1f"),
    }
    figures = {"fixed": fixed, "adaptive": run, "costs": costs}
    goals = _goals(amount, fixed[best], run, settled)
    return Report("adaptive", values, figures, files, problems, goals)


def _goals(amount: Amount, best: Run, run: Run, settled: Run) -> list[Target]:
    inside, goodput = settled.inside / best.cap, settled.goodput / best.goodput
    near = [each.at for each in run.samples if abs(each.inside / best.cap - 1) <= NEAR]
    back = [
        each.at - amount.halved_s
        for each in run.samples
        if amount.halved_s <= each.at <= amount.end_s - MOMENT_S
        and run.between(each.at, each.at + MOMENT_S).p90_s <= TARGET_S
    ]
    stay_s = PAGES * (THINK_S + settled.mean_s)
    due_s = stay_s * math.log(2) + 60
    measured = [
        ("visitors inside, over the best fixed cap", f"within {NEAR:.0%}",
         abs(inside - 1) <= NEAR,
         f"{inside:.2f}; first after {near[0]:.0f} s" if near else "never"),
        ("good pages, over those of the best fixed cap", "≥ 0.9", goodput >= 0.9, f"{goodput:.2f}"),
        ("p90, over the target", "≤ 1.1", settled.p90_s <= 1.1 * TARGET_S,
         f"{settled.p90_s / TARGET_S:.2f}"),
        (f"inside the target after the halving, with visits of {stay_s:.0f} s", f"≤ {due_s:.0f} s",
         bool(back) and back[0] <= due_s, f"{back[0]:.0f} s" if back else "never"),
    ]  # fmt: skip
    said = [each for each in run.samples if each.at < amount.halved_s][-1], run.samples[-1]
    why_not = (
        f"Before the halving the room was {said[0].state} ({said[0].text}), at the end"
        f" {said[1].state} ({said[1].text}). It served {goodput:.2f} of the best fixed cap's good"
        f" pages with {inside:.2f} of its visitors inside."
    )
    is_whole = amount.halved_s >= WHOLE.halved_s
    return [
        Target(what, wanted, is_reached if is_whole else None, figure, why_not)
        for what, wanted, is_reached, figure in measured
    ]


def _draw_run(amount: Amount, best: int, run: Run) -> Figure:
    figure = new_figure(8, 6)
    above, below = figure.subplots(2, sharex=True)
    minutes = [each.at / 60 for each in run.samples]
    ceilings = [each.ceiling or LEAST for each in run.samples]
    above.plot(minutes, ceilings, color=OLD, label="ceiling")
    above.plot(minutes, [each.inside for each in run.samples], color=OURS, label="inside")
    above.axhline(best, color=PLAIN, linestyle="--", label="best fixed cap")
    above.set_ylabel("visitors")
    steps = range(0, amount.end_s, STEP_S)
    p90s = [run.between(at, at + STEP_S).p90_s for at in steps]
    below.plot([(at + STEP_S / 2) / 60 for at in steps], p90s, color=OURS, label="p90")
    below.axhline(TARGET_S, color=PLAIN, linestyle="--", label="target")
    below.set(ylabel="seconds", xlabel="minutes")
    for axes in (above, below):
        axes.axvline(amount.halved_s / 60, color=OLD, linestyle=":", label="half of the threads")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return figure
