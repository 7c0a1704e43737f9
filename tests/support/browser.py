"""Headless Chromium for tests (scripts/install-browser)."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
]  # fmt: skip


expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser():
    """Start one browser per module, because only one event loop can run in this thread."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    binary = next(filter(None, (shutil.which(name, path=path) for name in NAMES)), None)
    if binary is None:
        pytest.fail("chromium is not installed; run make test")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser):
    """Return a function that opens a page in a new browser context."""
    contexts = []

    def make(**options):
        context = browser.new_context(**{"locale": "en-GB", **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: note(page, message))
        return page

    def note(page, message):
        # The browser reports a page with status 503 as a failed resource.
        if message.type == "error" and "503" not in message.text:
            page.problems.append(message.text)

    yield make
    for context in contexts:
        context.close()


AXE = Axe()
#: Listing the checks that pass would take most of the time.
AXE_OPTIONS = {"resultTypes": ["violations"]}


def find_violations(page):
    """Return a line for each violation of accessibility rules that axe-core finds on a page."""
    return [
        f"{rule['impact']}: {rule['id']}: {node['html'][:120]}"
        for rule in AXE.run(page, options=AXE_OPTIONS).response["violations"]
        for node in rule["nodes"]
    ]
