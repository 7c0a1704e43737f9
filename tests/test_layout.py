"""The layout: one folder per product, who may import whom, no cycles, short files."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from tests.support.imports import ROOT, find_cycle, find_imports, find_modules
from tests.support.layers import (
    ALLOWED,
    RANKS,
    find_crossing_imports,
    find_wrong_imports,
    folder_of,
    may_import,
)

#: The products' words, which kit/ has none of; and the few that must stay, by file.
WORDS = re.compile(
    r"(?<![a-z])(rooms?|leases?|lotter(?:y|ies)|jobs?|targets?|pass(?!\s*$)|passes|tickets?|visitors?"
    r"|webhooks?|dashboard)(?![a-z])",
    re.MULTILINE,
)
WORDS_IN_KIT = {
    "metrics.py": ("room", "a label that dashboards and alerts ask for"),
    "outbox.py": ("room", "free places; and the product's own name"),
    "redis/functions.py": ("room target", "free memory; and the driver's target_nodes"),
    "redis/leader_lease.py": ("lease", "the field's word for work that one replica does at a time"),
    "redis/scripts.py": ("rooms", "a script's path, as an example"),
    "signing.py": ("webhook", "the standard by which callbacks are signed too"),
    "http/auth/ended_sessions.py": ("dashboard", "whose sessions they are; products ask for them"),
    "http/auth/operators.py": ("dashboard", "whose sessions they are; products ask for them"),
    "http/auth/session.py": ("dashboard", "whose sessions they are; products ask for them"),
    "http/auth/scopes.py": ("jobs leases", "values of the setting `scopes`"),
    "http/endpoint.py": ("lease leases", "a path, as an example"),
    "http/fast_path.py": ("target", "the HTTP standard's word for what a request names"),
    "http/problem_kinds.py": ("dashboard room", "titles that programs and people know"),
    "http/problems.py": ("job jobs leases targets", "what is kept while a store is away"),
}


# The checker. A folder is one line of the package's docstring.


def find_folders(package: Path) -> set[str]:
    """The folders and modules that the package's docstring names."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    text = ast.get_docstring(tree, clean=False) or ""
    return set(re.findall(r"^    (\w+)(?:/|\.py) ", text, re.MULTILINE))


def find_wrong_includes(package: Path) -> list[tuple[str, str]]:
    """The same of Lua: a script's folder, and that of a fragment which it includes."""
    found = set()
    for file in package.rglob("*.lua"):
        own = file.relative_to(package).parts[0]
        included = re.findall(r'@include "(\w+)/', file.read_text(encoding="utf-8"))
        found |= {(own, its) for its in included if its not in {own, "queue"} or own == "queue"}
    return sorted(pair for pair in found if pair[0] != pair[1])


def find_words(package: Path) -> dict[str, str]:
    """The products' words in each file of the kit that has any."""
    kit = package / "kit"
    found = {
        str(file.relative_to(kit)): WORDS.findall(file.read_text(encoding="utf-8").lower())
        for file in kit.rglob("*.py")
    }
    return {file: " ".join(sorted(set(words))) for file, words in found.items() if words}


# What it says of the sidecar.


def test_products_import_only_what_they_may():
    """kit <- queue <- products <- gate <- dashboard, doctor <- api <- app <- cli."""
    wrong = find_wrong_imports(ROOT / "sidecar")
    assert [
        f"{module} imports {other}"
        for module, other in wrong
        if (folder_of(module), folder_of(other)) not in ALLOWED
    ] == []


def test_measurements_import_only_what_they_share():
    """Which is beside their folders, in loadtest/."""
    assert find_crossing_imports(ROOT / "loadtest") == []


def test_what_is_allowed_is_needed():
    """An exception that nobody makes use of any more goes from the list."""
    used = {(folder_of(a), folder_of(b)) for a, b in find_wrong_imports(ROOT / "sidecar")}
    assert set(ALLOWED) - used == set()


def test_a_script_includes_its_own_product_and_the_queue():
    """But for what is allowed to import, too."""
    assert set(find_wrong_includes(ROOT / "sidecar")) <= set(ALLOWED)


def test_the_map_names_each_folder():
    """Those that the docstring lists are there, and there are no others; each has its rank."""
    package = ROOT / "sidecar"
    there = {
        path.stem
        for path in package.iterdir()
        if path.name not in {"__init__.py", "__pycache__"} and not path.name.startswith(".")
    }
    assert find_folders(package) == there
    assert {folder for row in RANKS for folder in row} == there


@pytest.mark.parametrize("package", ["sidecar", "waitroom", "loadtest", "tests", "demo"])
def test_no_module_imports_itself_by_a_detour(package):
    """There is no cycle of imports, those for types included."""
    assert find_cycle(ROOT / package) == []


def test_the_kit_knows_no_product():
    """Not even by name, but for what is listed; and what is listed is there."""
    assert find_words(ROOT / "sidecar") == {
        file: words for file, (words, _) in WORDS_IN_KIT.items()
    }


