"""Every page of the documentation: its tables are tables, its links lead somewhere."""

import re
import shutil
from collections import Counter

import pytest

from scripts.docs_pages import BUILT
from sidecar.app.openapi.document import build_document
from sidecar.gate.schemas import Status
from sidecar.kit.extras import SOURCE
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS, VERDICT_TTL_MS
from tests.support.markdown import find_problems
from tests.support.site import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


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


@pytest.mark.parametrize("name", BUILT)
def test_a_link_to_a_page_from_the_code_leads_to_its_title(name):
    """On a code host, where the page says how it is made."""
    assert (ROOT / "docs" / name).read_text().partition("\n")[0] == BUILT[name]().partition("\n")[0]


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


def test_each_endpoint_is_on_one_page():
    """That of its product."""
    pages = [page() for name, page in BUILT.items() if name.startswith("endpoints-")]
    found = re.findall(r"^### [\w ]+ (/.*)$", "\n".join(pages), re.MULTILINE)
    paths = {path: len(item.keys() - {"parameters", "servers"})
             for path, item in build_document()["paths"].items()}  # fmt: skip
    assert Counter(found) == Counter(paths)


def test_protocol_lists_the_fields_of_the_status():
    """Each field of the status document is in the table, and no other."""
    text = (ROOT / "docs" / "protocol.md").read_text().partition("## The status document")[2]
    names = re.findall(r"^\| (`.*?) \|", text.partition("\n## ")[0], re.MULTILINE)
    fields = [name for cell in names for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(fields) == sorted(Status.model_fields)


def test_pages_say_how_long_nginx_keeps_a_verdict():
    """In words, as the code has it."""
    assert (BRIEF_TTL_MS, VERDICT_TTL_MS) == (2_000, 3_000)
    for name in ("nginx.md", "caddy.md"):
        text = " ".join((ROOT / "docs" / name).read_text().split())
        assert "two to three seconds" in text.replace("[", ""), name


def test_the_exceptions_of_the_cap_are_listed_once():
    """In design.md; the README and the comparison count them and lead there."""
    for name, link in (("README.md", "docs/design.md"), ("docs/compared.md", "design.md")):
        assert f"[three exceptions]({link}#promises)" in (ROOT / name).read_text()
    promise = (ROOT / "docs" / "design.md").read_text().partition("**Exact cap.**")[2]
    assert "three exceptions" in " ".join(promise.partition("**Order.**")[0].split())
