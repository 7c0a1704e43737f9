"""How far a long command has come: a bar on standard error, if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

#: Between two updates of what is shown, seconds: counting itself must cost nothing.
_EVERY_S = 0.1


class Advance(Protocol):
    def __call__(self, by: int = 1, *, total: int | None = None) -> None:
        """So many more are done; of how many, once that is known."""


def uncounted(by: int = 1, *, total: int | None = None) -> None:
    """For a caller who shows nothing."""


@contextlib.contextmanager
def progress(what: str, *, total: int | None = None, is_on: bool = True) -> Iterator[Advance]:
    """Yields what is called with each step. Without a total it shows a count and a rate.

    `is_on`: false where a program reads what the command prints, or where that goes on while the
    bar is there, and to the same terminal.
    """
    if not (is_on and sys.stderr.isatty()):
        yield uncounted
        return
    with _bar() as bar:
        task = bar.add_task(what, total=total)
        done, shown_s = 0, time.monotonic()

        def advance(by: int = 1, *, total: int | None = None) -> None:
            nonlocal done, shown_s
            done += by
            if total is not None:
                bar.update(task, total=total)
            if (now_s := time.monotonic()) >= shown_s + _EVERY_S:
                shown_s = now_s
                bar.update(task, completed=done)

        yield advance


def _bar() -> Progress:
    from rich import progress as rich  # noqa: PLC0415 - the commands start faster without
    from rich.console import Console  # noqa: PLC0415

    class Count(rich.ProgressColumn):
        def render(self, task: rich.Task) -> str:
            rate = f", {task.speed:,.0f}/s" if task.speed else ""
            return "" if task.total else f"{task.completed:,.0f}{rate}"

    return rich.Progress(
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        Count(),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
