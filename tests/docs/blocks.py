"""Finds the code blocks that readers copy: those in the README and the tabs Start and Guides.

A comment before a block, which readers do not see, says whether and how tests run the block:

    <!-- not run: needs root -->      It is not run, for one of REASONS.
    <!-- run: with edit, request -->  It is Python, and uses these functions of the reader.
    <!-- run: after -->               It is nginx, and needs the nginx block before it.
    <!-- run: output -->              It is what the block before prints.
    <!-- run: by tests/… -->          That test reads the page, and runs the block.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.markdown import MARK, SITE, pages_in, parse
from tests.support.site import ROOT

TABS = ("Start", "Guides")
#: Languages of blocks that cannot be run.
SHOWN = {"text", "html", "mermaid"}
#: The reasons not to run a block, each with a pattern that such a block must match.
REASONS = {
    "needs root": r"^\[sh\](?:.*\bsudo (?!waitroom)|.*/etc/)",
    "needs a container engine": r"^\[sh\].*\b(?:docker|podman)\b",
    "needs a cluster": r"^\[sh\].*\b(?:kubectl|helm|deploy/kubernetes/)",
    "needs your site": r"^\[sh\].*\bwaitroom doctor\b",
    "needs a second installation": r"^\[sh\].*\bnew\.toml\b",
    "needs a clone": r"^\[sh\].*\b(?:make|git) \w",
    "needs a draw": r"^\[sh\].*\bverify-draw\b",
    "needs PHP": r"^\[php\]",
    "needs Ruby": r"^\[ruby\]",
    "needs your tables": r"^\[sql\]",
}


@dataclass(frozen=True)
class Block:
    """A code block on a page, with the comment before it."""

    page: str
    line: int
    language: str
    text: str
    #: The comment's parts: "run" or "not run", and the words after the colon.
    kind: str = ""
    words: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        is_shown = self.language in SHOWN and self.words != "output"
        return self.kind != "not run" and not self.by and not is_shown

    @property
    def by(self) -> str:
        """The file of the test that runs the block, or "" if tests/docs/ runs it."""
        return self.words.removeprefix("by ") if self.words.startswith("by ") else ""

    @property
    def names(self) -> list[str]:
        """The names of the reader's own functions that the block calls."""
        found = re.fullmatch(r"with (.+)", self.words)
        return re.split(r", ?", found[1]) if found else []


def pages() -> list[Path]:
    tabs = {name: entries for tab in SITE["nav"] for name, entries in tab.items()}
    named = [ROOT / "docs" / page for tab in TABS for page in pages_in(tabs[tab])]
    return [ROOT / "README.md", *named]


@cache
def blocks_of(page: Path) -> list[Block]:
    return list(find_blocks(page.relative_to(ROOT).as_posix(), page.read_text()))


def find_blocks(page: str, text: str) -> Iterator[Block]:
    before = None
    for token in parse(text):
        if token.type in {"fence", "code_block"}:
            mark = MARK.fullmatch(before.content.strip()) if before else None
            line = (token.map or [0])[0] + 1
            kind, words = mark.groups() if mark else ("", "")
            language = token.info.strip()
            yield Block(page, line, language, token.content, kind, words)
        before = token if token.type == "html_block" else None


def find_mark_problem(block: Block) -> str:
    """Return what is wrong with the comment before a block, or ""."""
    if not block.language:
        return "a block of code without a language"
    if block.kind == "not run":
        if block.words not in REASONS:
            return f"not one of the reasons: {', '.join(REASONS)}"
        text = f"[{block.language}]{strip_shell(block.text)}"
        if not re.search(REASONS[block.words], text, re.DOTALL):
            return f"it can be run: nothing in it {block.words}"
    if block.by:
        test = ROOT / block.by
        if not test.is_file() or Path(block.page).name not in test.read_text():
            return f"{block.by} is no test of {block.page}"
    if block.kind == "run" and not (block.by or block.names or block.words in {"after", "output"}):
        return "after run: there is `by FILE`, `with NAME, NAME`, `after`, or `output`"
    return ""


def strip_shell(shell: str) -> str:
    """Return shell lines without comments, line continuations and `sudo` before `waitroom`."""
    shell = re.sub(r"\\\n\s*", " ", shell)
    shell = re.sub(r"(?m)(^|\s)#.*$", r"\1", shell)
    return re.sub(r"\bsudo(?: \w+=\S+)* (?=waitroom )", "", shell)
