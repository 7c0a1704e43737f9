"""A waiting page in a real browser, in which a test sets the clocks and the server's responses."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from sidecar.gate.page.render import Page
from tests.support.site import ROOT

PAGE = Page(ROOT / "static")
LANGUAGES = PAGE.languages.tags
URL = "http://site.test"
#: The server's time when the page is opened. The browser's clock is years behind (BROWSER).
SERVER = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
BROWSER = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)
TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "json": "application/json",
}
ABOUT = {
    "room": "shop", "claim_seconds": 30, "session_seconds": 300, "session_max_seconds": 1800,
    "is_renewed": True, "place_seconds": 86_400, "site_name": None, "logo": None,
}  # fmt: skip
NOWHERE = {"position": None, "ahead": None, "wait_seconds": None}


class PlayedPage:
    """A waiting page whose requests are answered here instead of by a server.

    Args:
        page: A page of Playwright.
        server: The server's time at the beginning.
        locale: The visitor's language, in which the page is served.

    Attributes:
        asked: Paths of the page's requests so far, except requests for static files.
        answer: Fields of the status response that differ from `document`.
        next: URL to which admitted visitors go.
        about: Response about the room, or None for status 404.
        view: The view in which nginx serves the page.
        older: Whether the page is that of an earlier version, without some elements.
        lacks: Names of German texts that are missing.
    """

    def __init__(self, page, *, server=SERVER, locale=None):
        self.page = page
        self.server = server
        self.language = PAGE.languages.choose(locale)
        self.asked = []
        self.answer = {}
        self.next = "/"
        self.about = ABOUT
        self.view = "joining"
        self.older = False
        self.lacks = set()
        # The clock runs until it is paused.
        page.clock.install(time=BROWSER - timedelta(minutes=1))
        page.clock.pause_at(BROWSER + timedelta(seconds=1))
        page.route(f"{URL}/**", self._respond)

    def open(self, path="/page", **answer):
        self.answer = answer
        self.page.goto(URL + path)
        return self.page

    def forward(self, seconds, **answer):
        """Forward both clocks, and run all timers. Without `answer`, the responses stay as before,
        apart from their time."""
        self._forward(self.page.clock.run_for, seconds, answer)

    def sleep(self, seconds, **answer):
        """Forward both clocks while the device sleeps: each due timer runs once, at the end."""
        self._forward(self.page.clock.fast_forward, seconds, answer)

    def _forward(self, forward_ms, seconds, answer):
        self.answer = answer or self.answer
        self.server += timedelta(seconds=seconds)
        forward_ms(round(seconds * 1000))

    def forward_until_asked(self, path, **answer):
        """Forward both clocks in steps of two seconds until the page sends a request for `path`. It
        takes several steps if the page has not read the last response yet."""
        while not self.asked:
            self.page.wait_for_timeout(20)
        for _ in range(100):
            self.forward(2, **answer)
            self.page.wait_for_timeout(50)
            if self.asked[-1].startswith(path):
                return
        raise AssertionError(f"nothing asked for {path}: {self.asked}")

    def forward_to(self, path, seconds, **answer):
        """Forward both clocks as `forward` does, and wait for the response to a request for
        `path`."""
        with self.page.expect_response(f"**/{path}"):
            self.forward(seconds, **answer)

    def again(self, **answer):
        """Make the page poll at once, as it does when the visitor returns to the tab."""
        self.answer = answer
        with self.page.expect_response("**/status"):
            self.page.evaluate(
                "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"
            )

    def document(self):
        """Return the JSON of a status response: by default, that of a waiting visitor."""
        return {
            "state": "waiting", "visitor": "v" * 22, "position": 17, "position_above": None,
            "line": None, "waiting": 240, "ahead": 16, "wait_seconds": 300,
            "wait_seconds_low": None, "wait_seconds_high": None,
            "joined_at": iso(SERVER), "updated_at": iso(self.server), "refresh_after_seconds": 30,
            "message": None, "room": "shop", "phase": "open", "event": None,
            "prequeue_from": None, "opens_at": None, "closes_at": None, **self.answer,
        }  # fmt: skip

    def _respond(self, route):
        path = route.request.url.removeprefix(URL)
        if path.startswith("/_waitroom/static/"):
            name = path.removeprefix("/_waitroom/").partition("?")[0]
            file = ROOT / "static" / name.removeprefix("static/")
            body = file.read_bytes()
            if self.lacks and name.endswith("de.json"):
                texts = json.loads(body)
                body = json.dumps({k: t for k, t in texts.items() if k not in self.lacks})
            route.fulfill(body=body, content_type=TYPES[name.rsplit(".")[-1]])
        elif path == "/_waitroom/shop/about":
            status = 404 if self.about is None else 200
            body = json.dumps(self.about or {"title": "Not Found"})
            route.fulfill(status=status, body=body, content_type="application/json")
        elif path == "/_waitroom/shop/style.css":
            route.fulfill(body="", content_type="text/css")
        elif re.match(r"/_waitroom/shop/\w", path):
            self.asked.append(path.removeprefix("/_waitroom/shop/"))
            route.fulfill(body=json.dumps(self.document()), content_type="application/json")
        else:
            # Fill in the values as nginx does.
            values = {"room": "shop", "next": self.next, "view": self.view}
            body = PAGE.render(language=self.language, view=self.view, values=values)
            if self.older:
                values["view"] = ""
                body = PAGE.render(language="en", view="waiting", values=values)
                body = re.sub(
                    r' lang="en"| data-view=""| data-languages="[^"]*"|<details>.*?</details>',
                    "",
                    body,
                    flags=re.DOTALL,
                )
                body = re.sub(r'id="(?:ahead|between|tools|know|undo|number)"', "", body)
            route.fulfill(body=body, content_type="text/html; charset=utf-8")


def iso(moment):
    return moment.isoformat(timespec="milliseconds")


def closed(opens_at, prequeue_from=None, **more):
    return {
        "state": "closed", "phase": "closed", "joined_at": None, **NOWHERE, "event": "sale",
        "opens_at": iso(opens_at), "prequeue_from": prequeue_from and iso(prequeue_from),
        "refresh_after_seconds": 60, **more,
    }  # fmt: skip


def prequeue(opens_at):
    return {"phase": "prequeue", **NOWHERE, "event": "sale", "opens_at": iso(opens_at)}


@pytest.fixture
def play(visitor):
    """Return a function that creates a PlayedPage for a visitor in the time zone of Zurich."""

    def make(*, server=SERVER, **options):
        page = visitor(timezone_id="Europe/Zurich", **options)
        return PlayedPage(page, server=server, locale=options.get("locale"))

    return make
