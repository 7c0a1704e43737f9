"""Figures for a report come from quiet minutes: how busy everything else on the machine was.

`make …` writes its report only where other programs took less than a fifth of a core, unless it is
asked to (FORCE=1).
"""

import os
import sys
import time
from pathlib import Path

from loadtest.machine import cpu_seconds

_ROOT = Path(__file__).resolve().parents[1]
#: Where whole reports lie, and where those of parts.
REPORTS, PARTS = _ROOT / "loadtest/reports", _ROOT / ".run/reports"
#: Cores that other programs may use.
MOST = 0.2
_LOOK_S = 2.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class NotQuietError(Exception):
    """Something else keeps the machine busy."""


class Watch:
    """The cores that others use, from its making on; and where the report goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began, self._others_s = time.monotonic(), _others_s()

    def others(self) -> float:
        lasted = time.monotonic() - self._began
        return max(0.0, (_others_s() - self._others_s) / lasted) if lasted else 0.0

    @property
    def is_quiet(self) -> bool:
        return self.others() <= MOST or bool(os.environ.get("FORCE"))

    def folder(self) -> Path:
        """That of the reports, or that of parts where it was not quiet."""
        if self._folder == REPORTS and not self.is_quiet:
            self._folder = PARTS
            print(f"NO REPORT: {self._said()}", file=sys.stderr)
        return self._folder

    def must_be_quiet(self) -> None:
        """Raises NotQuietError, unless no report is written anyway."""
        if self._folder == REPORTS and not self.is_quiet:
            raise NotQuietError(f"{self._said()} The busiest now: {', '.join(_busiest())}.")

    def _said(self) -> str:
        return (
            f"other programs used {self.others():.2f} of a core, and figures beside more than "
            f"{MOST:g} are worth little. Measure in a quiet minute, or say FORCE=1."
        )


def begin(folder: Path) -> Watch:
    """Looks for a moment before anything is measured; raises NotQuietError."""
    if folder == REPORTS:
        look = Watch(folder)
        time.sleep(_LOOK_S)
        look.must_be_quiet()
    return Watch(folder)


def _others_s() -> float:
    """CPU seconds so far of all but this process, those it started, and what they started."""
    # user, nice, system, idle, iowait, irq, softirq
    fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]]
    busy = sum(fields) - fields[3] - fields[4]
    return busy / _TICKS_PER_S - cpu_seconds([os.getpid()], with_ended=True)


def _busiest() -> list[str]:
    """Programs by the CPU time that they took within a moment, the first three."""
    before = _by_process()
    time.sleep(0.5)
    took = {pid: s - before.get(pid, s) for pid, s in _by_process().items() if pid != os.getpid()}
    first = sorted(took, key=lambda pid: -took[pid])[:3]
    return [f"{_name(pid)} ({pid})" for pid in first if took[pid] > 0] or ["none"]


def _by_process() -> dict[int, float]:
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid: cpu_seconds([pid], with_children=False) for pid in pids}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
