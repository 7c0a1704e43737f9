"""Fixtures of a headless Chromium, which scripts/install-browser installs."""

import os
import shutil
import sys
from contextlib import contextmanager
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


@contextmanager
def open_browser():
    """Run a headless Chromium. Playwright keeps an event loop running in this thread meanwhile."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    binary = next(filter(None, (shutil.which(name, path=path) for name in NAMES)), None)
    if binary is None:
        pytest.fail("chromium is not installed; run make test")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser():
    """Return a browser. It runs for one test module only, because tests of other modules need an
    event loop of their own."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def visitor(browser):
    """Return a function that opens a page for a new visitor, in a browser context of its own.

    The page's `problems` collect its errors.
    """
    contexts = []

    def make(**options):
        context = browser.new_context(**{"locale": "en-GB", **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: collect_error(page, message))
        return page

    def collect_error(page, message):
        # The browser reports a page with status 503 as a failed resource.
        if message.type == "error" and "503" not in message.text:
            page.problems.append(message.text)

    yield make
    for context in contexts:
        context.close()


AXE = Axe()
#: axe-core must list violations only. To list the checks that pass would take most of its time.
AXE_OPTIONS = {"resultTypes": ["violations"]}


def find_violations(page):
    """Check a page with axe-core. Return a line for each violation of an accessibility rule."""
    return [
        f"{rule['impact']}: {rule['id']}: {node['html'][:120]}"
        for rule in AXE.run(page, options=AXE_OPTIONS).response["violations"]
        for node in rule["nodes"]
    ]
