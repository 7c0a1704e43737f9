"""A check that nothing else keeps the machine busy while figures for a report are measured.

`make …` writes its report only if other programs took less than a fifth of a core, or with FORCE=1.
"""

import os
import sys
import time
from pathlib import Path

from loadtest.machine import busy_seconds, cpu_seconds

_ROOT = Path(__file__).resolve().parents[1]
#: Folders of whole reports and of partial ones.
REPORTS, PARTS = _ROOT / "loadtest/reports", _ROOT / ".run/reports"
#: Cores that other programs may use at most.
MOST = 0.2
_LOOK_S = 2.0


class NotQuietError(Exception):
    """Something else keeps the machine busy."""


class Watch:
    """How many cores other programs have used since this was created, and where reports go."""

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
        """Return the folder for the report: PARTS if the machine was not quiet."""
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
            f"other programs used {self.others():.2f} of a core, and figures beside more than "
            f"{MOST:g} are worth little. Measure in a quiet minute, or say FORCE=1."
        )


def begin(folder: Path) -> Watch:
    """Watch the machine before anything is measured. Raises NotQuietError."""
    if folder == REPORTS:
        look = Watch(folder)
        time.sleep(_LOOK_S)
        look.must_be_quiet()
    return Watch(folder)


def _others_s() -> float:
    """Return the CPU seconds of all but this process and its descendants, ended ones included."""
    return busy_seconds() - cpu_seconds([os.getpid()], with_ended=True)


def _busiest() -> list[str]:
    """Return the three programs that take the most CPU time at this moment."""
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
