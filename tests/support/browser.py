"""Chromium for tests, without a window if possible (scripts/install-browser)."""

import os
import shutil
import sys
from pathlib import Path

import pytest
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
    """Start one browser per module: its event loop runs in this thread, and no other can."""
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
    """Return a function that opens a page in a browser context of its own."""
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
