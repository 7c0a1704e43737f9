"""Locust with the suite as a load generator, and the CPU time of all parts of a loaded site."""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, Self

from loadtest.machine import busy_seconds, cpu_ns
from loadtest.verdict import FIGURES_BEGIN
from tests.support.processes import Process, free_port, wait_until
from tests.support.site import ROOT, Site

#: Number of users that start per second.
SPAWN = 600
#: Number of Locust's processes.
PROCESSES = 2
NOFILE = 65536
#: nginx lines of a site that responds at once, and logs the visitors.
ORIGIN = "location / { access_log @folder@/hits.log load; return 200 'Welcome.'; }"


class Generator(Process):
    """Locust, which loads a site until the end of the block. `values` are options of the suite."""

    def __init__(self, site: Site, users: int, seconds: float, **values: object) -> None:
        self._report = site.folder / "load.json"
        self._report.unlink(missing_ok=True)
        self._seconds = seconds
        values = {"allow_untested": True, "client": "lean", "report": self._report, **values}
        names = {f"WAITROOM_LOAD_{name.upper()}": str(value) for name, value in values.items()}
        port = str(free_port())
        command = [
            str(Path(sys.executable).parent / "locust"), "-f", "loadtest/locustfile.py",
            "--headless", "--host", site.url, "-u", str(users), "-r", str(SPAWN),
            "-t", f"{round(seconds)}s", "--processes", str(PROCESSES), "--only-summary",
            "--loglevel", "WARNING", "--master-bind-port", port, "--master-port", port,
        ]  # fmt: skip
        log = site.folder / f"locust-{port}.log"
        super().__init__(command, log=log, cwd=ROOT, env={**os.environ, **names})

    def __enter__(self) -> Self:
        self.start()
        return self

    def wait_until_warm(self) -> None:
        """Wait until the figures begin, which is after `warm_up` seconds."""
        wait_until(lambda: FIGURES_BEGIN in self.output, "figures", self._seconds + 60, of=self)

    def finish(self) -> dict[str, Any]:
        """Wait until Locust ends by itself. Return its report."""
        wait_until(lambda: not self.running, "the end of Locust", self._seconds + 60)
        if not self._report.exists():
            raise SystemExit(f"the load generator made no report:\n{self.output}")
        report: dict[str, Any] = json.loads(self._report.read_text())
        return report


def measure_load(
    site: Site, users: int, warm_up_s: float, measured_s: float, **values: object
) -> tuple[dict[str, Any], dict[str, float]]:
    """Load a site. Return Locust's report, and the CPU time of each part in cores."""
    # The CPU is read within the time that Locust measures, with a second more at its end.
    seconds = warm_up_s + measured_s + 1
    with Generator(site, users, seconds, warm_up=warm_up_s, **values) as generator:
        generator.wait_until_warm()
        before, began = _cpu_by_part(site, generator), time.monotonic()
        time.sleep(measured_s)
        after, lasted = _cpu_by_part(site, generator), time.monotonic() - began
        report = generator.finish()
    if report["verdict"] == "BROKEN":
        print(generator.output)
    cores = {part: (after[part] - before[part]) / lasted for part in after}
    cores["everything else"] -= sum(cores.values()) - cores["everything else"]
    return report, cores


def _cpu_by_part(site: Site, generator: Generator) -> dict[str, float]:
    """Return the CPU seconds so far by part. The last value is that of the whole machine."""
    return {
        "nginx": cpu_ns([site.nginx.pid]) / 1e9,
        "replicas": cpu_ns(replica.pid for replica in site.replicas) / 1e9,
        "Redis": cpu_ns([site.redis.pid]) / 1e9,
        "site": cpu_ns([site.origin.pid]) / 1e9,
        "load generator": cpu_ns([generator.pid]) / 1e9,
        "everything else": busy_seconds(with_steal=True),
    }


def raise_limits() -> None:
    """Allow thousands of connections, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = NOFILE if hard == resource.RLIM_INFINITY else min(NOFILE, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
