"""The benchmark: its arithmetic, its report, and one real run of a second."""

import http.server
import json
import shutil
import threading
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadtest.bench import report
from loadtest.bench.figures import Figures
from loadtest.bench.runs import Load, MeasurementError, Request, Run, Totals, ask, measure, parse
from loadtest.bench.systems import mixed, pictures, spread, visit
from loadtest.bench.targets import targets
from loadtest.bench.workloads import WORKLOADS
from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS
from tests.loadtest.reports import MACHINE

REPORTS = Path(report.__file__).resolve().parents[1] / "reports"
LINE = {
    "requests": 300, "seconds": 1.5, "bytes": 9, "p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": 3.0,
    "refused": 0, "broken": 0, "ok": 0,
}  # fmt: skip


PARTS = {("plain", "admitted"), ("plain", "kept"), ("bare", "polls")}


def run(workload="admitted", system="waitroom", number=0, *, requests=1000, **fields):
    totals = Totals(**{**LINE, "requests": requests, "seconds": 1.0})
    cpu = fields.pop("cpu", {"nginx": 0.5, "redis": 0.25, "origin": 0.25})
    return Run(workload, system, number, totals, cpu, **fields)


def all_runs(ours=1000, **fields):
    return [
        run(workload.name, system, number, requests=ours if system == "waitroom" else 1000,
            joined=1000, inside=500, cap=500, polls_per_minute=6, **fields)
        for workload in WORKLOADS
        for system in ("plain", "bare", "waitroom", "lua")
        if system in {"waitroom", "lua"} or (system, workload.name) in PARTS
        for number in range(3)
    ]  # fmt: skip


def reached(runs, folder=None):
    return [target.is_reached for target in targets(Figures(runs), folder)]


def test_what_wrk_said_is_the_last_line_in_braces():
    totals = parse(f"Running 1s test\n{{}} no\n{json.dumps(LINE)}\nRequests/sec: 200")
    assert (totals.requests, totals.seconds, totals.p99_ms) == (300, 1.5, 3.0)


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
    """Even with the others: cheaper than the bound, dearer, and what others measure is open."""
    cpu = {"nginx": 0.4, "replicas": 0.1, "redis": 0.25, "origin": 0.25}
    even = reached(all_runs(cpu=cpu, memory_mb=100.0))
    assert even == [True, False, True, False, False, True, True, True, *[None] * 5, True, True]
    assert reached(all_runs(ours=3000, cpu=cpu))[:8] == [True] * 8
    assert reached([]) == [None] * 15


def test_targets_of_other_reports_are_read_beside_it(tmp_path):
    """Medians of what `make loadtest`, `bench-limits` and `bench-jobs` wrote."""
    assert reached([], REPORTS)[8:10] != [None] * 2
    head = "replicas,users,requests/s,mean ms,peak sessions,peak at the origin,cap"
    steps = ["10,2000,4100,300,1500,1500,1500", "10,2000,4200,300,1500,,1500",
             "10,2000,100,900,1500,1500,1500", "3,3000,4100,700,1500,1501,1500"]  # fmt: skip
    (tmp_path / "loadtest.csv").write_text("\n".join([head, *steps]))
    found = targets(Figures([]), tmp_path)
    assert [(each.is_reached, each.figure) for each in found[8:10]] == [
        (True, "4,100/s, 0.300 s"), (False, "4,100/s, 0.700 s"),
    ]  # fmt: skip
    assert (found[13].is_reached, found[13].figure) == (False, "1")


def test_a_visitor_above_the_cap_in_any_run_is_told():
    runs = [run(inside=500, cap=500), run(inside=501, cap=500, number=1)]
    runs.append(run(system="lua", inside=540, cap=500))
    over = targets(Figures(runs))[-2]
    assert (over.is_reached, over.figure) == (False, "1 (Lua design: 40)")


def test_the_report_names_machine_targets_and_problems(tmp_path):
    runs = all_runs(problems=["3 of a sample: site was due, status 502 was served"])
    figures = Figures(runs, ["lua, deep, round 1: lost"])
    made = report.report(figures, how="3 rounds.", sections=["## Scale"], data={"runs": runs})
    text = made.write(tmp_path, MACHINE)
    parts = "a CPU, 2 cores", "**does not hold**", "what would reach it", "status 502", "lua, deep"
    assert [part for part in (*parts, "## Scale") if part not in text] == []
    assert {path.name for path in tmp_path.iterdir()} == {
        "bench.md", "data", "bench-throughput.svg", "bench-cpu.svg",
    }  # fmt: skip
    document = json.loads((tmp_path / "data/bench.json").read_text())
    assert len(document["figures"]["runs"]) == len(runs)


