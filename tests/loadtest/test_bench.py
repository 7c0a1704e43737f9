"""The benchmark: its arithmetic, its report, and one real run of a second."""

from __future__ import annotations

import json
import shutil

import pytest

from loadtest.bench import report
from loadtest.bench.figures import Figures, targets
from loadtest.bench.runs import Load, MeasurementError, Request, Run, Told, measure, parse
from loadtest.bench.systems import mixed, spread, visit
from loadtest.bench.workloads import WORKLOADS
from loadtest.machine import Machine
from sidecar.base.model import VERDICT_TTL_MS

MACHINE = Machine("a CPU", 2, 4.0, "Linux 6", "3.11", "1.22", "7.0")
LINE = {
    "requests": 300, "seconds": 1.5, "bytes": 9, "p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": 3.0,
    "refused": 0, "broken": 0, "ok": 0,
}  # fmt: skip


def run(workload="admitted", system="waitroom", number=0, *, requests=1000, **fields):
    told = Told(**{**LINE, "requests": requests, "seconds": 1.0})
    cpu = fields.pop("cpu", {"nginx": 0.5, "redis": 0.25, "origin": 0.25})
    return Run(workload, system, number, told, cpu, **fields)


def all_runs(ours=1000, **fields):
    return [
        run(workload.name, system, number, requests=ours if system == "waitroom" else 1000,
            joined=1000, inside=500, cap=500, polls_per_minute=6, **fields)
        for workload in WORKLOADS
        for system in ("plain", "waitroom", "lua")
        if system != "plain" or workload.name == "admitted"
        for number in range(3)
    ]  # fmt: skip


def reached(runs, number):
    return targets(Figures(runs))[number].reached


def test_what_wrk_said_is_the_last_line_in_braces():
    told = parse(f"Running 1s test\n{{}} no\n{json.dumps(LINE)}\nRequests/sec: 200")
    assert (told.requests, told.seconds, told.p99_ms) == (300, 1.5, 3.0)


@pytest.mark.parametrize("output", ["unable to connect", json.dumps({**LINE, "requests": 0})])
def test_no_answers_are_no_measurement(output):
    with pytest.raises(MeasurementError):
        parse(output)


def test_a_run_counts_arrivals_not_requests():
    redirected = run(each=2, joined=500, inside=503, cap=500, polls_per_minute=6)
    assert redirected.per_second == 500
    assert redirected.cpu_per_1000() == 2.0
    assert redirected.cpu_per_1000("nginx", "replicas") == 1.0
    assert redirected.own_cpu == 0.75
    assert redirected.joins_per_cpu_second == pytest.approx(500 / 0.75)
    assert redirected.cpu_per_waiting_minute == pytest.approx(1000 * 6 * 0.75 / 500)
    assert redirected.overshoot == 3


def test_ratios_are_paired_and_then_their_median_is_taken():
    runs = [run(number=n, requests=r) for n, r in enumerate((100, 800, 300))]
    runs += [run(system="lua", number=n, requests=r) for n, r in enumerate((100, 400, 100))]
    figures = Figures(runs)
    assert figures.ratio("admitted", "waitroom", "lua", lambda r: r.per_second) == 2
    assert figures.median("admitted", "waitroom", lambda r: r.per_second) == 300
    assert figures.ratio("admitted", "waitroom", "plain", lambda r: r.per_second) is None


def test_targets_are_reached_or_not():
    even = [t.reached for t in targets(Figures(all_runs()))]
    assert even == [False, True, False, False, True, True]
    assert [t.reached for t in targets(Figures(all_runs(ours=2000)))] == [True] * 6
    assert targets(Figures([]))[0].reached is None


def test_a_visitor_above_the_cap_in_any_run_is_told():
    runs = [run(inside=500, cap=500), run(inside=501, cap=500, number=1)]
    runs.append(run(system="lua", inside=540, cap=500))
    last = targets(Figures(runs))[-1]
    assert (last.reached, last.figure) == (False, "1 (Lua design: 40)")


def test_the_report_names_machine_targets_and_problems(tmp_path):
    runs = all_runs(problems=["3 of a sample: site was due, status 502 was served"])
    figures = Figures(runs, ["lua, deep, round 1: lost"])
    text = report.write(
        figures, MACHINE, tmp_path, how="3 rounds.", scale={"x": 1}, sections=["## Scale"]
    )
    for part in (
        "a CPU, 2 cores",
        "**not reached**",
        "what would reach it",
        "status 502",
        "lua, deep",
        "## Scale",
    ):
        assert part in text
    assert {path.name for path in tmp_path.iterdir()} == {
        "bench.md", "bench.json", "bench-throughput.svg", "bench-cpu.svg",
    }  # fmt: skip
    document = json.loads((tmp_path / "bench.json").read_text())
    assert len(document["runs"]) == len(runs)
    assert document["scale"] == {"x": 1}


def test_a_report_of_a_part_has_no_holes(tmp_path):
    report.write(Figures([run()]), MACHINE, tmp_path, how="1 round.")
    assert "not measured" in (tmp_path / "bench.md").read_text()


def test_the_mix_has_its_shares_and_one_order():
    polls = [Request("GET", f"/poll/{n}") for n in range(100)]
    made = [mixed([visit("/in", "site")], polls, visit("/new", "place")) for _ in range(2)]
    paths = [request.path for request in made[0]]
    assert (paths.count("/in"), paths.count("/new"), len(paths)) == (280, 20, 400)
    assert made[0] == made[1]


def test_a_few_of_many_come_from_all_along():
    assert spread(list(range(100)), 4) == [0, 25, 50, 75]


class Wrong:
    """Waitroom, asked for something else than it serves."""

    def __init__(self, system, load):
        self._system, self._load = system, load

    def __getattr__(self, name):
        return getattr(self._system, name)

    def prepare(self, _workload):
        return self._load


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_seconds_of_waitroom():
    from loadtest.bench.systems import in_memory
    from loadtest.bench.waitroom import Waitroom

    with in_memory(), Waitroom() as system:
        kept_s = VERDICT_TTL_MS // 1000  # so long until the replicas are surely asked again
        inside = measure(system, "admitted", 0, warm_s=1, seconds=kept_s)
        flood = measure(Wrong(system, Load([visit("/nowhere", "site")])), "rush", 0, warm_s=0,
                        seconds=1)  # fmt: skip
        folder = system.folder
    assert inside.problems == []
    assert inside.told.requests > 100
    assert inside.cpu["nginx"] > 0
    assert inside.cpu["replicas"] > 0
    assert (inside.inside, inside.cap) == (2000, 2000)
    assert any("status above 399" in problem for problem in flood.problems)
    assert any("site was due, status 404 was served" in problem for problem in flood.problems)
    assert not folder.exists()
