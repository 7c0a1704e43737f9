"""Reads which of a package's modules import which."""

from __future__ import annotations

import ast
import functools
import graphlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Where a statement has others; what is left out are expressions, which have none.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def find_modules(package: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def find_imports(module: str, modules: dict[str, Path]) -> set[str]:
    """The package's own modules that a module imports, anywhere in its text.

    Under TYPE_CHECKING and inside a function too: a name that is needed for a type is
    known to the module as much as one that is called.
    """
    file = modules[module]
    found = set()
    for node in statements_of(file.read_text(encoding="utf-8")):
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


@functools.cache
def statements_of(text: str) -> list[ast.AST]:
    """Every statement, those inside others too. Read once, however many ask for it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        inner = [each for name in BLOCKS for each in getattr(node, name, ())]
        found += inner
        waiting += inner
    return found


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
