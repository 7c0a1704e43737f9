"""The documentation as a site: it builds strictly, and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys

import pytest

from scripts.docs_pages import DOCS, KEPT, write_site
from tests.support.markdown import SITE, pages_in
from tests.support.site import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    write_site(folder / "docs")
    settings = (ROOT / "mkdocs.yml").read_text().replace("docs_dir: .docs", "docs_dir: docs")
    (folder / "mkdocs.yml").write_text(settings.replace("site_dir: .site", "site_dir: built"))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "built"


@pytest.mark.full
def test_it_builds_and_loads_nothing_from_elsewhere(built):
    """No warning: each page is in the navigation, each link and anchor leads somewhere. Scripts,
    styles, fonts and pictures are the site's own."""
    pages = list(built.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    loaded = re.compile(r"<(?:script|img|link)\b[^>]*?(?:src|href)=[\"']?(https?:[^\"' >]+)")
    assert {url for page in pages for url in loaded.findall(page.read_text())} == set()
    assert (built / "search" / "search_index.json").exists()


@pytest.mark.full
def test_marks_of_tests_are_not_in_it(built):
    """They are beside the code blocks of the pages' files."""
    assert "<!-- not run: " in (ROOT / "docs" / "docker.md").read_text()
    assert not [page for page in built.rglob("*.html") if "run: needs" in page.read_text()]


def test_its_tabs_are_how_people_search():
    """Five tabs, and no page in two of them."""
    assert [next(iter(tab)) for tab in SITE["nav"]] == [
        "Start", "Guides", "Reference", "Operate", "Internals",
    ]  # fmt: skip
    pages = pages_in(SITE["nav"])
    assert len(pages) == len(set(pages))


def test_pages_from_the_code_are_up_to_date():
    """Those that are kept: make docs writes them anew."""
    old = [name for name, page in KEPT.items() if (DOCS / name).read_text() != page()]
    assert old == []
