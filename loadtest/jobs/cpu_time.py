"""The CPU time of processes."""

from pathlib import Path


def cpu_ns(pids: list[int], *, families: bool = True) -> int:
    """CPU time of all threads that these processes have now, with their children or without, ns."""
    total, left = 0, list(pids)
    while left:
        pid = left.pop()
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                total += int((task / "schedstat").read_text().split()[0])
                left += map(int, (task / "children").read_text().split() if families else ())
            except OSError:
                continue
    return total
