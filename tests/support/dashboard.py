"""The dashboard in a real browser: a site with a history, and what operators do on the page."""

import json
import os
import time
import urllib.request

import redis
from playwright.sync_api import expect

from sidecar.rooms.redis_keys import room_key
from sidecar.visitors.visitor_number import visitor_number
from tests.support.processes import run_command, wait_until
from tests.support.site import ADMIN_TOKEN, SECRET, Site, answers, make_folder

#: A room that lets one visitor in.
QUICK = {"total_active_users": 1, "heartbeat_interval": 1, "claim_window": 30}


#: Nothing was measured for ten minutes, twenty minutes ago.
GAP = range(20, 30)
#: A program's.
TOKEN = "dashboard-service-token"


class Dashboard(Site):
    """A store and one replica without nginx: visitors ask the replica itself. `ops` is the
    replica's; TOKEN is its service_token."""

    def _start(self):
        self.folder = make_folder(self._stack)
        self._settings.setdefault("service_token", TOKEN)
        if not self.store:
            self._start_redis()
        self._prepare()
        self._start_replica(0)
        wait_until(lambda: answers(f"{self.ops[0]}/readyz"), "the replica", of=self.replicas[0])
        self.dashboard = f"{self.ops[0]}/dashboard"

    def _prepare(self):
        """What the replica needs besides."""

    def api(self, method, path, body=None):
        """The document of a call of the service API."""
        request = urllib.request.Request(
            f"{self.ops[0]}/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)

    def open(self, page, address):
        """A view, logged in."""
        view(log_in(self, page, "Night shift"), address)
        return page


class WithHistory(Dashboard):
    """And it keeps a history."""

    def _prepare(self):
        self._settings["history"] = f"sqlite:///{self.folder}/history.db"
        environment = {
            "PATH": os.environ["PATH"],
            "WAITROOM_HISTORY": self._settings["history"],
            "WAITROOM_SECRET_KEYS": SECRET,
            "WAITROOM_ROOMS__ACT__TOTAL_ACTIVE_USERS": "1",
        }
        done = run_command("migrate", cwd=self.folder, env=environment)
        assert done.returncode == 0, done.stderr

    def page(self, room):
        """Where a visitor waits."""
        return f"{self.edges[0]}/_waitroom/{room}/?next=/"

    def arrive(self, room, class_name=""):
        """Somebody comes, and stays where they are put. Their id."""
        said = {"X-Waitroom-Class": class_name}
        url = f"{self.edges[0]}/_waitroom/{room}/join"
        request = urllib.request.Request(url, method="POST", headers=said)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)["visitor"]

    def line(self, room):
        """The ids of all in the queue."""
        rows = self.admin("GET", f"/rooms/{room}/waiting")["waiting"]
        return [row["visitor"] for row in rows]


def write_past(site, room, minutes):
    """The room has run for that long: samples as rooms/lua/parts/minutes.lua writes them."""
    first = int(time.time() // 60) - 1
    rows = [
        {
            "minute": first - ago,
            "waiting": 400 + ago,
            "active": 48,
            "cap": 50,
            "wait_ms": 1000,
            "totals": {
                "joined": 10_000 - 7 * ago * (ago + 1),
                "admitted": 5_000 - 3 * ago,
                "left_waiting": 500 - ago,
                "wait_12": 5_000 - 3 * ago,
            },
        }
        for ago in range(minutes)
        if ago not in GAP
    ]
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        key = room_key(room, "minutes")
        wait_until(lambda: store.llen(key) == 1, "the first sample")
        store.rpush(key, *(json.dumps(row, separators=(",", ":")) for row in rows))


def log_in(site, page, name):
    page.goto(site.dashboard)
    page.get_by_label("Who are you?").fill(name)
    page.get_by_label("Admin token").fill(ADMIN_TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#link")).to_have_text("Live")
    return page


def view(page, address):
    """Goes to one of the page's views, where that is another."""
    page.evaluate("to => { if (location.hash !== to) location.hash = to }", f"#/{address}")


def numbers(ids):
    """What the page shows of them."""
    return [visitor_number(visitor) for visitor in ids]


def room(page, name):
    view(page, f"rooms/{name}")
    return page.locator(f"#room-{name}")


def log(page):
    view(page, "log")
    return page.locator("#log")


def overview(page):
    view(page, "")
    return page.locator("#overview")


def control(page, name, what):
    return room(page, name).locator(f"[data-control={what}]")


def figure(page, name, what):
    return room(page, name).locator(f"[data-f={what}]")


def said(page, name, what):
    """What the control says came of it."""
    return control(page, name, what).locator("output")


def is_waiting(site, guest):
    """Whether a visitor of the room `line` is told to wait when they come again."""
    guest.goto(site.page("line"))
    return guest.locator("html").get_attribute("data-state") == "waiting"


def press(within, name):
    within.get_by_role("button", name=name).first.click()


def confirm(page, name, *, typed=None):
    """Answers the question by the button of that name. The question's text."""
    dialog = page.locator("#ask")
    expect(dialog).to_be_visible()
    text = dialog.locator("#ask-text").inner_text()
    if typed is not None:
        dialog.get_by_role("textbox").fill(typed)
    press(dialog, name)
    if typed is None:
        expect(dialog).to_be_hidden()
    return text


def choose(row, what):
    """An item of a row's menu."""
    press(row, "Actions")
    row.get_by_role("menuitem", name=what).click()


def move(page, row, where, *, why="", then="Move"):
    """Answers the question where to, up to the place or class."""
    choose(row, "Move")
    question = page.locator("#move")
    question.get_by_role("radio", name=where).check()
    question.get_by_label("Why?").fill(why)
    press(question, then)
