"""The machine that a measurement ran on, and the CPU time of processes on it."""

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def describe() -> str:
    """Return the hardware, the system, and the versions of Python, nginx and Redis."""
    cpu = _field("/proc/cpuinfo", "model name") or platform.machine()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    nginx = read_version("nginx", "-v").rpartition("/")[2]
    redis = read_version("redis-server", "--version").partition("v=")[2].partition(" ")[0]
    return (
        f"{cpu}, {os.cpu_count()} cores, {round(memory_gib, 1):g} GiB; "
        f"{platform.system()} {platform.release().split('-')[0]}; "
        f"Python {platform.python_version()}, nginx {nginx}, Redis {redis}"
    )


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and all its children, including those that have
    ended and were waited for."""
    return sum(map(_read_ticks, _families([pid]))) / _TICKS_PER_S


def cpu_ns(pids: Iterable[int], *, with_children: bool = True) -> int:
    """Return the CPU time, to the nanosecond, of all threads that these processes and their
    children have now."""
    total = 0
    for pid in _families(pids) if with_children else pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(task.read_text().split()[0])
    return total


def busy_seconds(*, with_steal: bool = False) -> float:
    """Return how long all cores together have been busy; steal is the time of other machines."""
    # user, nice, system, idle, iowait, irq, softirq, steal
    fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields[:3]) + sum(fields[5 : 8 if with_steal else 7])) / _TICKS_PER_S


def memory_mb(pid: int, *, is_peak: bool = False) -> float:
    """Return the resident memory of a process in MiB, now or the most that it has had; 0 if it has
    ended."""
    text = _field(f"/proc/{pid}/status", "VmHWM" if is_peak else "VmRSS")
    return int(text.removesuffix(" kB") or 0) / 1024


def _families(pids: Iterable[int]) -> set[int]:
    found: set[int] = set()
    left = list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def _read_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # utime, stime, and the same of children that have ended
    return sum(map(int, text.rpartition(")")[2].split()[11:15]))


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def read_version(program: str, option: str) -> str:
    """Return the first line of what a program prints about its version."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    try:
        done = subprocess.run(
            [program, option], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
    except OSError:
        return "unknown"
    return (done.stdout + done.stderr).strip().splitlines()[0]
