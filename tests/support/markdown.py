"""Checks documentation pages: tables, code blocks and links, as GitHub renders them."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.site import ROOT

PARSER = MarkdownIt("commonmark").enable("table")
ELSEWHERE = re.compile(r"[a-z]+:")
#: A comment before a code block, which says whether and how tests/docs/ runs the block.
MARK = re.compile(r"<!-- (run|not run): (.+) -->")


class _Loader(yaml.SafeLoader):
    """A YAML loader for mkdocs.yml. It reads the tags for Python objects as null."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)


def pages_in(entry: object) -> list[str]:
    """Return all pages in an entry of the navigation (`nav` in mkdocs.yml)."""
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for part in entries for page in pages_in(part)]


@cache
def parse(text: str) -> list[Token]:
    """Parse the Markdown text of a page. The result is cached for all checks."""
    return PARSER.parse(text)


def find_problems(page: Path) -> list[str]:
    """Return the problems of a page with their line numbers."""
    text = page.read_text()
    return [*find_broken_tables(text), *find_broken_blocks(text), *find_broken_links(page)]


def find_broken_tables(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for token in parse(text):
        if token.map is None:
            continue
        first, end = token.map
        if token.type == "table_open":
            wanted = count_cells(lines[first])
            for number in range(first + 2, end):
                if count_cells(lines[number]) != wanted:
                    yield f"{number + 1}: {count_cells(lines[number])} cells, the head has {wanted}"
        if token.type == "inline" and any(
            line.strip().startswith("|") for line in token.content.splitlines()
        ):
            yield f"{first + 1}: a row outside a table"


def count_cells(row: str) -> int:
    return len(re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|")))


def find_broken_blocks(text: str) -> Iterator[str]:
    """Yield problems: a code block without an end, and text that is not shown or is no link."""
    lines = text.splitlines()
    for token in parse(text):
        first, end = token.map or (0, 0)
        if token.type == "fence" and lines[end - 1].strip() != token.markup:
            yield f"{first + 1}: a block of code that does not end"
        if token.type == "html_block" and not MARK.fullmatch(token.content.strip()):
            yield f"{first + 1}: HTML, or a word in angle brackets, which is not shown"
        for child in token.children or []:
            if child.type == "html_inline":
                yield f"{first + 1}: {child.content} is not shown; write it as code"
            if child.type == "text" and re.search(r"\]\(|`", child.content):
                yield f"{first + 1}: a link or code that is none: {child.content}"


def find_broken_links(page: Path) -> Iterator[str]:
    for line, link in find_links(page.read_text()):
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists():
            yield f"{line}: {link}: there is no such file"
        elif anchor and anchor not in find_anchors(target):
            yield f"{line}: {link}: there is no such heading"


def find_links(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the target of each link and picture."""
    for token in parse(text):
        for child in token.children or []:
            for name in ("href", "src"):
                if child.attrGet(name) is not None:
                    yield (token.map or [0])[0] + 1, str(child.attrGet(name))


@cache
def find_anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, named as GitHub names them."""
    tokens = parse(page.read_text())
    seen: Counter[str] = Counter()
    found = set()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            name = re.sub(r"[^\w\- ]", "", read_text(inline).lower()).replace(" ", "-")
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return frozenset(found)


def read_text(inline: Token) -> str:
    return "".join(child.content for child in inline.children or [])
