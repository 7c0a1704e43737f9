"""A store and one replica without nginx, for the views of the dashboard."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from playwright.sync_api import Page, expect

from tests.support.processes import wait_until
from tests.support.site import ADMIN_TOKEN, Site, answers, make_folder

#: A program's.
TOKEN = "desk-service-token-00"


class Desk(Site):
    """`ops` is the replica's; TOKEN is its service_token."""

    def _start(self) -> None:
        self._settings.setdefault("service_token", TOKEN)
        self.folder = make_folder(self._stack)
        self._start_redis()
        self._start_replica(0)
        wait_until(lambda: answers(f"{self.ops[0]}/readyz"), "the replica", of=self.replicas[0])
        self.dashboard = f"{self.ops[0]}/dashboard"

    def api(self, method: str, path: str, body: object = None, *, token: str = TOKEN) -> Any:
        """The document of a call of the service API."""
        request = urllib.request.Request(
            f"{self.ops[0]}/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)

    def open(self, page: Page, view: str) -> Page:
        """The view, logged in."""
        page.goto(f"{self.dashboard}#/{view}")
        page.get_by_label("Who are you?").fill("Night shift")
        page.get_by_label("Admin token").fill(ADMIN_TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#link")).to_have_text("Live")
        show(page, view)
        return page


def show(page: Page, view: str) -> None:
    page.evaluate("to => { if (location.hash !== to) location.hash = to }", f"#/{view}")


def confirm(page: Page, button: str) -> str:
    """Answers the question with yes; its text."""
    dialog = page.locator("#ask")
    expect(dialog).to_be_visible()
    text = dialog.locator("#ask-text").inner_text()
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()
    return text
