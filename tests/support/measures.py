"""Measures of the product's code, each a number that should fall; scripts/measures prints them.

They are counted from the text alone, so any version's tree can be measured.
"""

from __future__ import annotations

import ast
import functools
import io
import keyword
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.imports import find_cycle, statements_of
from tests.support.layers import ALLOWED, PRODUCTS, find_wrong_imports, folder_of

PACKAGES = ("sidecar", "waitroom")
#: So many equal lines make a pair of places.
EQUAL_LINES = 6
COMMON = 8
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 6

#: By product, the words that a file of it may have in its name.
FEATURES = {
    "rooms": {"room", "rooms"},
    "lottery": {"lottery", "draw", "draws"},
    "leases": {"lease", "leases"},
    "limits": {"limit", "limits"},
    "jobs": {"job", "jobs", "target", "targets", "permit", "permits"},
    "history": {"history", "recorder", "stays"},
    "webhooks": {"webhook", "webhooks", "notifier"},
    "dashboard": {"dashboard"},
    "doctor": {"doctor"},
}
WORDS = {word for words in FEATURES.values() for word in words}
#: Files whose name has a product's word and means something else.
OTHERWISE = {
    "sidecar/kit/redis/leader_lease.py": "the field's word for work that one replica does",
    "sidecar/rooms/address_limit.py": "of one endpoint, whatever [limits] say",
}
#: What tells that something is made once more.
REPEATED = {
    "exponential backoff": r"\*\* ?\(?(?:min\(|max\()?[\d, ]*\w*(?:tries|tried|failures)",
    "store scaffold": r"(?<!class )\bBreaker\(",
    "webhook delivery": r"session\.post\(",
}
#: A function of a Lua file, and a loop of one, each to the `end` that stands below its beginning.
LUA_FUNCTION = re.compile(r"^(?:local )?function ([\w.]+)\(.*?^end$", re.MULTILINE | re.DOTALL)
LUA_LOOP = re.compile(
    r"^( +)(?:(?:while|for) [^\n]*\bend$|(?:while|for) .*?^\1end$|repeat$.*?^\1until )",
    re.MULTILINE | re.DOTALL,
)
#: Takes the first out of a sorted set.
POPS = r"'B?ZM?POP(?:MIN)?'"


def find_files(root: Path, suffix: str = ".py") -> list[Path]:
    """Of the product, but for migrations, which stay as they were run."""
    found = [file for name in PACKAGES for file in (root / name).rglob(f"*{suffix}")]
    return sorted(file for file in found if "migrations" not in file.parts)


def count_lines(root: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in find_files(root))


def find_strays(root: Path) -> list[str]:
    """Files that are named for a product and lie in no product's folder."""
    own = set(FEATURES)
    return [
        name
        for file in find_files(root) + find_files(root, ".lua")
        if (name := str(file.relative_to(root))).startswith("sidecar/")
        and set(file.stem.split("_")) & WORDS
        and name.split("/")[1] not in own
        and name not in OTHERWISE
    ]


def find_repeated(root: Path, what: str) -> list[str]:
    """The lines that have what tells it."""
    return [
        f"{file.relative_to(root)}:{number}"
        for file in find_files(root)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(REPEATED[what], line)
    ]


def find_queues(root: Path) -> list[str]:
    """Loops in Lua that take the heads out of a queue, themselves or by a function that does."""
    functions = [
        (f"{file.relative_to(root)} {found[1]}", found[1], found[0])
        for file in find_files(root, ".lua")
        for found in LUA_FUNCTION.finditer(file.read_text(encoding="utf-8"))
    ]
    pops, loops = {POPS}, set()
    while True:
        calls = re.compile("|".join(pops))
        known = len(pops) + len(loops)
        for place, name, text in functions:
            body = text.partition("\n")[2]
            if any(calls.search(loop[0]) for loop in LUA_LOOP.finditer(body)):
                loops.add(place)
            elif calls.search(body):
                pops.add(rf"(?<![\w.]){re.escape(name)}\)?\(")
        if len(pops) + len(loops) == known:
            return sorted(loops)


def shape_of(line: str) -> str:
    """The line with any name, text and number for each that it has."""
    line = re.sub(r"""[rbf]*("[^"]*"|'[^']*')""", "'", line)
    return re.sub(r"\w+", lambda word: word[0] if keyword.iskeyword(word[0]) else "x", line)


