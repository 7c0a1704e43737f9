"""Reports come from quiet minutes only."""

import itertools
import os
import sys
from pathlib import Path

import pytest

from loadtest import quiet
from loadtest.machine import cpu_seconds
from loadtest.quiet import PARTS, REPORTS, NotQuietError, Watch
from tests.support.processes import Process, wait_until


@pytest.fixture
def others(monkeypatch):
    """Return a function that sets how many cores others use. Each look at the clock is a second."""

    def use(cores: float) -> None:
        seconds = itertools.count()
        now = itertools.count()
        monkeypatch.setattr(quiet.time, "monotonic", lambda: float(next(now)))
        monkeypatch.setattr(quiet, "_others_s", lambda: cores * next(seconds))

    monkeypatch.delenv("FORCE", raising=False)
    monkeypatch.setattr(quiet, "_busiest", lambda: ["a neighbour (7)"])
    return use


def test_beside_others_there_is_no_report(others, capsys):
    """A fifth of a core is taken for quiet; more is said, and the figures go where parts go."""
    others(0.2)
    assert Watch(REPORTS).folder() == REPORTS
    others(0.5)
    watch = Watch(REPORTS)
    assert [watch.folder(), watch.folder()] == [PARTS, PARTS]
    said = capsys.readouterr().err
    assert said.count("NO REPORT") == 1
    assert "0.50 of a core" in said
    assert "FORCE=1" in said


def test_it_is_said_before_anything_is_measured(others, monkeypatch):
    others(0.5)
    with pytest.raises(NotQuietError, match="a neighbour"):
        Watch(REPORTS).must_be_quiet()
    Watch(PARTS).must_be_quiet()  # none of the reports
    monkeypatch.setenv("FORCE", "1")
    Watch(REPORTS).must_be_quiet()
    assert Watch(REPORTS).folder() == REPORTS


def test_a_replica_that_has_ended_is_none_of_the_others(tmp_path):
    """The fork server waits for it, so its CPU time is that of the measurement."""
    program = tmp_path / "busy.py"
    program.write_text("import time\nwhile time.process_time() < 0.5: pass")

    def run() -> None:
        with Process([sys.executable, str(program)], log=tmp_path / "log") as busy:
            stat = Path(f"/proc/{busy.pid}/stat").read_text()
            supervisor = Path("/proc", stat.rpartition(")")[2].split()[1])
            wait_until(lambda: not supervisor.exists(), "the end of the program", 60)

    run()  # It takes the fork server's own start, which costs more.
    before_s = cpu_seconds(os.getpid())
    run()
    assert cpu_seconds(os.getpid()) - before_s >= 0.5
