"""`make unit` runs what starts no process: how that is found, and what holds it."""

import importlib
import re
from pathlib import Path

import pytest

from tests.support import processes, site
from tests.support.unit import may_start_process

ROOT = Path(__file__).resolve().parents[1]


def by_its_class():
    return site.Site()


def by_an_import_of_its_own():
    from tests.support.processes import Process

    return Process


def by_a_module():
    return processes.Process


def by_another():
    return [by_a_module() for _ in range(2)]


def by_none():
    return processes.free_port()


@pytest.mark.parametrize(
    "function",
    [by_its_class, by_an_import_of_its_own, by_a_module, by_another, site.Site, processes.Process],
    ids=lambda function: function.__name__,
)
def test_what_starts_a_process_is_found(function):
    """Whatever lies between the test and the process."""
    assert may_start_process(function)


@pytest.mark.parametrize(
    "function", [by_none, processes.wait_until, print], ids=lambda function: function.__name__
)
def test_what_starts_none_is_left_alone(function):
    """It may stand in the same file as what does."""
    assert not may_start_process(function)


def test_the_marks_are_there(request):
    """This one starts nothing, and one with a redis-server does."""
    assert request.node.get_closest_marker("server") is None


def test_one_with_a_server_is_marked(redis_socket, request):
    """By its fixture."""
    assert request.node.get_closest_marker("server") is not None


def test_a_unit_test_that_starts_a_process_fails():
    """However well it hides it."""
    hidden = importlib.import_module("sub" + "process")
    with pytest.raises(AssertionError, match="is no unit test: it starts"):
        hidden.run(["true"], check=False)


def test_the_makefile_has_each_target_once():
    """Of two of one name make takes the last one: `make check` would run something else."""
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (.*)$", makefile.replace("\\\n", ""), re.MULTILINE)[0].split()
    assert sorted(targets) == sorted(phony)
    listed = re.findall(r"make ([a-z -]+?)(?:  |;| serves)", makefile)
    assert set(phony) - {"help"} <= set(" ".join(listed).split())
