"""The layout: no import cycles, a complete map of folders, no unexplained growth.

import-linter checks the layers.
"""

import ast
import graphlib
import re
from pathlib import Path

import pytest

from tests.support.site import ROOT

#: Products whose scripts include those of another product. A limit counts the rate of a target.
INCLUDED = {("jobs", "limits")}


def find_modules(package: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def find_imports(file: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules that a file imports, also in functions. No import is relative."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # `from a import b` imports the module a.b, or a name in the module a.
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (full & modules.keys()) or {node.module or ""}
    return names & modules.keys()


@pytest.mark.parametrize("package", ["sidecar", "client/waitroom", "loadtest", "tests", "demo"])
def test_no_module_imports_itself_by_a_detour(package):
    """No imports form a cycle, including imports in functions."""
    modules = find_modules(ROOT / package)
    graph = {name: find_imports(file, modules) - {name} for name, file in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_test_imports_another():
    """Code that folders of tests share is in tests/support/."""
    modules = find_modules(ROOT / "tests")
    assert [
        f"{name} imports {other}"
        for name, file in modules.items()
        for other in sorted(find_imports(file, modules))
        if other.rpartition(".")[2].startswith(("conftest", "test_"))
        or other.split(".")[1:2] not in ([], ["support"], name.split(".")[1:2])
    ] == []


def test_the_map_names_each_folder():
    """The docstring of the package names exactly the folders and modules that exist."""
    package = ROOT / "sidecar"
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False) or ""
    there = {path.stem for path in package.iterdir() if not path.name.startswith((".", "__init"))}
    assert set(re.findall(r"^    (\w+)(?:/|\.py) ", text, re.MULTILINE)) == there - {"__pycache__"}


def test_a_script_includes_what_is_its_own():
    """Scripts include fragments of their own product and of visitors/, with exceptions."""
    package = ROOT / "sidecar"
    found = {
        (file.relative_to(package).parts[0], other)
        for file in package.rglob("*.lua")
        for other in re.findall(r'@include "(\w+)/', file.read_text(encoding="utf-8"))
    }
    assert {pair for pair in found if pair[1] not in {pair[0], "visitors"}} == INCLUDED


def test_the_product_grows_only_for_a_feature():
    """The product has at most as many lines of Python as CHANGELOG.md states and explains."""
    stated = re.search(r"Product Python has ([\d,]+) lines", (ROOT / "CHANGELOG.md").read_text())
    assert stated
    files = [file for folder in ("sidecar", "client") for file in (ROOT / folder).rglob("*.py")]
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert lines <= int(stated[1].replace(",", ""))


def test_requests_go_through_one_kind_of_session():
    """No module but kit/egress.py makes an HTTP session: no other is safe from bad servers."""
    makers = [
        file.relative_to(ROOT / "sidecar").as_posix()
        for file in sorted((ROOT / "sidecar").rglob("*.py"))
        if re.search(r"\b(ClientSession|TCPConnector)\(", file.read_text(encoding="utf-8"))
    ]
    assert makers == ["kit/egress.py"]
