"""A single-page application with a service worker, configured as in
docs/recipes/single-page-application.md."""

import re
import sys

import pytest
from playwright.sync_api import expect

from tests.sites.php import RecipeSite
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import free_port, wait_until
from tests.support.site import ROOT, answers
from tests.support.story import ahead

#: Around the recipe's lines: a page that calls the API at once and whenever its button is pressed.
APP = """
async function load() {
  const response = await call("/api/value");
  if (response.ok) document.querySelector("#value").textContent = (await response.json()).api;
}
document.querySelector("button").addEventListener("click", load);
navigator.serviceWorker.register("/worker.js");
load();
"""
WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
"""


class App(RecipeSite):
    """A site with the application at the port that the recipe names."""

    recipe = "single-page-application.md"

    def _start_gate(self):
        text = (ROOT / "docs" / "recipes" / self.recipe).read_text()
        call, worker = re.findall(r"```js\n(.*?)```", text, re.DOTALL)[:2]
        (self.folder / "app.js").write_text(call + APP)
        (self.folder / "worker.js").write_text(worker + WORKER)
        self.app_port = free_port()
        module = [sys.executable, "-m", "tests.sites.single_page"]
        arguments = [str(self.app_port), str(self.folder)]
        self.run("app", ["env", f"PYTHONPATH={ROOT}", *module, *arguments])
        wait_until(lambda: answers(f"http://127.0.0.1:{self.app_port}/"), "the application")
        return super()._start_gate()

    def changes(self) -> dict[str, str]:
        return {"127.0.0.1:9000": f"127.0.0.1:{self.app_port}"}


@pytest.fixture(scope="module")
def site():
    room = {"total_active_users": 1, "heartbeat_interval": 1, "claim_window": 60}
    with App(rooms={"shop": room}) as site:
        yield site


def test_the_room_is_seen_although_a_worker_answers(site, visitor):
    """A visitor whose session ends while the cached page is open sees the room, without a loop of
    redirects, and comes back to the page by itself."""
    page = visitor()
    page.goto(f"{site.url}/orders/7?tab=open#notes")
    expect(page.locator("#value")).not_to_be_empty()
    page.wait_for_function("navigator.serviceWorker.controller !== null")
    page.reload()  # by the worker, which keeps it
    expect(page.locator("#value")).not_to_be_empty()
    page.reload()
    expect(page.locator("#value")).not_to_be_empty()
    (session,) = site.admin("GET", "/rooms/shop/sessions")["sessions"]
    site.admin("POST", f"/rooms/shop/visitors/{session['visitor']}/release")
    wait_until(lambda: site.room()["active"] == 0, "the end of the visit")
    another = Visitor(site.url)
    another.hold("/")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_text("Load").click()
    expect(ahead(page)).to_have_text("0")
    assert page.url == f"{site.url}/_waitroom/shop/?next=/orders/7?tab=open#notes"
    page.wait_for_timeout(3000)
    assert sum("/api/" in url for url in asked) <= 2
    assert not any(url.startswith(f"{site.url}/orders/") for url in asked)

    assert another.get("/api/value", headers={"Accept": JSON}).status == 200
    another.post("/_waitroom/shop/leave")
    expect(page.locator("h1")).to_have_text("App")
    expect(page.locator("#value")).not_to_be_empty()
    assert page.url == f"{site.url}/orders/7?tab=open#notes"


def test_a_refused_page_is_not_kept(site, visitor):
    """A visitor who comes while the room is full waits, and gets the application later."""
    inside = Visitor(site.url)
    site.release_all()
    inside.hold("/")
    page = visitor()
    page.goto(f"{site.url}/start")
    expect(ahead(page)).to_have_text("0")
    inside.post("/_waitroom/shop/leave")
    expect(page.locator("h1")).to_have_text("App")
    page.reload()
    expect(page.locator("h1")).to_have_text("App")
