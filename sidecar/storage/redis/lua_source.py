"""Loads the Lua scripts: one file a script, fragments by `-- @include "name"`.

A fragment is taken in once, where it is first asked for. A fragment that is missing, or
that includes itself by a detour, is an error that names the file, line and column; so is
an include that is misspelt, which Lua would take for a comment.

A script that defines `run(KEYS, ARGV)` can be had in two ways. Alone, for EVALSHA, it ends with a
call of that. With all scripts of its folder it makes a library of Redis Functions, in which
fragments are loaded once.
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
    """A product's scripts as Redis Functions. All names have the hash of the text, so that two
    versions can be in one Redis."""

    name: str
    text: str
    #: Script -> function.
    functions: dict[str, str]


def file_of(name: str, root: Path = LUA_ROOT) -> Path:
    """Return the file of a script or fragment such as "visitors/arrival"."""
    product, _, rest = name.partition("/")
    return root / product / "lua" / f"{rest}.lua" if rest else root / f"{name}.lua"


@cache
def source(name: str, root: Path = LUA_ROOT) -> str:
    """Return the whole text of a script such as "rooms/enter", its includes flattened."""
    taken: set[Path] = set()
    lines = _flatten(file_of(name, root), root, taken, ())
    if _RUN in lines:
        lines.append("return run(KEYS, ARGV)")
    return "\n".join(lines) + "\n"


@cache
def library(product: str, root: Path = LUA_ROOT) -> Library:
    """Return all scripts of a product, such as "rooms", as one library."""
    taken: set[Path] = set()
    fragments: list[str] = []
    scripts: dict[str, str] = {}
    for file in sorted((root / product / "lua").glob("*.lua")):
        own = []
        for line in _lines(file, root, ()):
            if isinstance(line, str):
                own.append(line)
            elif line not in taken:
                fragments += _flatten(line, root, taken, (file,))
        scripts[file.stem] = "\n".join(own)
    shared = "\n".join(fragments)
    digest = hashlib.sha256("\n".join([shared, *scripts.values()]).encode()).hexdigest()[:16]
    name = f"waitroom_{product}_{digest}"
    functions = {verb: f"waitroom_{verb}_{digest}" for verb in scripts}
    blocks = [
        f"do\n{text}\nredis.register_function('{functions[verb]}', run)\nend"
        for verb, text in scripts.items()
    ]
    return Library(name, "\n".join([f"#!lua name={name}", shared, *blocks]) + "\n", functions)


def _flatten(file: Path, root: Path, taken: set[Path], above: tuple[Path, ...]) -> list[str]:
    taken.add(file)
    lines: list[str] = []
    for line in _lines(file, root, above):
        if isinstance(line, str):
            lines.append(line)
        elif line not in taken:
            lines += _flatten(line, root, taken, (*above, file))
    return lines


def _lines(file: Path, root: Path, above: tuple[Path, ...]) -> Iterator[str | Path]:
    """Return the lines of a file, and in place of an include the fragment's file."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        match = _INCLUDE.match(line)
        if match is None:
            if "@include" in line:
                at = f"{file.relative_to(root)}:{number}:{line.index('@include') + 1}"
                raise IncludeError(f'{at}: write -- @include "folder/name"')
            yield line
            continue
        at = f"{file.relative_to(root)}:{number}:{match.start('name') + 1}"
        fragment = file_of(match["name"], root)
        if fragment in (*above, file):
            raise IncludeError(f"{at}: {match['name']} includes itself")
        if not fragment.exists():
            raise IncludeError(f"{at}: there is no {match['name']}.lua")
        yield fragment