def code_lines(file: Path) -> list[tuple[int, str]]:
    """Those that say something: no blank ones, comments, imports, docstrings, lone brackets."""
    text = file.read_text(encoding="utf-8")
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    skipped = set()
    for node in statements_of(text):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    return [
        (number, line)
        for number, line in enumerate(lines, 1)
        if number not in skipped and re.search(r"\w", line) and not line.startswith("#")
    ]


def find_pairs(root: Path, like: Callable[[str], str] = str) -> list[str]:
    """Pairs of places with six or more code lines that are `like` each other, one after the other;
    white space and what is no code do not count. A longer stretch is one pair, three places are
    three pairs, and what stands in more than eight places is how Python is written."""
    files = [
        (file, [(number, like(line)) for number, line in code_lines(file)])
        for file in find_files(root)
    ]
    places = defaultdict(list)
    for index, (_, lines) in enumerate(files):
        for start in range(len(lines) - EQUAL_LINES + 1):
            window = tuple(line for _, line in lines[start : start + EQUAL_LINES])
            places[window].append((index, start))
    windows = {
        (one, other)
        for found in places.values()
        if len(found) <= COMMON
        for at, one in enumerate(found)
        for other in found[at + 1 :]
        if one[0] != other[0] or other[1] - one[1] >= EQUAL_LINES
    }
    # A stretch begins where the pair one line before is none.
    return [
        f"{_name(root, files[one[0]], one[1])} ~ {_name(root, files[other[0]], other[1])}"
        for one, other in sorted(windows)
        if ((one[0], one[1] - 1), (other[0], other[1] - 1)) not in windows
    ]


def _name(root: Path, file: tuple[Path, list[tuple[int, str]]], start: int) -> str:
    path, lines = file
    return f"{path.relative_to(root)}:{lines[start][0]}"


def find_upward(root: Path) -> list[str]:
    """Imports of a folder above, but for those that the layers allow."""
    if not (root / "sidecar" / PRODUCTS[0]).is_dir():
        return []  # a tree from before the layers
    return [
        f"{module} imports {other}"
        for module, other in find_wrong_imports(root / "sidecar")
        if (folder_of(module), folder_of(other)) not in ALLOWED
    ]


def find_cycles(root: Path) -> list[str]:
    """One of each package that has one, those beside the product included."""
    packages = [root / name for name in (*PACKAGES, "demo", "loadtest", "tests")]
    return [" > ".join(cycle) for package in packages if (cycle := find_cycle(package))]


def find_unformatted(root: Path) -> list[str]:
    """What the formatter leaves alone."""
    return [
        f"{file.relative_to(root)}:{token.start[0]}"
        for file in find_files(root)
        if "fmt: skip" in file.read_text("utf-8")
        for token in tokenize.generate_tokens(io.StringIO(file.read_text("utf-8")).readline)
        if token.type == tokenize.COMMENT and "fmt: skip" in token.string
    ]


def _functions(root: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for file in find_files(root):
        for node in statements_of(file.read_text(encoding="utf-8")):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file.relative_to(root)}:{node.lineno} {node.name}", node


def find_long_functions(root: Path) -> list[str]:
    return [
        name
        for name, node in _functions(root)
        if node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]


def find_wide_functions(root: Path) -> list[str]:
    """Those with more than six parameters, self aside."""
    found = []
    for name, node in _functions(root):
        names = [
            one.arg
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if one.arg not in {"self", "cls"}
        ]
        if len(names) > MOST_PARAMETERS:
            found.append(name)
    return found


#: Each finds the places that it counts; lines are counted without.
MEASURES: dict[str, Callable[[Path], list[str]]] = {
    "files named for a product, outside its folder": find_strays,
    **{what: functools.partial(find_repeated, what=what) for what in REPEATED},
    "queue in Lua": find_queues,
    "pairs of places with six equal lines": find_pairs,
    "pairs of places with six lines of the same shape": functools.partial(
        find_pairs, like=shape_of
    ),
    "import cycles": find_cycles,
    "upward imports": find_upward,
    "fmt: skip": find_unformatted,
    "functions of more than 60 lines": find_long_functions,
    "functions with more than 6 parameters": find_wide_functions,
}
LINES = "product Python, lines"


def measure(root: Path, what: str) -> tuple[int, list[str]]:
    """The number, and the places that were counted."""
    found = [] if what == LINES else MEASURES[what](root)
    return count_lines(root) if what == LINES else len(found), found
