"""Loads the Lua scripts: one file for each script, and fragments by `-- @include "name"`.

A fragment is included once, at its first include. A missing fragment, a fragment that includes
itself, and a misspelt include are errors with file, line and column.

A script that defines `run(KEYS, ARGV)` can be loaded in two ways. For EVALSHA the script alone is
loaded, with a call of `run` at the end. As Redis Functions all scripts of a product are loaded as
one library, in which each fragment is included once.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sidecar.kit.errors import SidecarError

#: The package's folder: "rooms/enter" is rooms/lua/enter.lua below it.
LUA_ROOT = Path(__file__).resolve().parents[2]
_INCLUDE = re.compile(r'^-- @include "(?P<name>[a-z_/]+)"\s*$')
_RUN = "local function run(KEYS, ARGV)"


class IncludeError(SidecarError):
    """An include that cannot be resolved."""


@dataclass(frozen=True, slots=True)
class Library:
    """A product's scripts as Redis Functions. All names contain the hash of the text, so that one
    Redis can have two versions."""

    name: str
    text: str
    #: The names of the functions, by script.
    functions: dict[str, str]


def find_file(name: str, root: Path = LUA_ROOT) -> Path:
    """Return the file of a script or fragment, such as "visitors/arrival"."""
    product, _, rest = name.partition("/")
    return root / product / "lua" / f"{rest}.lua" if rest else root / f"{name}.lua"


@cache
def source(name: str, root: Path = LUA_ROOT) -> str:
    """Return the text of a script such as "rooms/enter", with all fragments."""
    lines = [*_flatten(find_file(name, root), root, set())]
    if _RUN in lines:
        lines.append("return run(KEYS, ARGV)")
    return "\n".join(lines) + "\n"


@cache
def library(product: str, root: Path = LUA_ROOT) -> Library:
    """Return all scripts of a product, such as "rooms", as one library."""
    included: set[Path] = set()
    fragments: list[str] = []
    scripts: dict[str, str] = {}
    for file in sorted((root / product / "lua").glob("*.lua")):
        lines = [*_read_lines(file, root, ())]
        scripts[file.stem] = "\n".join(line for line in lines if isinstance(line, str))
        for line in lines:
            if isinstance(line, Path):
                fragments += _flatten(line, root, included, (file,))
    shared = "\n".join(fragments)
    digest = hashlib.sha256("\n".join([shared, *scripts.values()]).encode()).hexdigest()[:16]
    name = f"waitroom_{product}_{digest}"
    functions = {verb: f"waitroom_{verb}_{digest}" for verb in scripts}
    blocks = [
        f"do\n{text}\nredis.register_function('{functions[verb]}', run)\nend"
        for verb, text in scripts.items()
    ]
    return Library(name, "\n".join([f"#!lua name={name}", shared, *blocks]) + "\n", functions)


def _flatten(
    file: Path, root: Path, included: set[Path], parents: tuple[Path, ...] = ()
) -> Iterator[str]:
    """Yield the lines of a file and of its fragments, unless the file is included already."""
    if file in included:
        return
    included.add(file)
    for line in _read_lines(file, root, parents):
        if isinstance(line, str):
            yield line
        else:
            yield from _flatten(line, root, included, (*parents, file))


def _read_lines(file: Path, root: Path, parents: tuple[Path, ...]) -> Iterator[str | Path]:
    """Yield the lines of a file. In place of an include yield the fragment's file. Raises
    IncludeError."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if "@include" not in line:
            yield line
            continue
        match = _INCLUDE.match(line)
        column = (match.start("name") if match else line.index("@include")) + 1
        at = f"{file.relative_to(root)}:{number}:{column}"
        if match is None:  # Lua would take the line for a comment
            raise IncludeError(f'{at}: write -- @include "folder/name"')
        fragment = find_file(match["name"], root)
        if fragment in (*parents, file):
            raise IncludeError(f"{at}: {match['name']} includes itself")
        if not fragment.exists():
            raise IncludeError(f"{at}: there is no {match['name']}.lua")
        yield fragment
