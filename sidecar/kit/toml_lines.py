"""Finds the line numbers of settings in a TOML file, which tomllib does not report."""

import re

_TABLE = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_NAME = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_KEY = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(_NAME)
#: Strings and comments, which may contain brackets. The group is the quotes of multi-line strings.
_TEXT = re.compile(r"(\"\"\"|''')|\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")
_LONG = ('"""', "'''")


def find_lines(text: str) -> dict[str, int]:
    """Return the line numbers, from 1, of the tables and keys of valid TOML by dotted name. In a
    name, the tables of a list are numbered from 0."""
    lines: dict[str, int] = {}
    table_numbers: dict[str, int] = {}
    table: list[str] = []
    depth, end = 0, ""
    for number, row in enumerate(text.split("\n"), 1):
        if end:
            end = "" if end in row else end
            continue
        if not depth and (match := _TABLE.match(row)):
            name = _element(_parts(match[1]), table_numbers)
            if row.lstrip().startswith("[["):
                lines.setdefault(name, number)
                table_numbers[name] = table_numbers.get(name, -1) + 1
                name += f".{table_numbers[name]}"
            table = [name]
            lines.setdefault(name, number)
            continue
        if not depth and (match := _KEY.match(row)):
            lines.setdefault(".".join([*table, *_parts(match[1])]), number)
        bare = _TEXT.sub(lambda match: match[1] or "", row)
        end = next((quotes for quotes in _LONG if bare.count(quotes) % 2), "")
        depth += sum(bare.count(one) for one in "[{") - sum(bare.count(one) for one in "]}")
    return lines


def _element(parts: list[str], table_numbers: dict[str, int]) -> str:
    """Return a table's dotted name. Each list of tables in it is followed by its last number."""
    name = ""
    for part in parts:
        if name in table_numbers:
            name += f".{table_numbers[name]}"
        name += f".{part}" if name else part
    return name


def _parts(name: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(name)]


def locate(problem: str, lines: dict[str, int]) -> int | None:
    """Return the line of the setting that a problem names, or of the table that should have it."""
    name = problem.partition(":")[0]
    while name:
        if name in lines:
            return lines[name]
        name = name.rpartition(".")[0]
    return None