def test_no_test_imports_another():
    """Nor a conftest.py, nor a helper of another folder: what folders share is in support/."""
    modules = find_modules(ROOT / "tests")
    found = sorted((a, b) for a in modules for b in find_imports(a, modules))
    assert [
        f"{a} imports {b}"
        for a, b in found
        if b.rpartition(".")[2].startswith(("conftest", "test_"))
        or folder_of(b) not in {"", "support", folder_of(a)}
    ] == []


# And that it can fail.


@pytest.fixture
def package(tmp_path):
    """Makes a small sidecar; texts by path below it override its own."""

    def make(files: dict[str, str] | None = None) -> Path:
        folder = tmp_path / "sidecar"
        texts = {
            "__init__.py": '"""Map.\n\n    kit/    machinery\n    app.py  wiring\n"""\n',
            "kit/__init__.py": "",
            "kit/clock.py": "",
            "rooms/__init__.py": "",
            "rooms/service.py": "from sidecar.kit import clock\n",
            "app.py": "from sidecar.rooms import service\n",
            **(files or {}),
        }
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(textwrap.dedent(text))
        return folder

    return make


def test_a_sound_package_passes(package):
    """The checker finds nothing in a package that keeps to the rules."""
    made = package()
    assert find_folders(made) == {"kit", "app"}
    assert (find_wrong_imports(made), find_cycle(made)) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        "import sidecar.app",
        "from sidecar import app",
        "from sidecar.app import serve",
        "from .. import app",
        "from ..app import serve",
        "def fetch():\n    from sidecar.app import serve",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sidecar.app import serve",
    ],
)
def test_an_import_from_above_is_found(package, text):
    """However it is written."""
    made = package({"kit/clock.py": text, "app.py": "serve = 1\n"})
    assert find_wrong_imports(made) == [("sidecar.kit.clock", "sidecar.app")]


@pytest.mark.parametrize(
    ("module", "other", "is_allowed"),
    [
        ("rooms/worker.py", "sidecar.leases.model", False),
        ("rooms/worker.py", "sidecar.queue.model", True),
        ("rooms/worker.py", "sidecar.settings", True),
        ("rooms/settings.py", "sidecar.settings", False),
        ("settings.py", "sidecar.leases.settings", True),
        ("settings.py", "sidecar.leases.model", False),
        ("rooms/commands.py", "sidecar.cli.common", True),
        ("rooms/commands.py", "sidecar.leases.commands", False),
        ("rooms/worker.py", "sidecar.rooms.commands", True),
        ("gate/check.py", "sidecar.rooms.commands", False),
        ("queue/model.py", "sidecar.settings", False),
        ("client.py", "sidecar.queue.model", False),
        ("doctor/visit.py", "sidecar.gate.check", True),
        ("gate/check.py", "sidecar.dashboard.live", False),
    ],
)
def test_who_may_import_whom(module, other, is_allowed):
    """Each part of the rule."""
    name = "sidecar." + module.removesuffix(".py").replace("/", ".")
    assert may_import(name, other) is is_allowed


def test_a_relative_import_in_a_folders_init_is_found(package):
    """One dot in an __init__ is the folder itself, not the one above."""
    made = package({"kit/__init__.py": "from .clock import x"})
    assert find_imports("sidecar.kit", find_modules(made)) == {"sidecar.kit.clock"}


def test_an_include_from_another_product_is_found(package):
    """A fragment of the queue is everybody's, but the queue's own scripts include no other."""
    made = package(
        {
            "rooms/lua/enter.lua": '-- @include "queue/order"\n-- @include "leases/ask"\n',
            "queue/lua/order.lua": '-- @include "rooms/enter"\n',
        }
    )
    assert find_wrong_includes(made) == [("queue", "rooms"), ("rooms", "leases")]


def test_a_cycle_is_found(package):
    """Two modules of one folder that import each other are a cycle."""
    made = package(
        {"kit/clock.py": "import sidecar.kit.errors", "kit/errors.py": "from .clock import x"}
    )
    assert set(find_cycle(made)) == {"sidecar.kit.clock", "sidecar.kit.errors"}
    assert find_wrong_imports(made) == []


def test_a_measurement_that_imports_another_is_found(package):
    """By a module of its own or one beside it; a command may."""
    made = package(
        {
            "rooms/__main__.py": "import sidecar.kit.clock\n",
            "rooms/more.py": "from sidecar import app\n",
            "app.py": "import sidecar.kit.clock\n",
        }
    )
    assert find_crossing_imports(made) == [
        "sidecar.app imports sidecar.kit.clock",
        "sidecar.rooms.service imports sidecar.kit.clock",
    ]


def test_a_products_word_in_the_kit_is_found(package):
    """In a name, too, and in capitals; not in a longer word, nor as a statement."""
    text = "def passed():\n    pass\n\nROOM_NAME = 'roomy'  # of a visitor\n"
    assert find_words(package({"kit/clock.py": text})) == {"clock.py": "room visitor"}
