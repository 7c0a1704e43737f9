"""SIGHUP to running replicas behind nginx: no request is lost, and each replica takes its file."""

import json
import re
import signal
import threading
import time

import pytest

from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import Site

CAP = 20


@pytest.fixture
def site():
    rooms = {
        "shop": {"total_active_users": CAP, "heartbeat_interval": 1, "poll_limit": 100_000},
        "tickets": {"total_active_users": CAP},
    }
    with Site(rooms=rooms, replicas=2) as site:
        yield site


def write(site, number, cap):
    """Write another cap of both rooms into a replica's file."""
    file = site.folder / f"replica-{number}.toml"
    text = file.read_text()
    new = file.with_suffix(".new")  # no replica reads half of a file
    new.write_text(re.sub(r"^(total_active_users) = .*", rf"\1 = {cap}", text, flags=re.MULTILINE))
    new.replace(file)


def events(site, number):
    """Return the log's reloads of a replica."""
    lines = site.replicas[number].output.splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in entries if entry["event"].startswith("reload")]


def reload(site, number):
    before = len(events(site, number))
    site.replicas[number].signal(signal.SIGHUP)
    wait_until(lambda: len(events(site, number)) > before, "a reload", of=site.replicas[number])
    return events(site, number)[-1]


def caps(site, number):
    rooms = site.admin("GET", "/rooms", replica=number)["rooms"]
    return [room["settings"]["total_active_users"] for room in rooms]


class Traffic:
    """Visitors who come, stay and wait, and nginx' questions to each replica without nginx, which
    would ask another replica if one closed a connection."""

    def __init__(self, site):
        self.site, self.wrong, self.number = site, [], 0
        self._over = threading.Event()
        inside = Visitor(site.url)
        inside.hold("/")
        acts = [lambda: self.stay(inside), self.come, self.wait, self.ask, self.ask]
        self._threads = [threading.Thread(target=self.repeat, args=[act]) for act in acts]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def repeat(self, act):
        while not self._over.is_set():
            try:
                self.number += 1
                if found := act():
                    self.wrong.append(found)
            except Exception as error:  # noqa: BLE001 - a lost request
                self.wrong.append(repr(error))

    def stay(self, visitor):
        reply = visitor.get("/")
        return (reply.status, reply.waits) != (200, False) and f"inside: {reply.status}"

    def come(self):
        reply = Visitor(self.site.url).get("/")
        return (reply.status, reply.waits) not in {(200, False), (503, True)} and f"{reply.status}"

    def wait(self):
        visitor = Visitor(self.site.url)
        visitor.get("/")
        reply = visitor.get("/_waitroom/shop/status", headers={"Accept": JSON})
        return reply.status != 200 and f"poll: {reply.status} {reply.text}"

    def ask(self):
        edge = self.site.edges[self.number % 2]
        status = Visitor(edge).get("/check", headers={"X-Waitroom-Room": "shop"}).status
        return status not in {204, 401} and f"check: {status}"


def test_no_request_is_lost_by_reloads_under_traffic(site):
    """Many SIGHUPs to both replicas, with a new file each time and two in a row; a change at run
    time stays all the while."""
    site.admin("PATCH", "/rooms/shop", {"session_duration": 777})
    pids = [replica.pid for replica in site.replicas]
    with Traffic(site) as traffic:
        for turn in range(30):
            for number in (0, 1):
                write(site, number, CAP + turn % 5)
                site.replicas[number].signal(signal.SIGHUP)
                if turn % 3:
                    site.replicas[number].signal(signal.SIGHUP)
            time.sleep(0.05)
        for number in (0, 1):
            write(site, number, CAP + 4)
            reload(site, number)
        assert traffic.number > 100
    assert traffic.wrong == []
    assert [replica.pid for replica in site.replicas if replica.running] == pids
    for number in (0, 1):
        assert caps(site, number) == [CAP + 4, CAP + 4]
        assert {entry["event"] for entry in events(site, number)} == {"reloaded"}
    room = site.room("shop")
    assert room["changed"] == {"session_duration": 777}
    assert room["active"] == CAP + 4
    assert room["waiting"] > 0


def test_replicas_with_other_files_keep_to_the_greater_cap(site):
    """After the reload of one, each applies its own file. In no interleaving more are inside."""
    write(site, 0, CAP + 5)
    with Traffic(site) as traffic:
        wait_until(lambda: site.room("shop")["active"] == CAP, "a full room")
        assert reload(site, 0)["needs_restart"] == []
        assert (caps(site, 0), caps(site, 1)) == ([CAP + 5] * 2, [CAP] * 2)
        wait_until(lambda: site.room("shop")["active"] == CAP + 5, "the greater cap")
        # The lower cap of the other replica sends nobody out.
        time.sleep(2)
        assert site.room("shop")["active"] == CAP + 5
        write(site, 1, CAP + 5)
        reload(site, 1)
        assert caps(site, 1) == [CAP + 5] * 2
    assert traffic.wrong == []


def test_a_file_with_a_mistake_keeps_the_old_settings(site):
    """Of both rooms, though one of them is right; and the replica goes on."""
    file = site.folder / "replica-0.toml"
    right = file.read_text()
    write(site, 0, CAP + 1)
    wrong = file.read_text().replace("[rooms.tickets]", "[rooms.tickets]\nsesion_duration = 3")
    for text in (wrong, "rooms = [", right.replace(f"= {CAP}", "= -1", 1)):
        file.write_text(text)
        said = reload(site, 0)
        assert (said["event"], said["level"]) == ("reload_refused", "error")
        assert caps(site, 0) == [CAP, CAP]
    file.unlink()
    assert "cannot be read" in reload(site, 0)["problems"][0]
    file.write_text(right)
    assert reload(site, 0)["taken"] == []
