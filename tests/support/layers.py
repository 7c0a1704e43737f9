"""The layers of the sidecar: who may import whom. A module is its dotted name."""

from __future__ import annotations

from pathlib import Path

from tests.support.imports import find_imports, find_modules

PRODUCTS = ("rooms", "lottery", "leases", "limits", "jobs", "history", "webhooks")
#: A folder imports from those in the rows before its own. settings.py: see `may_import`.
RANKS = (
    ("kit",),
    ("client", "queue"),
    ("settings", *PRODUCTS),
    ("gate",),
    ("dashboard", "doctor", "setup"),
    ("api",),
    ("app",),
    ("cli",),
    ("__main__",),
)
#: What a folder imports all the same, and why.
ALLOWED = {
    ("lottery", "rooms"): "a draw is of a room's opening, and its list is in the room's keys",
    ("leases", "rooms"): "proxies guard a leased resource as they guard a room",
    ("history", "rooms"): "it is written from each room's event stream",
    ("webhooks", "rooms"): "they tell what happens in rooms, and who was called there",
    ("jobs", "limits"): "a target's rate is counted by a limit's algorithm",
}


def folder_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def rank_of(module: str) -> int:
    """A product's commands stand beside the command line."""
    parts = module.split(".")
    folder = "cli" if parts[2:3] == ["commands"] else parts[1]
    return next(rank for rank, folders in enumerate(RANKS) if folder in folders)


def may_import(module: str, other: str) -> bool:
    own, its = folder_of(module), folder_of(other)
    if its in {"", own}:
        return True
    if own == "settings" and its in PRODUCTS:
        return other == f"sidecar.{its}.settings"
    if its == "settings" and own in PRODUCTS:
        return module != f"sidecar.{own}.settings"
    if rank_of(module) == rank_of(other) == rank_of("sidecar.cli"):
        return "cli" in {own, its}
    return rank_of(other) < rank_of(module)


def find_crossing_imports(package: Path) -> list[str]:
    """Of measurements, a folder each: what one imports from another, or what stands beside them
    from any. A command (`__main__`) may, and the baselines are everybody's."""
    modules = find_modules(package)
    folders = {name for name, file in modules.items() if file.name == "__init__.py"}
    folders -= {package.name, f"{package.name}.baselines", f"{package.name}.baselines.lua"}
    return [
        f"{module} imports {other}"
        for module in modules
        if not module.endswith(".__main__")
        for other in sorted(find_imports(module, modules))
        if (its := ".".join(other.split(".")[:2])) in folders
        and not f"{module}.".startswith(f"{its}.")
    ]


def find_wrong_imports(package: Path) -> list[tuple[str, str]]:
    modules = find_modules(package)
    return sorted(
        (module, other)
        for module in modules
        if folder_of(module)
        for other in find_imports(module, modules)
        if not may_import(module, other)
    )
