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
    """Moves times near that of the snapshot to the present, and leaves other numbers alone."""

    def __init__(self) -> None:
        self.ms = (time.time_ns() // 1_000_000 - MADE["at_ms"]) // 1000 * 1000

    def __call__(self, text: str) -> str:
        return _MOMENT.sub(self._move, text)

    def _move(self, match: re.Match[str]) -> str:
        unit = 1 if len(match[0]) == 13 else 1000
        is_near = abs(int(match[0]) // unit - MADE["at_ms"]) < _MONTH_MS
        return str(int(match[0]) + self.ms * unit) if is_near else match[0]

    def cookie(self, text: str) -> str:
        """Read a cookie that the other version signed, and sign it again for the present."""
        name, _, value = text.partition("=")
        before, after = (
            Tokens("shop", [SECRET], SimpleNamespace(now_ms=lambda now_ms=now_ms: now_ms))
            for now_ms in (MADE["at_ms"], MADE["at_ms"] + self.ms)
        )
        token = before.read(value)
        assert token, f"this version does not understand {value}"
        fields = {
            field.name: int(self(str(old)))
            for field in dataclasses.fields(token)
            if isinstance(old := getattr(token, field.name), int)
        }
        return f"{name}={after.write(dataclasses.replace(token, **fields))}"


class Upgraded(Site):
    """A replica of this version, started with the data that the other version left."""

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
    """The command check-config accepts the configuration."""
    subprocess.run([WAITROOM, "check-config", "--config", str(site.config)], check=True, timeout=60)


def test_everybody_keeps_their_place(site):
    """Sessions continue or stay ended, the queue is in order, and the cap holds. This is one test,
    because each step needs the one before."""
    assert {site.check("inside"), site.check("claimed")} == {204}
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
    """The room has its message, a key its own limit, and a target is paused."""
    assert site.status("second")["message"] == "Back in ten minutes"
    values = site.ask("GET", "/v1/limits/token_bucket/values", token=ADMIN)
    assert "bob" in json.dumps(values)
    assert site.ask("GET", "/v1/targets/images")["settings"]["paused"]


def test_a_lease_has_its_fencing_number(site):
    """The holder keeps the number, the next holder gets a higher one, and the queue is in order."""

    def ask(holder, lease="title/A"):
        return site.ask("POST", f"/v1/leases/{lease}", {"holder": holder})

    fences = {name: int(site.shift(str(lease["fence"]))) for name, lease in MADE.items()
              if name in {"title.one", "desk.one", "desk.two"}}  # fmt: skip
    fence = fences["title.one"]
    assert ask("one")["fence"] == fence
    assert [ask("two")["position"], ask("three")["position"]] == [1, 2]
    renewed = site.ask("PUT", "/v1/leases/title/A", {"holder": "one", "fence": fence})
    assert renewed["fence"] == fence
    site.ask("DELETE", f"/v1/leases/title/A?holder=one&fence={fence}")
    following = ask("two")
    assert following["state"] == "granted"
    assert following["fence"] > fence
    for holder in ("one", "two"):
        assert ask(holder, "desk/1")["fence"] == fences[f"desk.{holder}"]


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_has_counted(site, name):
    """Three of five calls were allowed before, or the one call of a leaky bucket."""
    left = 0 if name == "leaky_bucket" else 2
    assert site.ask("GET", f"/v1/limits/{name}?key=ann")["remaining"] == left
    for number in range(left):
        call = {"key": "ann", "id": f"after-{number}"}
        assert site.ask("POST", f"/v1/limits/{name}/acquire", call)["allowed"]
    with pytest.raises(SystemExit, match="429"):
        site.ask("POST", f"/v1/limits/{name}/acquire", {"key": "ann"})


def test_jobs_that_waited_are_made(site):
    """Results are stored, a key finds its job, and waiting jobs are called in order."""
    jobs = MADE["jobs"]
    assert site.ask("GET", f"/v1/jobs/{jobs['done']}/body") == {"number": 0}
    again = {"target": "images", "method": "POST", "body": {"number": 1}}
    again["idempotency_key"] = "images-1"
    assert site.ask("POST", "/v1/jobs", again)["id"] == jobs["waiting"][0]
    found = [site.ask("GET", f"/v1/jobs/{id_}") for id_ in jobs["waiting"]]
    assert [(job["state"], job["position"]) for job in found] == [("pending", n) for n in (1, 2, 3)]
    site.ask("PATCH", "/v1/targets/images", {"paused": False}, ADMIN)
    ended = [site.ask("GET", f"/v1/jobs/{id_}?wait=30") for id_ in jobs["waiting"]]
    assert [(job["state"], job["result"]["body"]) for job in ended] == [
        ("completed", f'{{"number": {number}}}') for number in (1, 2, 3)
    ]
    starts = [job["started_at"] for job in ended]
    assert starts == sorted(starts)


def test_a_permit_is_still_its_callers(site):
    """An online job that was called remains called. When it is done, the next one is called."""
    called, following = MADE["jobs"]["online"]
    assert site.ask("GET", f"/v1/jobs/{called}")["permit"]
    assert site.ask("GET", f"/v1/jobs/{following}")["state"] == "pending"
    site.ask("POST", f"/v1/jobs/{called}/done", {})
    assert site.ask("GET", f"/v1/jobs/{following}?wait=30")["permit"]


def test_the_history_goes_on(site):
    """Look-ups find what was recorded, and the recorder continues the same stays."""
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
    wait_until(lambda: "left" in str(site.ask("GET", path, token=ADMIN)["events"]), "the recorder")


def test_the_api_has_what_it_had(site):
    """Each endpoint has its parameters and its fields of requests, but for those that were
    deprecated before the first release."""
    now = describe(site)
    gone = {
        endpoint: missing
        for endpoint, names in MADE["api"].items()
        if (missing := set(names) - _WITHDRAWN - set(now.get(endpoint, []))) or endpoint not in now
    }
    assert gone == {}
