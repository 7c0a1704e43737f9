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
