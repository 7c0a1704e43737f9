"""The layout: the map names each folder; no cycles; no growth unsaid. Layers: import-linter."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

from tests.support.site import ROOT

#: What a script includes of another product: a target's rate is counted by a limit's algorithm.
INCLUDED = {("jobs", "limits")}


def find_modules(package: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def find_imports(file: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules that a file imports, inside of functions too. No import is relative."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # `from a import b` imports the module a.b, or a name that a itself holds.
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (full & modules.keys()) or {node.module or ""}
    return names & modules.keys()


@pytest.mark.parametrize("package", ["sidecar", "waitroom", "loadtest", "tests", "demo"])
def test_no_module_imports_itself_by_a_detour(package):
    """There is no cycle of imports, late ones included."""
    modules = find_modules(ROOT / package)
    graph = {name: find_imports(file, modules) - {name} for name, file in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_a_detour_is_found(tmp_path):
    """Also one by an import inside of a function."""
    (tmp_path / "a.py").write_text("from pack import b\n")
    (tmp_path / "b.py").write_text("def f():\n    import pack.a\n")
    modules = {"pack.a": tmp_path / "a.py", "pack.b": tmp_path / "b.py"}
    assert [find_imports(file, modules) for file in modules.values()] == [{"pack.b"}, {"pack.a"}]


def test_no_test_imports_another():
    """What folders of tests share is in tests/support/."""
    modules = find_modules(ROOT / "tests")
    assert [
        f"{name} imports {other}"
        for name, file in modules.items()
        for other in sorted(find_imports(file, modules))
        if other.rpartition(".")[2].startswith(("conftest", "test_"))
        or other.split(".")[1:2] not in ([], ["support"], name.split(".")[1:2])
    ] == []


def test_the_map_names_each_folder():
    """The docstring of the package names the folders that there are, and no others."""
    package = ROOT / "sidecar"
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False) or ""
    there = {path.stem for path in package.iterdir() if not path.name.startswith((".", "__init"))}
    assert set(re.findall(r"^    (\w+)(?:/|\.py) ", text, re.MULTILINE)) == there - {"__pycache__"}


def test_a_script_includes_what_is_its_own():
    """Its own product's fragments, and what all products share."""
    package = ROOT / "sidecar"
    found = {
        (file.relative_to(package).parts[0], other)
        for file in package.rglob("*.lua")
        for other in re.findall(r'@include "(\w+)/', file.read_text(encoding="utf-8"))
    }
    assert {pair for pair in found if pair[1] not in {pair[0], "visitors"}} == INCLUDED


def test_the_product_grows_only_for_a_feature():
    """CHANGELOG says how many lines of Python the product has, and what more of them pay for."""
    said = re.search(r"Product Python has ([\d,]+) lines", (ROOT / "CHANGELOG.md").read_text())
    assert said
    files = [file for folder in ("sidecar", "waitroom") for file in (ROOT / folder).rglob("*.py")]
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert lines <= int(said[1].replace(",", ""))
