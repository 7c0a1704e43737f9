"""What axe-core finds on a page."""

from axe_playwright_python.sync_playwright import Axe

AXE = Axe()
#: The list of what was in order, with the markup of each, is most of the work.
OPTIONS = {"resultTypes": ["violations"]}


def findings(page):
    """A line each, of every rule."""
    return [
        f"{rule['impact']}: {rule['id']}: {node['html'][:120]}"
        for rule in AXE.run(page, options=OPTIONS).response["violations"]
        for node in rule["nodes"]
    ]
