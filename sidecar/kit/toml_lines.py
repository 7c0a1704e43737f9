"""Finds the line numbers of settings in a TOML file, which tomllib does not report."""

import re

_TABLE = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_NAME = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_KEY = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(_NAME)
#: Strings and comments, which may contain brackets. The group has a multi-line string's quotes.
_STRING_OR_COMMENT = re.compile(r"(\"\"\"|''')|\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")
_MULTI_LINE_QUOTES = ('"""', "'''")


def find_lines(text: str) -> dict[str, int]:
    """Return the line numbers, from 1, of the tables and keys of valid TOML, by dotted name. The
    tables of a list are numbered from 0, as in `rooms.0.name`."""
    lines: dict[str, int] = {}
    table_numbers: dict[str, int] = {}
    table: list[str] = []
    depth, end = 0, ""
    for number, row in enumerate(text.split("\n"), 1):
        if end:
            end = "" if end in row else end
            continue
        if not depth and (match := _TABLE.match(row)):
            name = ""
            for part in _split_name(match[1]):
                if name in table_numbers:  # the part belongs to the last table of this list
                    name += f".{table_numbers[name]}"
                name += f".{part}" if name else part
            if row.lstrip().startswith("[["):
                lines.setdefault(name, number)
                table_numbers[name] = table_numbers.get(name, -1) + 1
                name += f".{table_numbers[name]}"
            table = [name]
            lines.setdefault(name, number)
            continue
        if not depth and (match := _KEY.match(row)):
            lines.setdefault(".".join([*table, *_split_name(match[1])]), number)
        bare = _STRING_OR_COMMENT.sub(lambda match: match[1] or "", row)
        end = next((quotes for quotes in _MULTI_LINE_QUOTES if bare.count(quotes) % 2), "")
        depth += sum(map(bare.count, "[{")) - sum(map(bare.count, "]}"))
    return lines


def _split_name(name: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(name)]


def locate(problem: str, lines: dict[str, int]) -> int | None:
    """Return the line of the setting that an error message begins with. If the file does not have
    the setting, return the line of the innermost table that would contain it, or None."""
    name = problem.partition(":")[0]
    while name:
        if name in lines:
            return lines[name]
        name = name.rpartition(".")[0]
    return None
