"""Marks the tests that start processes with `server`. All other tests are unit tests.

A test is marked if it may start a process: by its own code, by a fixture, or by any code of ours
that either of them uses. A test without the mark fails if it starts a process.
"""

import contextlib
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

#: Imported names of modules and functions that start processes.
STARTERS = {
    "subprocess",
    "multiprocessing",
    "create_subprocess_exec",
    "create_subprocess_shell",
    "sync_playwright",
}
#: Our packages that may start processes. The packages of the product do not.
OURS = ("tests", "loadtest", "demo")
#: Names of Python's audit events for the start of a process.
EVENTS = {"subprocess.Popen", "os.posix_spawn", "os.system"}


def may_start_process(function: Any, seen: set[int] | None = None) -> bool:
    """Return True if a function or class uses one of STARTERS, directly or through our code."""
    seen = set() if seen is None else seen
    if id(function) in seen:
        return False
    seen.add(id(function))
    if isinstance(function, type):
        parts = [
            part for base in function.__mro__ if _is_ours(base) for part in vars(base).values()
        ]
        return any(may_start_process(part, seen) for part in parts)
    if isinstance(function, property):
        return any(may_start_process(part, seen) for part in (function.fget, function.fset))
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, types.FunctionType) or not _is_ours(function):
        return False
    names = set(_read_names(function.__code__))
    return bool(names & STARTERS) or any(
        may_start_process(found, seen) for found in _find_objects(names, function.__globals__)
    )


def _is_ours(found: Any) -> bool:
    return (getattr(found, "__module__", None) or "").startswith(OURS)


def _read_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _read_names(part)


def _find_objects(names: set[str], scope: dict[str, Any]) -> Iterator[Any]:
    """Yield the objects with these names in a scope, and in our modules that the scope imports."""
    found = [scope[name] for name in names & scope.keys()]
    # A function may import modules.
    found += [sys.modules[name] for name in names & sys.modules.keys()]
    for value in found:
        if isinstance(value, types.ModuleType) and value.__name__.startswith(OURS):
            yield from (vars(value)[name] for name in names & vars(value).keys())
        else:
            yield value


def mark_servers(items: list[pytest.Item]) -> None:
    """Mark the tests that may start a process, directly or by a fixture."""
    seen: dict[Any, bool] = {}
    for item in items:
        functions = [getattr(item, "obj", None), getattr(item, "cls", None)]
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            functions += [fixture.func for fixture in fixtures]
        # A parameter may be the class of a server, or a function that starts one.
        functions += [
            one for one in _parameters(item) if inspect.isroutine(one) or inspect.isclass(one)
        ]
        for function in functions:
            if function not in seen:
                seen[function] = may_start_process(function)
        if any(seen[function] for function in functions):
            item.add_marker(pytest.mark.server)


def _parameters(item: pytest.Item) -> list[Any]:
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []


class Guard:
    """An audit hook that fails unit tests that start a process. Because Python cannot remove an
    audit hook, `during` switches the hook on for one test."""

    def __init__(self) -> None:
        self._test = ""
        sys.addaudithook(self._check_event)

    def _check_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and self._test:
            raise AssertionError(f"{self._test} is no unit test: it starts {arguments[0]}")

    @contextlib.contextmanager
    def during(self, item: pytest.Item) -> Iterator[None]:
        self._test = "" if item.get_closest_marker("server") else item.nodeid
        try:
            yield
        finally:
            self._test = ""
