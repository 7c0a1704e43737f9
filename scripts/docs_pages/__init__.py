"""Documentation pages: those written by hand in docs/, and those generated from the code.

`python -m scripts.docs_pages` writes all of them to .docs/, of which mkdocs, or its successor,
builds the site. It also updates the generated files that are kept in the repository: the texts of
alerts, and Prometheus's rules. Each page has a module, whose function `page` returns the text.
"""

import re
import shutil
from pathlib import Path

from scripts.docs_pages import (
    alerts,
    commands,
    endpoints,
    findings,
    metrics,
    problems,
    settings,
)

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: The functions that generate the text of each page for the site, by file name. docs/ has a page of
#: the same name for readers on a code host, which says how to generate the page.
BUILT = {
    "commands.md": commands.page,
    "doctor-findings.md": findings.page,
    **endpoints.pages(),
    "metrics-reference.md": metrics.page,
    "problems.md": problems.page,
    "settings.md": settings.page,
}
#: The generated files that are kept, because the product, its errors and Prometheus need them.
KEPT = {
    "alerts.md": alerts.page,
    "../deploy/monitoring/prometheus/waitroom.rules.yml": alerts.rules,
    "../sidecar/dashboard/page/alerts.json": alerts.dashboard,
}

#: A link to a file of the repository that is no page: ../nginx/example.conf.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")
#: A comment for the tests before a block of code: <!-- not run: … -->.
_MARK = re.compile(r"^ *<!-- (?:not )?run: .* -->\n", re.MULTILINE)


def write_kept() -> None:
    for name, page in KEPT.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


def write_site(folder: Path) -> None:
    """Write all pages and pictures to an empty or new folder, for the site generator.

    Links out of docs/ become names of files, because readers of the site may have no repository.
    """
    shutil.copytree(DOCS, folder, dirs_exist_ok=True)
    for name, page in BUILT.items():
        (folder / name).write_text(page(), encoding="utf-8")
    for file in folder.rglob("*.md"):
        text = _MARK.sub("", file.read_text(encoding="utf-8"))
        file.write_text(_OUTSIDE.sub(_name_file, text), encoding="utf-8")


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    name = path.rstrip("/")
    if text.startswith("`"):
        return text
    return f"`{name}`" if text == name else f"{text} (`{name}`)"
