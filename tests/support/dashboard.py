"""Starts sites with a dashboard, and acts as an operator in it with a real browser."""

import json
import os
import re

import redis
from playwright.sync_api import expect

from sidecar.rooms.redis_keys import room_key
from sidecar.visitors.visitor_number import visitor_number
from tests.support.processes import run_command, wait_until
from tests.support.site import ADMIN_TOKEN, SECRET, Site, answers, call, make_folder

#: Settings of a room with one slot, whose visitors poll every second.
QUICK = {"total_active_users": 1, "heartbeat_interval": 1, "claim_window": 30}
#: The minutes before a room's first sample, from 0, for which `write_past` writes none.
GAP = range(20, 30)
#: The service token.
TOKEN = "dashboard-service-token"


class Dashboard(Site):
    """A site without nginx: Redis, and one replica whose service_token is TOKEN."""

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
        """Do nothing. Subclasses change the replica's settings here, before it starts."""

    def api(self, method, path, body=None):
        """Call the service API. Return the JSON body of the response."""
        return call(method, f"{self.ops[0]}/v1{path}", TOKEN, body)

    def open(self, page, address):
        """Log in, and open the view of the dashboard at `address`. Return the page."""
        view(log_in(self, page, "Night shift"), address)
        return page

    def page(self, room):
        """Return the URL of a room's waiting page on the edge listener."""
        return f"{self.edges[0]}/_waitroom/{room}/?next=/"

    def line(self, room):
        """Return the ids of all waiting visitors of a room, in order."""
        rows = self.admin("GET", f"/rooms/{room}/waiting")["waiting"]
        return [row["visitor"] for row in rows]


class WithHistory(Dashboard):
    """A site whose replica records the history of its rooms in an SQLite file."""

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


def write_past(site, room, minutes, more=lambda _: {}):
    """Write a room's samples of the `minutes` before those that it has, as
    rooms/lua/parts/minutes.lua would have. `more` returns further fields of the sample of so many
    minutes ago."""
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        key = room_key(room, "minutes")
        # A site that has run for some minutes has several.
        wait_until(lambda: store.llen(key) > 0, "the first sample")
        first = json.loads(store.lindex(key, -1))["minute"] - 1
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
                **more(ago),
            }
            for ago in range(minutes)
            if ago not in GAP
        ]
        store.rpush(key, *(json.dumps(row, separators=(",", ":")) for row in rows))


def send_log_in(page, url, name="Night shift", token=ADMIN_TOKEN):
    """Open the dashboard at an ops listener's URL, and submit the log-in form."""
    page.goto(f"{url}/dashboard")
    page.get_by_label("Who are you?").fill(name)
    page.get_by_label(re.compile("[Aa]dmin token")).fill(token)
    press(page, "Log in")


def log_in(site, page, name):
    """Log in to the dashboard, and wait until it receives live updates. Return the page."""
    send_log_in(page, site.ops[0], name)
    expect(page.locator("#link")).to_have_text("Live")
    return page


def view(page, address):
    """Open the dashboard's view at `address`, unless the page already shows it."""
    page.evaluate("to => { if (location.hash !== to) location.hash = to }", f"#/{address}")


def numbers(ids):
    """Return the visitor numbers that the dashboard shows for these visitor ids."""
    return [visitor_number(visitor) for visitor in ids]


def room(page, name):
    """Open a room's view. Return the element that shows the room."""
    view(page, f"rooms/{name}")
    return page.locator(f"#room-{name}")


def log(page):
    """Open the view of the operators' log. Return the element that shows it."""
    view(page, "log")
    return page.locator("#log")


def overview(page):
    """Open the view of all rooms. Return the element that shows it."""
    view(page, "")
    return page.locator("#overview")


def control(page, name, kind):
    """Open a room's view. Return its control of this kind, such as the form for the cap."""
    return room(page, name).locator(f"[data-control={kind}]")


def figure(page, name, kind):
    """Open a room's view. Return the element that shows a figure, such as the number waiting."""
    return room(page, name).locator(f"[data-f={kind}]")


def said(page, name, kind):
    """Open a room's view. Return the element that shows the result of a control."""
    return control(page, name, kind).locator("output")


def is_waiting(site, guest):
    """Open the waiting page of the room `line`. Return True if the visitor has to wait."""
    guest.goto(site.page("line"))
    return guest.locator("html").get_attribute("data-state") == "waiting"


def press(within, name):
    """Press the first button with this name in a page or element."""
    within.get_by_role("button", name=name).first.click()


def confirm(page, name, *, typed=None):
    """Press a button of the confirmation dialog. Return the dialog's text."""
    dialog = page.locator("#ask")
    expect(dialog).to_be_visible()
    text = dialog.locator("#ask-text").inner_text()
    if typed is not None:
        dialog.get_by_role("textbox").fill(typed)
    press(dialog, name)
    if typed is None:
        expect(dialog).to_be_hidden()
    return text


def choose(row, action):
    """Choose an action in the menu of a table row."""
    press(row, "Actions")
    row.get_by_role("menuitem", name=action).click()


def move(page, row, where, *, why="", then="Move"):
    """Open the dialog that moves the visitor of a row, fill it in, and press the button `then`."""
    choose(row, "Move")
    question = page.locator("#move")
    question.get_by_role("radio", name=where).check()
    question.get_by_label("Why?").fill(why)
    press(question, then)
