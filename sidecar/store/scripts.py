"""Loads the Lua scripts: one file a script, fragments by `-- @include "name"`.

A fragment is taken in once, where it is first asked for. A fragment that is missing, or
that includes itself by a detour, is an error that names the file, line and column; so is
an include that is misspelt, which Lua would take for a comment.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from sidecar.base.errors import WaitroomError

LUA_ROOT = Path(__file__).parent / "lua"
_INCLUDE = re.compile(r'^-- @include "(?P<name>[a-z_/]+)"\s*$')


class IncludeError(WaitroomError):
    """An include that cannot be followed."""


@cache
def source(name: str, root: Path = LUA_ROOT) -> str:
    """The whole text of a script such as "rooms/enter", its includes flattened."""
    taken: set[Path] = set()
    return "\n".join(_flatten(root / f"{name}.lua", root, taken, ())) + "\n"


def _flatten(file: Path, root: Path, taken: set[Path], above: tuple[Path, ...]) -> list[str]:
    taken.add(file)
    lines: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        match = _INCLUDE.match(line)
        if match is None:
            if "@include" in line:
                at = f"{file.relative_to(root)}:{number}:{line.index('@include') + 1}"
                raise IncludeError(f'{at}: write -- @include "folder/name"')
            lines.append(line)
            continue
        at = f"{file.relative_to(root)}:{number}:{match.start('name') + 1}"
        fragment = root / f"{match['name']}.lua"
        if fragment in (*above, file):
            raise IncludeError(f"{at}: {match['name']} includes itself")
        if not fragment.exists():
            raise IncludeError(f"{at}: there is no {match['name']}.lua")
        if fragment not in taken:
            lines += _flatten(fragment, root, taken, (*above, file))
    return lines
