"""The waiting page in a real browser, with responses and clocks that a test sets."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from sidecar.gate.page.languages import Languages
from tests.support.site import ROOT

LANGUAGES = Languages(ROOT / "static").tags
URL = "http://site.test"
#: The server's time when a page is opened. The browser's own clock is years behind.
SERVER = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
BROWSER = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)
TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "json": "application/json",
}
ECHO = re.compile(
    r'<!--# echo var="waitroom_(\w+)" default="([^"]*)" -->|<!--# echo .*?"([^"]*)" -->'
)
ABOUT = {
    "room": "shop", "claim_seconds": 30, "session_seconds": 300, "session_max_seconds": 1800,
    "is_renewed": True, "place_seconds": 86_400, "site_name": None, "logo": None,
}  # fmt: skip
NOWHERE = {"position": None, "ahead": None, "wait_seconds": None}


class PlayedPage:
    """A page, and the responses to it. `answer` has the fields that differ from those of a waiting
    visitor, `asked` the paths of requests other than for files."""

    def __init__(self, page, *, server=SERVER):
        self.page = page
        self.server = server
        self.asked = []
        self.answer = {}
        self.next = "/"
        self.about = ABOUT
        self.older = False
        self.lacks = set()
        page.clock.install(time=BROWSER - timedelta(minutes=1))  # it runs on until it is paused
        page.clock.pause_at(BROWSER + timedelta(seconds=1))
        page.route(f"{URL}/**", self._reply)

    def open(self, path="/page", **answer):
        self.answer = answer
        self.page.goto(URL + path)
        return self.page

    def forward(self, seconds, **answer):
        """Forward both clocks. Requests meanwhile get `answer`, or the last one, with the time at
        the end."""
        self.answer = answer or self.answer
        self.server += timedelta(seconds=seconds)
        self.page.clock.run_for(round(seconds * 1000))

    def sleep(self, seconds, **answer):
        """Forward both clocks as on a sleeping phone: timers that are due run once, at the end."""
        self.answer = answer or self.answer
        self.server += timedelta(seconds=seconds)
        self.page.clock.fast_forward(round(seconds * 1000))

    def forward_until_asked(self, what, **answer):
        """Forward by two seconds at a time: the page may not have read the last response yet."""
        while not self.asked:
            self.page.wait_for_timeout(20)
        for _ in range(100):
            self.forward(2, **answer)
            self.page.wait_for_timeout(50)
            if self.asked[-1].startswith(what):
                return
        raise AssertionError(f"nothing asked for {what}: {self.asked}")

    def again(self, **answer):
        """Make the page poll at once, as when a visitor comes back to it."""
        self.answer = answer
        with self.page.expect_response("**/status"):
            self.page.evaluate(
                "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"
            )

    def document(self):
        return {
            "state": "waiting", "visitor": "v" * 22, "position": 17, "position_above": None,
            "line": None, "waiting": 240, "ahead": 16, "wait_seconds": 300,
            "wait_seconds_low": None, "wait_seconds_high": None,
            "joined_at": iso(SERVER), "updated_at": iso(self.server), "refresh_after_seconds": 30,
            "message": None, "room": "shop", "phase": "open", "event": None,
            "prequeue_from": None, "opens_at": None, "closes_at": None, **self.answer,
        }  # fmt: skip

    def _reply(self, route):
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
            # nginx fills in the room and the page to return to.
            values = {"room": "shop", "next": self.next, "languages": " ".join(LANGUAGES)}
            text = (ROOT / "static" / "waiting.html").read_text(encoding="utf-8")
            body = ECHO.sub(lambda m: values.get(m[1], m[2] or m[3] or ""), text)
            if self.older:
                body = re.sub(
                    r' data-languages="[^"]*"|<details>.*?</details>', "", body, flags=re.DOTALL
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
def told(visitor):
    def make(**options):
        server = options.pop("server", SERVER)
        return PlayedPage(visitor(timezone_id="Europe/Zurich", **options), server=server)

    return make
