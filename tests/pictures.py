"""Makes the pictures of the README and the documentation: python -m tests.pictures [NAME …]

The waiting page and the seat are those of the demo, with a crowd. The dashboard's pictures are of a
busy site, whose last hour is written into Redis, and of a job system with a real target.
"""

import argparse
import json
import math
import random
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import redis
from playwright.sync_api import Browser, Page, expect

from sidecar.rooms.redis_keys import room_key
from tests.support.browser import open_browser
from tests.support.dashboard import WithHistory, log_in, send_log_in, view
from tests.support.processes import free_port, wait_until
from tests.support.site import ROOT, Servers, make_folder
from tests.support.works import JobSystem

CROWD = 60
#: The caps of the rooms on the dashboard, and how many visitors come.
ROOMS = {"tickets": (40, 72), "clinic": (12, 15), "login": (60, 25), "museum": (10, 14)}
TARGETS = {"images": {"concurrency": 10, "rate": 20}, "bank": {"rate": 5, "retries": 0}}


class Demo(Servers):
    """The demo, with a crowd that waits for the shop."""

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        port = free_port()
        self.url = f"http://localhost:{port}"
        demo = self.run("demo", [sys.executable, str(ROOT / "demo/run.py"), "--port", str(port)])
        wait_until(lambda: "The shop is open" in demo.output, "the demo", of=demo, timeout_s=120)
        crowd = ["--url", self.url, "--visitors", str(CROWD), "--stay", "5"]
        self.crowd = self.run("crowd", [sys.executable, str(ROOT / "demo/crowd.py"), *crowd])


def take_demo() -> None:
    with Demo() as demo, open_browser() as browser:
        first, second = open_page(browser, 1000, 760), open_page(browser, 1000, 760)
        for page in (first, second):
            page.goto(f"{demo.url}/seats/3/")
        expect(second.locator("html")).to_have_attribute("data-state", "waiting")
        take(second, "seat")
        # Those in front of the page's visitor end the visits that an estimate needs.
        wait_until(lambda: re.search(r"waiting +[45]\d", demo.crowd.output), "the crowd")
        page = open_page(browser, 1000, 760)
        page.goto(demo.url)
        # An estimate needs some visits that have ended.
        expect(page.locator("#wait")).to_contain_text("about", timeout=300_000)
        take(page, "waiting-page", is_whole=True)


def take_dashboard() -> None:
    presale = {"name": "presale", "opens_at": int((time.time() + 25 * 3600) * 1000)}
    rooms: dict[str, dict[str, Any]] = {
        name: {"total_active_users": cap} for name, (cap, _) in ROOMS.items()
    }
    rooms["presale"] = {"total_active_users": 60, "events": json.dumps([presale])}
    with WithHistory(rooms=rooms) as site, open_browser() as browser:
        site.admin("POST", "/rooms/museum/pause")
        for name, (_, visitors) in ROOMS.items():
            for _ in range(visitors):
                site.arrive(name)
        if time.time() % 60 > 40:  # the next sample would not go on where this hour ends
            time.sleep(61 - time.time() % 60)
        for name, (cap, visitors) in ROOMS.items():
            write_hour(site, name, cap, max(0, visitors - cap))
        page = log_in(site, open_page(browser, 1280, 800), "Ada")
        page.locator("#overview tr").nth(len(ROOMS)).wait_for()
        page.wait_for_timeout(2000)
        take(page, "dashboard-overview")
        page.set_viewport_size({"width": 1280, "height": 1120})
        view(page, "rooms/tickets")
        page.locator("#room-tickets .charts img, #room-tickets .charts [role=img]").first.wait_for()
        page.wait_for_timeout(2000)
        take(page, "dashboard")


def write_hour(site: WithHistory, room: str, cap: int, now_waiting: int) -> None:
    """Write a room's samples of the last hour: a rush that began 50 minutes ago."""
    chance = random.Random(room)
    joined = admitted = given_up = waiting = 0
    rows = []
    this_minute = int(time.time() // 60)
    for minute in range(60):
        arrivals = round(cap * 1.2 * math.exp(-(minute - 10) / 14)) if minute >= 10 else cap // 9
        arrivals += chance.randrange(3)
        let_in = min(waiting + arrivals, cap // 3)
        gone = chance.randrange(2) if waiting else 0
        waiting = max(0, waiting + arrivals - let_in - gone)
        waiting = max(waiting, now_waiting) if minute > 12 else waiting
        joined, admitted, given_up = joined + arrivals, admitted + let_in, given_up + gone
        wait_ms = round(waiting / (cap / 3) * 60_000)
        band = max(1, min(20, wait_ms // 60_000 + 6)) if wait_ms else 0
        totals = {"joined": joined, "admitted": admitted, "left_waiting": given_up}
        rows.append({
            "minute": this_minute - 59 + minute, "waiting": waiting, "active": min(cap, let_in * 3),
            "cap": cap, "wait_ms": wait_ms, "totals": totals | {f"wait_{band}": admitted},
        })  # fmt: skip
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        key = room_key(room, "minutes")
        wait_until(lambda: store.llen(key) >= 1, "the first sample")
        store.delete(key)
        texts = [json.dumps(row, separators=(",", ":")) for row in reversed(rows)]
        store.rpush(key, *texts)


def take_jobs() -> None:
    with JobSystem(TARGETS, runners=1) as works:
        orders = [{"target": "images", "path": f"ok/{n}"} for n in range(40)]
        orders += [{"target": "images", "path": "status/404"} for _ in range(4)]
        orders += [{"target": "bank", "path": "ok", "query": {"seconds": "0.3"}} for _ in range(12)]
        works.wait_for([job.id for job in works.submit_all(orders)])
        with open_browser() as browser:
            page = open_page(browser, 1280, 1100)
            send_log_in(page, works.urls[0], "Ada")
            page.get_by_role("link", name="Targets").click()
            page.wait_for_timeout(2000)
            take(page, "dashboard-jobs")


PICTURES: dict[str, Callable[[], None]] = {
    "demo": take_demo,
    "dashboard": take_dashboard,
    "jobs": take_jobs,
}


def open_page(browser: Browser, width: int, height: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, locale="en-GB")
    page.set_default_timeout(60_000)
    return page


def take(page: Page, name: str, *, is_whole: bool = False) -> None:
    page.screenshot(path=ROOT / "docs" / f"{name}.png", full_page=is_whole)
    print(f"docs/{name}.png", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[*PICTURES, []])
    for name in parser.parse_args().name or PICTURES:
        PICTURES[name]()


if __name__ == "__main__":
    main()
