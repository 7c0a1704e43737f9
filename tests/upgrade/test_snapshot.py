"""What the version before left behind goes on under this one: its configuration, its Redis, its
databases, its cookies, its API.

make_snapshot.py made the snapshot. Its times are moved to the present, as if that version had been
stopped a second ago.
"""

import dataclasses
import json
import re
import sqlite3
import subprocess
import threading
import time
from contextlib import ExitStack, closing
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from sidecar.visitors.tokens import Tokens
from tests.support.processes import WAITROOM, Process, free_port, wait_until
from tests.support.redis_servers import RedisServer
from tests.support.site import answers
from tests.upgrade.make_snapshot import ADMIN, LIMITS, SECRET, Site, Target, describe

SNAPSHOT = Path(__file__).parent / "snapshot"
MADE = json.loads((SNAPSHOT / "made.json").read_text())
#: A moment, in ms or µs.
_MOMENT = re.compile(r"(?<!\w)(\d{13}|\d{16})(?!\w)")
_MONTH_MS = 31 * 86_400_000
#: Parameters that were deprecated, and removed before the first release.
_WITHDRAWN = {"hold", "offset"}


class Shift:
    """Moves what is a moment near that of the snapshot, and leaves other numbers alone."""

    def __init__(self) -> None:
        self.ms = (time.time_ns() // 1_000_000 - MADE["at_ms"]) // 1000 * 1000

    def __call__(self, text: str) -> str:
        return _MOMENT.sub(self._move, text)

    def _move(self, match: re.Match[str]) -> str:
        unit = 1 if len(match[0]) == 13 else 1000
        is_near = abs(int(match[0]) // unit - MADE["at_ms"]) < _MONTH_MS
        return str(int(match[0]) + self.ms * unit) if is_near else match[0]

    def cookie(self, text: str) -> str:
        """This version reads what the other signed, and signs it anew for the present."""
        name, _, value = text.partition("=")
        before = Tokens("shop", [SECRET], _clock(MADE["at_ms"]))
        token = before.read(value)
        assert token, f"this version does not understand {value}"
        fields = {
            field.name: int(self(str(old)))
            for field in dataclasses.fields(token)
            if isinstance(old := getattr(token, field.name), int)
        }
        after = Tokens("shop", [SECRET], _clock(MADE["at_ms"] + self.ms))
        return f"{name}={after.write(dataclasses.replace(token, **fields))}"


def _clock(now_ms: int) -> SimpleNamespace:
    return SimpleNamespace(now_ms=lambda: now_ms)


class Upgraded(Site):
    """This version, started with what the other left."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        edge, ops = free_port(), free_port()
        super().__init__(edge, ops)
        server = stack.enter_context(RedisServer())
        target = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Target))
        threading.Thread(target=target.serve_forever, daemon=True).start()
        stack.callback(target.shutdown)
        self.config = folder / "waitroom.toml"
        text = (SNAPSHOT / "waitroom.toml").read_text()
        given = {"store": server.url, "edge": edge, "ops": ops, "folder": folder}
        for word, value in {**given, "target": target.server_port}.items():
            text = text.replace(f"@{word}@", str(value))
        self.config.write_text(text)
        shift = Shift()
        self.cookies = {name: shift.cookie(one) for name, one in MADE["cookies"].items()}
        with redis.Redis.from_url(server.url) as store:
            for line in (SNAPSHOT / "redis.jsonl").read_text().splitlines():
                store.execute_command(*map(shift, map(str, json.loads(line))))
        for database in ("history", "jobs"):
            with closing(sqlite3.connect(folder / f"{database}.db")) as connection:
                connection.executescript(shift((SNAPSHOT / f"{database}.sql").read_text()))
        self.shift = shift
        options = ["--config", str(self.config)]
        replica = Process([WAITROOM, "serve", *options], log=folder / "replica.log")
        stack.enter_context(replica)
        url = f"http://127.0.0.1:{ops}/readyz"
        wait_until(lambda: answers(url), "the replica", 120, of=replica)
        runner = Process([WAITROOM, "run-jobs", *options], log=folder / "runner.log")
        stack.enter_context(runner)

    def status(self, name: str) -> dict[str, object]:
        _, self.cookies[name], document = self.visit("/_waitroom/shop/status", self.cookies[name])
        return document

    def check(self, name: str) -> int:
        return self.visit("/check", self.cookies[name])[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with ExitStack() as stack:
        yield Upgraded(stack, tmp_path_factory.mktemp("upgraded"))


def test_the_configuration_is_understood(site):
    """By check-config, which names what it does not know."""
    subprocess.run([WAITROOM, "check-config", "--config", str(site.config)], check=True, timeout=60)


def test_everybody_keeps_their_place(site):
    """Sessions go on, those that ended stay ended, the queue is in its order, and the cap holds.
    One test, because each step is the next one's beginning."""
    assert {name: site.check(name) for name in ("inside", "claimed")} == {
        "inside": 204,
        "claimed": 204,
    }
    assert {site.check("left"), site.check("released")} == {401}
    assert [site.status(name)["position"] for name in ("first", "second")] == [1, 2]
    assert site.status("called")["state"] == "admitted"
    _, site.cookies["newcomer"], _ = site.visit("/check")
    assert site.status("newcomer")["position"] == 5  # behind the two whose sessions had ended
    room = site.ask("GET", "/admin/rooms/shop", token=ADMIN)
    assert room["active"] == 3

    site.visit("/_waitroom/shop/leave", site.cookies["inside"], "POST")
    state = "waiting"
    while state != "admitted":  # the session of whoever left ends with the verdicts about it
        time.sleep(2)
        state = site.status("first")["state"]
    assert site.status("second")["position"] == 1
    assert site.check("inside") == 401


def test_what_was_changed_at_run_time_stays(site):
    """The room's message, a key's own limit, a target that is paused."""
    assert site.status("second")["message"] == "Back in ten minutes"
    values = site.ask("GET", "/v1/limits/token_bucket/values", token=ADMIN)
    assert "bob" in json.dumps(values)
    assert site.ask("GET", "/v1/targets/images")["settings"]["paused"]


def test_a_lease_has_its_fencing_number(site):
    """Its holder's is the same, the next holder's is higher, and the line is in its order."""
    fence = int(site.shift(str(MADE["title.one"]["fence"])))
    assert site.ask("POST", "/v1/leases/title/A", {"holder": "one"})["fence"] == fence
    waiting = [
        site.ask("POST", "/v1/leases/title/A", {"holder": holder})["position"]
        for holder in ("two", "three")
    ]
    assert waiting == [1, 2]
    renewed = site.ask("PUT", "/v1/leases/title/A", {"holder": "one", "fence": fence})
    assert renewed["fence"] == fence
    site.ask("DELETE", f"/v1/leases/title/A?holder=one&fence={fence}")
    following = site.ask("POST", "/v1/leases/title/A", {"holder": "two"})
    assert following["state"] == "granted"
    assert following["fence"] > fence
    desk = [
        site.ask("POST", "/v1/leases/desk/1", {"holder": holder})["fence"]
        for holder in ("one", "two")
    ]
    assert desk == [int(site.shift(str(MADE[f"desk.{name}"]["fence"]))) for name in ("one", "two")]


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_has_counted(site, name):
    """Of five calls three were allowed before; of a leaky bucket, the one that may go at once."""
    left = 0 if name == "leaky_bucket" else 2
    assert site.ask("GET", f"/v1/limits/{name}?key=ann")["remaining"] == left
    for number in range(left):
        call = {"key": "ann", "id": f"after-{number}"}
        assert site.ask("POST", f"/v1/limits/{name}/acquire", call)["allowed"]
    with pytest.raises(SystemExit, match="429"):
        site.ask("POST", f"/v1/limits/{name}/acquire", {"key": "ann"})


def test_jobs_that_waited_are_made(site):
    """Results are there, a key names its job, and what waited is called in its order."""
    jobs = MADE["jobs"]
    assert site.ask("GET", f"/v1/jobs/{jobs['done']}/body") == {"number": 0}
    again = {
        "target": "images", "method": "POST", "body": {"number": 1},
        "idempotency_key": "images-1",
    }  # fmt: skip
    assert site.ask("POST", "/v1/jobs", again)["id"] == jobs["waiting"][0]
    found = [site.ask("GET", f"/v1/jobs/{id_}") for id_ in jobs["waiting"]]
    assert [(job["state"], job["position"]) for job in found] == [
        ("pending", 1), ("pending", 2), ("pending", 3),
    ]  # fmt: skip
    site.ask("PATCH", "/v1/targets/images", {"paused": False}, ADMIN)
    ended = [site.ask("GET", f"/v1/jobs/{id_}?wait=30") for id_ in jobs["waiting"]]
    assert [(job["state"], job["result"]["body"]) for job in ended] == [
        ("completed", f'{{"number": {number}}}') for number in (1, 2, 3)
    ]
    starts = [job["started_at"] for job in ended]
    assert starts == sorted(starts)


def test_a_permit_is_still_its_callers(site):
    """An online job that was called is called; when it is done, the next one is."""
    called, following = MADE["jobs"]["online"]
    assert site.ask("GET", f"/v1/jobs/{called}")["permit"]
    assert site.ask("GET", f"/v1/jobs/{following}")["state"] == "pending"
    site.ask("POST", f"/v1/jobs/{called}/done", {})
    assert site.ask("GET", f"/v1/jobs/{following}?wait=30")["permit"]


def test_the_history_goes_on(site):
    """Look-ups find what was written, and the recorder writes on in the same stays."""
    stays = site.ask("GET", "/admin/rooms/shop/stays?from=24h&limit=100", token=ADMIN)
    by_visitor = {stay["visitor"]: stay for stay in stays["stays"]}
    visitors = {name: text.split("~")[1] for name, text in MADE["cookies"].items()}
    assert set(visitors.values()) <= by_visitor.keys()
    changes = site.ask("GET", "/admin/rooms/shop/changes?from=24h", token=ADMIN)
    assert {"release", "change"} <= {change["what"] for change in changes["changes"]}
    path = f"/admin/rooms/shop/visitors/{visitors['left']}/history"
    kinds = [event["kind"] for event in site.ask("GET", path, token=ADMIN)["events"]]
    assert kinds == ["admitted", "left"]

    site.visit("/_waitroom/shop/leave", site.cookies["claimed"], "POST")
    path = f"/admin/rooms/shop/visitors/{visitors['claimed']}/history"
    wait_until(
        lambda: "left" in json.dumps(site.ask("GET", path, token=ADMIN)["events"]), "the recorder"
    )


def test_the_api_has_what_it_had(site):
    """Each endpoint, with each of its parameters and of the fields of a request, but for those that
    were deprecated before the first release."""
    now = describe(site)
    gone = {
        endpoint: missing
        for endpoint, names in MADE["api"].items()
        if (missing := set(names) - _WITHDRAWN - set(now.get(endpoint, []))) or endpoint not in now
    }
    assert gone == {}
