"""Shows the progress of a long command as a progress bar on standard error."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

#: Seconds between two updates of the bar, so that counting a step costs almost nothing.
_UPDATE_INTERVAL_S = 0.1


class Advance(Protocol):
    """A function that a command calls after each step, to report its progress."""

    def __call__(self, by: int = 1, *, total: int | None = None) -> None:
        """Add `by` finished steps. `total` is the number of all steps, once that is known."""


def ignore_progress(by: int = 1, *, total: int | None = None) -> None:
    """Do nothing. Callers that show no progress pass this function as Advance."""


@contextlib.contextmanager
def progress(label: str, *, total: int | None = None, is_on: bool = True) -> Iterator[Advance]:
    """Show a bar if standard error is a terminal, and yield the function to call after each step.
    Without a total the bar shows a count and a rate.

    Pass `is_on=False` if a program reads the command's output, or if the command prints to the same
    terminal while the bar is shown."""
    if not (is_on and sys.stderr.isatty()):
        yield ignore_progress
        return
    from rich import progress as rich  # noqa: PLC0415 - slow to import
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.completed:,.0f}"),
        rich.TaskProgressColumn(show_speed=True),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(label, total=total)
        done, due_s = 0, time.monotonic() + _UPDATE_INTERVAL_S

        def advance(by: int = 1, *, total: int | None = None) -> None:
            nonlocal done, due_s
            done += by
            if total is not None:
                bar.update(task, total=total)
            if (now_s := time.monotonic()) >= due_s:
                due_s = now_s + _UPDATE_INTERVAL_S
                bar.update(task, completed=done)

        yield advance
