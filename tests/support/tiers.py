"""Lists the tests that only `make test-all` runs, not `make test`, and marks them `full`."""

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

#: Folders and files that `make test` does not import, because they may need more packages.
FULL = {
    "browser/dashboard",
    "browser/test_firefox.py",
    "install/test_bare.py",
    "install/test_chart.py",
    "install/test_extras.py",
    "install/test_release.py",
    "storage/test_topologies.py",
    "loadtest",
    "proxies",
    "visitors/test_simulation.py",
    "sites",
    "upgrade",
}
#: Files in which `make test` runs both parameters of the fixture `stamps`. Elsewhere it runs one.
BOTH_STAMPS = {
    "guards/test_nginx_calls.py",
    "nginx/test_kept_for_others.py",
    "nginx/test_stamps.py",
}


def is_full_file(path: Path) -> bool:
    if not path.is_relative_to(TESTS):
        return False
    name = path.relative_to(TESTS)
    return any(str(part) in FULL for part in (name, *name.parents))


def mark_full(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out with `full`, and what of it `make unit` runs with `memory`:
    the tests that run once with a redis-server, and once more with a store in memory."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        is_memory = params.get("store_url") == "memory"
        if is_memory:
            item.add_marker(pytest.mark.memory)
        if is_memory or is_full_file(item.path) or _has_full_param(item):
            item.add_marker(pytest.mark.full)


def _has_full_param(item: pytest.Item) -> bool:
    """Return True if the test's parameters are only for `make test-all`: MariaDB, or stamps."""
    callspec = getattr(item, "callspec", None)
    ids = () if callspec is None else callspec._idlist
    has_stamps = callspec is not None and callspec.params.get("stamps") is True
    name = str(item.path.relative_to(TESTS))
    return any("mariadb" in id_ for id_ in ids) or (has_stamps and name not in BOTH_STAMPS)
