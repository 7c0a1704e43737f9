"""Every page of the documentation: its tables are tables, its links lead somewhere."""

import re
import shutil

import pytest

from scripts.docs_pages import BUILT
from sidecar.kit.extras import SOURCE
from tests.support.markdown import find_problems
from tests.support.site import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [*(str(page.relative_to(ROOT)) for page in PAGES), *(f"docs/{name}" for name in BUILT)]
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The repository with the pages that are made from the code."""
    tree = tmp_path_factory.mktemp("tree")
    for each in ROOT.iterdir():
        if each.name != "docs":
            (tree / each.name).symlink_to(each)
    shutil.copytree(ROOT / "docs", tree / "docs")
    for name, page in BUILT.items():
        (tree / "docs" / name).write_text(page())
    return tree


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_shown_as_it_is_meant(tree, name):
    """Nothing in it is broken."""
    assert find_problems(tree / name) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{TABLE}\n| 3 | 4 |\n", "5: a row outside a table"),
        ("text\n| a | b |\n| 1 | 2 |\n", "1: a row outside a table"),
        (f"{TABLE}| 3 | 4 | 5 |\n", "4: 3 cells, the head has 2"),
        (f"{TABLE}| 3|3 | 4 |\n", "4: 3 cells, the head has 2"),
        (f"{TABLE}| 3 |\n", "4: 1 cells, the head has 2"),
        ("[a](no.md)\n", "1: no.md: there is no such file"),
        ("![a](no.png)\n", "1: no.png: there is no such file"),
        ("# A\n\n[a](#b)\n", "3: #b: there is no such heading"),
        ("[a](other.md#b)\n", "1: other.md#b: there is no such heading"),
        ("[a](b c)\n", "1: a link or code that is none: [a](b c)"),
        ("`a\n", "1: a link or code that is none: `a"),
        ("```\na\n", "1: a block of code that does not end"),
        ("set it to <name>\n", "1: <name> is not shown; write it as code"),
        ("<name>\n", "1: HTML, or a word in angle brackets, which is not shown"),
    ],
)
def test_what_is_broken_is_found(tmp_path, text, found):
    """Each with its line."""
    (tmp_path / "other.md").write_text("# Other\n")
    (tmp_path / "page.md").write_text(text)
    assert find_problems(tmp_path / "page.md") == [found]


def test_what_is_right_is_not_found(tmp_path):
    """Escaped pipes, headings twice and with code, links to all of it, and to other sites."""
    text = (
        "# A `b`, c-d_e!\n\n## Twice\n\n## Twice\n\n"
        "| a | b |\n|---|:-:|\n| `x\\|y` | [l](#a-b-c-d_e) |\n| | [m](other.md#other) |\n\n"
        "[t](#twice-1) [u](https://a.example/#x) <https://b.example>\n\n```text\n| x |\n<y>\n```\n"
    )
    (tmp_path / "other.md").write_text("# Other\n")
    (tmp_path / "page.md").write_text(text)
    assert find_problems(tmp_path / "page.md") == []


#: A command that installs, not one of the pinned versions that only a clone has, and in it what a
#: package of ours comes from.
INSTALL = re.compile(r"\bpipx? install (?!.*--constraint)([^`&;#\n]*)")
OURS = re.compile(r"(?<![^\s'\"])([./][\w./]+|\.|waitroom(?:-client)?)(?![\w-])")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "client" / "README.md"], ids=str)
def test_a_page_installs_from_where_waitroom_is(page):
    """From a clone, until a release switches SOURCE: somebody else may take our name before."""
    allowed = {".", "./client"} if SOURCE == "." else {"waitroom", "waitroom-client"}
    commands = INSTALL.findall(page.read_text())
    if page.name != "CHANGELOG.md":
        assert {source for words in commands for source in OURS.findall(words)} <= allowed
