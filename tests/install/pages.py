"""Finds what a page of the docs says to type."""

import re
import textwrap

from tests.install.compose import ROOT


def block_after(words: str, page: str = "README.md") -> str:
    """Return the first shell block of a page after these words."""
    text = (ROOT / page).read_text()
    found = re.search(r"```sh\n(.*?) *```", text[text.index(words) :], re.DOTALL)
    assert found
    return textwrap.dedent(found[1])


def blocks_of(page: str, heading: str) -> list[str]:
    """Return the shell blocks below a heading of a page, up to the next heading of its level."""
    text = (ROOT / page).read_text()
    level = heading.split(maxsplit=1)[0]
    section = re.split(rf"^{level} ", text[text.index(f"\n{heading}\n") + len(heading) :],
                       flags=re.MULTILINE)[0]  # fmt: skip
    return [
        textwrap.dedent(block) for block in re.findall(r"```sh\n(.*?) *```", section, re.DOTALL)
    ]
