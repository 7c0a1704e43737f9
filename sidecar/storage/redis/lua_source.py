"""Reads the Lua scripts. Each script is a file, which may include fragments (other files) by
`-- @include "name"`.

A fragment is included once, at its first include. A missing fragment, a fragment that includes
itself, and a misspelt include are errors with file, line and column.

A script that defines `run(KEYS, ARGV)` can run in two ways. For EVALSHA the source is that script
alone, with a call of `run` at the end. For Redis Functions the source is a library with all scripts
of a folder, in which each fragment is included once.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sidecar.kit.errors import SidecarError

#: The package's folder. The script "rooms/enter" is the file rooms/lua/enter.lua in it.
LUA_ROOT = Path(__file__).resolve().parents[2]
_INCLUDE = re.compile(r'^-- @include "(?P<name>[a-z_/]+)"\s*$')
_RUN = "local function run(KEYS, ARGV)"


class IncludeError(SidecarError):
    """An include that cannot be resolved."""


@dataclass(frozen=True, slots=True)
class Library:
    """The scripts of a folder, such as rooms, as a library of Redis Functions. Its name and its
    functions' names have a hash of the source, so that two versions can be loaded side by side."""

    name: str
    #: The Lua source of the library.
    text: str
    #: The names of the functions, by script.
    functions: dict[str, str]


def find_file(name: str, root: Path = LUA_ROOT) -> Path:
    """Return the file of a script or fragment, such as "visitors/arrival"."""
    folder, _, rest = name.partition("/")
    return root / folder / "lua" / f"{rest}.lua" if rest else root / f"{name}.lua"


@cache
def source(name: str, root: Path = LUA_ROOT) -> str:
    """Return the Lua source of a script, such as "rooms/enter", with all fragments."""
    lines = [*_flatten(find_file(name, root), root, set())]
    if _RUN in lines:
        lines.append("return run(KEYS, ARGV)")
    return "\n".join(lines) + "\n"


@cache
def library(folder: str, root: Path = LUA_ROOT) -> Library:
    """Return all scripts of a folder, such as "rooms", as one library."""
    included: set[Path] = set()
    fragments: list[str] = []
    scripts: dict[str, str] = {}
    for file in sorted((root / folder / "lua").glob("*.lua")):
        lines = [*_read_lines(file, root, ())]
        scripts[file.stem] = "\n".join(line for line in lines if isinstance(line, str))
        for line in lines:
            if isinstance(line, Path):
                fragments += _flatten(line, root, included, (file,))
    shared_text = "\n".join(fragments)
    digest = hashlib.sha256("\n".join([shared_text, *scripts.values()]).encode()).hexdigest()[:16]
    name = f"waitroom_{folder}_{digest}"
    functions = {script: f"waitroom_{script}_{digest}" for script in scripts}
    blocks = [
        f"do\n{text}\nredis.register_function('{functions[script]}', run)\nend"
        for script, text in scripts.items()
    ]
    return Library(name, "\n".join([f"#!lua name={name}", shared_text, *blocks]) + "\n", functions)


def _flatten(
    file: Path, root: Path, included: set[Path], parents: tuple[Path, ...] = ()
) -> Iterator[str]:
    """Yield the lines of a file and its fragments, without files that are already `included`."""
    if file in included:
        return
    included.add(file)
    for line in _read_lines(file, root, parents):
        if isinstance(line, str):
            yield line
        else:
            yield from _flatten(line, root, included, (*parents, file))


def _read_lines(file: Path, root: Path, parents: tuple[Path, ...]) -> Iterator[str | Path]:
    """Yield a file's lines, and for each include the fragment's path. Raises IncludeError."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if "@include" not in line:
            yield line
            continue
        match = _INCLUDE.match(line)
        column = (match.start("name") if match else line.index("@include")) + 1
        location = f"{file.relative_to(root)}:{number}:{column}"
        if match is None:  # Lua would take the line for a comment
            raise IncludeError(f'{location}: write -- @include "folder/name"')
        fragment = find_file(match["name"], root)
        if fragment in (*parents, file):
            raise IncludeError(f"{location}: {match['name']} includes itself")
        if not fragment.exists():
            raise IncludeError(f"{location}: there is no {match['name']}.lua")
        yield fragment