def test_a_report_of_a_part_has_no_holes(tmp_path):
    report.report(Figures([run()]), how="1 round.").write(tmp_path, MACHINE)
    assert "not measured" in (tmp_path / "bench.md").read_text()


def test_the_mix_has_its_shares_and_one_order():
    polls = [Request("GET", f"/poll/{n}") for n in range(100)]
    made = [mixed([visit("/in", "site")], polls, visit("/new", "place")) for _ in range(2)]
    paths = [request.path for request in made[0]]
    assert (paths.count("/in"), paths.count("/new"), len(paths)) == (280, 20, 400)
    assert made[0] == made[1]


def test_a_mix_leaves_the_visitors_to_go_on_by_themselves():
    """Their pages, their pictures, and in turn a request of somebody else or the next of theirs."""
    pages, polls = [visit("/in", "site")], [Request("GET", f"/poll/{n}") for n in range(2)]
    load = Load([*pages, *polls, *pages], pictures=pictures("/in/")[:1], pages=pages)
    lines = list(load.lines(load.requests))
    assert [line.partition("\t")[2].partition("\t")[0] or line for line in lines] == [
        "/in", "", "/in/0.webp", "", "-", "/poll/0", "/poll/1", "-",
    ]  # fmt: skip


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


class Site(http.server.BaseHTTPRequestHandler):
    """Gives each page's visitor a cookie; writes down who asked for what, with which cookies."""

    protocol_version = "HTTP/1.1"
    asked: defaultdict[str, list[tuple[str, str]]]

    def do_GET(self):
        name = self.headers["X-Visitor"]
        visitor = name.partition(".")[0]
        self.asked[visitor].append((self.path, self.headers["Cookie"]))
        self.send_response(200)
        self.send_header("X-Visitor", name)
        self.send_header("Content-Length", "0")
        if self.path == "/":
            self.send_header("Set-Cookie", f"now={len(self.asked[visitor])}; Path=/; HttpOnly")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_visitors_ask_for_a_page_and_its_pictures_with_their_cookies(tmp_path):
    """One after the other, each with a cookie of their own and the one that the page brought."""
    Site.asked = defaultdict(list)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Site.site = SimpleNamespace(folder=tmp_path, url=f"http://127.0.0.1:{server.server_port}")
    # So many that whoever waits for a stalled response is not in turn again meanwhile.
    pages = [visit("/", "site", cookie=f"pass={n}") for n in range(400)]
    load = Load(pages, pictures=pictures("/")[:2], connections=2)
    totals = ask(Site, load, pages, 1)
    server.shutdown()
    server.server_close()
    assert totals.requests > 50
    assert totals.requests - totals.ok <= 4
    # Each in turn, as far as a busy machine comes in a second.
    assert len(Site.asked) > 50
    assert set(Site.asked) <= {str(number) for number in range(1, 401)}
    for number, asked in Site.asked.items():
        own = f"pass={int(number) - 1}"
        pages = [at for at, (path, _) in enumerate(asked) if path == "/"]
        visits = [asked[begin:end] for begin, end in pairwise([*pages, len(asked)])]
        paths = [[path for path, _ in one] for one in visits]
        # The end of warming or of the run cuts a visit off, and wrk asks anew where a connection
        # ended without a response.
        assert sum(one != ["/", "/0.webp", "/1.webp"] for one in paths) <= 2
        for at, one in zip(pages, visits, strict=True):
            for _, cookies in one[1:]:
                assert set(cookies.split("; ")) == {own, f"now={at + 1}"}
        assert asked[0][1] == own


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_seconds_of_waitroom():
    from loadtest.bench.systems import in_memory
    from loadtest.bench.waitroom import Waitroom

    with in_memory(), Waitroom() as system:
        kept_s = VERDICT_TTL_MS // 1000  # so long until the replicas are surely asked again
        inside = measure(system, "admitted", 0, warm_s=1, seconds=kept_s)
        flood = measure(Wrong(system, Load([visit("/nowhere", "site")])), "rush", 0, warm_s=0,
                        seconds=1)  # fmt: skip
        folder = system.site.folder
    assert inside.problems == []
    assert inside.totals.requests > 100
    assert inside.cpu["nginx"] > 0
    assert inside.cpu["replicas"] > 0
    assert (inside.inside, inside.cap) == (2000, 2000)
    assert any("status above 399" in problem for problem in flood.problems)
    assert any("site was due, status 404 was served" in problem for problem in flood.problems)
    assert not folder.exists()
