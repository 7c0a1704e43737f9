"""The waiting page in a hidden tab.

Chromium runs timers of hidden tabs once a minute, unless a response from the network set the timer,
as the page does.
"""

import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browser import ARGUMENTS
from tests.support.processes import wait_until
from tests.support.site import Site, gated

ROOMS = {"hidden": {"total_active_users": 0}}
#: A headless shell never hides a tab.
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def site():
    with Site(rooms=ROOMS, locations="".join(gated(f"/page/{r}", room=r) for r in ROOMS)) as site:
        yield site


@contextmanager
def tabs():
    """Start a browser in which only the last tab is visible. Yield a function that opens a tab."""
    with tempfile.TemporaryDirectory() as folder:
        hides = "--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/5"
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
        browser = subprocess.Popen(
            [CHROMIUM, *ARGUMENTS, hides, *options, "about:blank"], stderr=subprocess.DEVNULL
        )
        try:
            found = f"{folder}/DevToolsActivePort"
            wait_until(lambda: bool(read(found)), "the browser")
            port = read(found).split()[0]

            def open_tab(url):
                request = urllib.request.Request(
                    f"http://127.0.0.1:{port}/json/new?{url}", method="PUT"
                )
                with urllib.request.urlopen(request, timeout=10) as reply:
                    return json.load(reply)

            yield open_tab
        finally:
            browser.kill()
            browser.wait()


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def count_polls(site):
    lines = (
        line
        for ops in site.ops
        for line in urllib.request.urlopen(f"{ops}/metrics").read().decode().splitlines()
    )
    wanted = ("waitroom_requests_total", 'door="status"', 'room="hidden"')
    return sum(float(line.split()[-1]) for line in lines if all(word in line for word in wanted))


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium that hides tabs")
def test_a_tab_that_chromium_throttles_polls_as_told(site):
    """Throttled timers would run once in 20 s at most, and throttling begins within a minute."""
    with tabs() as open_tab:
        open_tab(f"{site.url}/page/hidden")
        wait_until(lambda: site.room("hidden")["waiting"] == 1, "a place")
        open_tab("about:blank")
        time.sleep(65)
        before = count_polls(site)
        time.sleep(20)
        assert count_polls(site) - before >= 5
