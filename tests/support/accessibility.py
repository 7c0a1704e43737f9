"""Findings of axe-core on a page."""

from axe_playwright_python.sync_playwright import Axe

AXE = Axe()
#: Listing what is in order would be most of the work.
OPTIONS = {"resultTypes": ["violations"]}


def find_violations(page):
    """Return a line for each violation."""
    return [
        f"{rule['impact']}: {rule['id']}: {node['html'][:120]}"
        for rule in AXE.run(page, options=OPTIONS).response["violations"]
        for node in rule["nodes"]
    ]
