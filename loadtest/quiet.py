"""Checks that no other program keeps the machine busy while figures are measured.

`make …` writes its report only if other programs used at most a fifth of a core, or with FORCE=1.
"""

import os
import sys
import time
from pathlib import Path

from loadtest.machine import busy_seconds, cpu_ns, cpu_seconds

_ROOT = Path(__file__).resolve().parents[1]
#: Folders for reports of full measurements, and of partial or disturbed ones.
REPORTS, PARTS = _ROOT / "loadtest/reports", _ROOT / ".run/reports"
#: Most CPU that other programs may use, in cores.
MAX_OTHER_CORES = 0.2
_CHECK_S = 2.0


class NotQuietError(Exception):
    """Other programs keep the machine busy."""


class Watch:
    """Measures the CPU that other programs use, and chooses the folder for reports accordingly."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started_s, self._others_s = time.monotonic(), _others_s()

    def other_cores(self) -> float:
        duration_s = time.monotonic() - self._started_s
        return max(0.0, (_others_s() - self._others_s) / duration_s) if duration_s else 0.0

    @property
    def is_quiet(self) -> bool:
        return self.other_cores() <= MAX_OTHER_CORES or bool(os.environ.get("FORCE"))

    def folder(self) -> Path:
        """Return the folder for the report: PARTS instead of REPORTS if the machine was busy."""
        if self._folder == REPORTS and not self.is_quiet:
            self._folder = PARTS
            print(f"NO REPORT: {self._complaint()}", file=sys.stderr)
        return self._folder

    def must_be_quiet(self) -> None:
        """Raise NotQuietError if the machine is busy and the report would go to REPORTS."""
        if self._folder == REPORTS and not self.is_quiet:
            raise NotQuietError(f"{self._complaint()} The busiest now: {', '.join(_busiest())}.")

    def _complaint(self) -> str:
        return (
            f"other programs used {self.other_cores():.2f} of a core, and figures beside more "
            f"than {MAX_OTHER_CORES:g} are worth little. Measure in a quiet minute, or say FORCE=1."
        )


def begin(folder: Path) -> Watch:
    """Return a Watch that starts now. Raises NotQuietError if the machine is already busy."""
    if folder == REPORTS:
        watch = Watch(folder)
        time.sleep(_CHECK_S)
        watch.must_be_quiet()
    return Watch(folder)


def _others_s() -> float:
    """Return the CPU seconds of all processes except this one and its descendants."""
    return busy_seconds() - cpu_seconds(os.getpid())


def _busiest() -> list[str]:
    """Return the names of the three processes that use the most CPU now."""
    before = _cpu_s_by_pid()
    time.sleep(0.5)
    used = {pid: s - before.get(pid, s) for pid, s in _cpu_s_by_pid().items() if pid != os.getpid()}
    busiest = sorted(used, key=lambda pid: -used[pid])[:3]
    return [f"{_name(pid)} ({pid})" for pid in busiest if used[pid] > 0] or ["none"]


def _cpu_s_by_pid() -> dict[int, float]:
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid: cpu_ns([pid], with_children=False) / 1e9 for pid in pids}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
