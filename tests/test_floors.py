"""The shape of the house: floors, no cycles, short files."""

from __future__ import annotations

import ast
import graphlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Files of this kind have fewer lines than this.
LIMITS = {".py": 400, ".lua": 80}


# The checker. A module is its dotted name; a floor is one line of the package's docstring.


def find_modules(package: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def find_floors(package: Path) -> list[str]:
    """The names of the floors, top to bottom, as the package's docstring lists them."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    text = ast.get_docstring(tree, clean=False) or ""
    return re.findall(r"^    (\w+)(?:/|\.py) ", text, re.MULTILINE)


def find_imports(module: str, modules: dict[str, Path]) -> set[str]:
    """The package's own modules that a module imports, anywhere in its text.

    Under TYPE_CHECKING and inside a function too: a name that is needed for a type is
    known to the floor as much as one that is called.
    """
    file = modules[module]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")
                up = node.level - (file.name == "__init__.py")
                base = ".".join([*package[: len(package) - up], *filter(None, [base])])
            # `from a import b` takes the module a.b, or a name that a itself holds.
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                for alias in node.names
            ]
        else:
            continue
        found |= {name for name in names if name in modules}
    return found


def check_floors(package: Path) -> list[str]:
    modules, floors = find_modules(package), find_floors(package)
    height = {floor: number for number, floor in enumerate(floors)}
    problems = [
        f"{floor} is a floor in the docstring, but there is no such module"
        for floor in floors
        if f"{package.name}.{floor}" not in modules
    ]

    def height_of(module: str) -> int | None:
        # Above all floors is the package itself, which holds its version.
        return height.get(module.split(".")[1]) if "." in module else -1

    for module in modules:
        own = height_of(module)
        if own is None:
            problems.append(f"{module} is on no floor")
            continue
        for other in sorted(find_imports(module, modules)):
            below = height_of(other)
            if below is not None and below > own:
                problems.append(f"{module} imports {other}, which is on a floor below")
    return problems


def find_cycle(package: Path) -> list[str]:
    """One cycle of imports, first and last module the same; empty when there is none."""
    modules = find_modules(package)
    graph = {module: find_imports(module, modules) - {module} for module in modules}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def find_long_files(package: Path) -> list[str]:
    problems = []
    for file in sorted(package.rglob("*")):
        lines = len(file.read_bytes().splitlines()) if file.suffix in LIMITS else 0
        if lines and lines >= LIMITS[file.suffix]:
            problems.append(f"{file.relative_to(package)} has {lines} lines")
    return problems


# What it says of the sidecar.


def test_a_floor_imports_only_from_the_floors_above_it():
    """Every module of sidecar/ is on a floor and imports nothing from below."""
    assert check_floors(ROOT / "sidecar") == []


def test_the_floors_are_all_there():
    """The checker reads the floors that the docstring lists, and finds their modules."""
    floors = find_floors(ROOT / "sidecar")
    assert floors[:3] == ["base", "store", "core"]
    assert floors[-1] == "cli"
    modules = find_modules(ROOT / "sidecar")
    assert "sidecar.core.rooms" in find_imports("sidecar.app", modules)
    # I expect an import under TYPE_CHECKING to be seen.
    assert "sidecar.base.clock" in find_imports("sidecar.base.tokens", modules)


def test_no_module_imports_itself_by_a_detour():
    """There is no cycle of imports, those for types included."""
    assert find_cycle(ROOT / "sidecar") == []


def test_files_are_short():
    """A Python file has fewer than 400 lines, a Lua script fewer than 80."""
    assert find_long_files(ROOT / "sidecar") == []


# And that it can fail.


@pytest.fixture
def house(tmp_path):
    """Makes a package of two floors; texts by path below it override its own."""

    def make(files: dict[str, str] | None = None) -> Path:
        package = tmp_path / "house"
        texts = {
            "__init__.py": '"""Floors.\n\n    attic/     rules\n    cellar.py  wiring\n"""\n',
            "attic/__init__.py": "",
            "attic/beam.py": "",
            "cellar.py": "from house.attic import beam\n",
            **(files or {}),
        }
        for name, text in texts.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(textwrap.dedent(text))
        return package

    return make


def test_a_sound_house_passes(house):
    """The checker finds nothing in a package that keeps to the rules."""
    package = house()
    assert find_floors(package) == ["attic", "cellar"]
    assert (check_floors(package), find_cycle(package)) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        "import house.cellar",
        "from house import cellar",
        "from house.cellar import wine",
        "from .. import cellar",
        "from ..cellar import wine",
        "def fetch():\n    from house.cellar import wine",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.cellar import wine",
    ],
)
def test_an_import_from_below_is_found(house, text):
    """However it is written, an import from a floor below is a problem."""
    package = house({"attic/beam.py": text, "cellar.py": "wine = 1\n"})
    assert check_floors(package) == [
        "house.attic.beam imports house.cellar, which is on a floor below"
    ]


def test_a_relative_import_in_a_folders_init_is_found(house):
    """One dot in an __init__ is the folder itself, not the one above."""
    package = house({"attic/__init__.py": "from .beam import x"})
    assert find_imports("house.attic", find_modules(package)) == {"house.attic.beam"}


def test_a_module_without_a_floor_is_found(house):
    """A folder that the docstring does not list is a problem; so is a listed one that is gone."""
    package = house({"shed.py": ""})
    assert check_floors(package) == ["house.shed is on no floor"]
    (package / "cellar.py").unlink()
    (package / "shed.py").unlink()
    assert check_floors(package) == [
        "cellar is a floor in the docstring, but there is no such module"
    ]


def test_a_cycle_is_found(house):
    """Two modules of one floor that import each other are a cycle."""
    package = house(
        {"attic/beam.py": "import house.attic.roof", "attic/roof.py": "from .beam import x"}
    )
    assert set(find_cycle(package)) == {"house.attic.beam", "house.attic.roof"}
    assert check_floors(package) == []


def test_a_long_file_is_found(house):
    """A file at the limit is too long, one line less is not."""
    package = house({"attic/beam.py": "x = 1\n" * 399})
    (package / "a.lua").write_text("--\n" * 79)
    assert find_long_files(package) == []
    (package / "a.lua").write_text("--\n" * 80)
    (package / "attic" / "beam.py").write_text("x = 1\n" * 400)
    assert find_long_files(package) == ["a.lua has 80 lines", "attic/beam.py has 400 lines"]
