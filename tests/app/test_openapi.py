"""The OpenAPI document is valid and complete, and a replica responds as it says."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

from sidecar.app.openapi.document import build_document
from sidecar.app.routes import Services, create_edge_app, create_ops_app
from sidecar.http.metrics import Metrics
from sidecar.jobs.model import State, make_job_id
from sidecar.jobs.service import Jobs
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.share import find_share
from sidecar.leases.settings import RESOURCE
from sidecar.rooms.schemas.common import VISITOR_ID
from sidecar.rooms.service import WaitingRooms
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.model import Settings
from tests.support.processes import wait_until
from tests.support.site import ADMIN_TOKEN, Site, answers, call, make_folder

#: Paths for people with browsers, which are not part of the API.
PAGES = re.compile(r"/dashboard.*|/_waitroom/static|/_waitroom/\{room\}/")


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    found = set()
    for resource in app.router.resources():
        path = resource.canonical.removesuffix("{visitor_path}")
        if PAGES.fullmatch(path):
            continue
        for route in resource:
            found.add(("get" if route.method == "*" else route.method.lower(), path))
    return {(method, path) for method, path in found if method != "head"}


def operations_of(described: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): item[method]
        for path, item in described["paths"].items()
        for method in ("get", "post", "put", "patch", "delete")
        if method in item
    }


@pytest.fixture(scope="module")
def described():
    return build_document()


def test_it_is_valid(described):
    """It is OpenAPI 3.1, and so are the examples of parameters and bodies."""
    assert list(OpenAPIV31SpecValidator(described).iter_errors()) == []


def test_every_endpoint_is_described_and_no_other(described):
    """The endpoints of both listeners, without those for people with browsers."""
    settings = Settings(secret_keys=["k" * 32], rooms={"shop": RoomSettings(total_active_users=1)})
    services = Services(rooms=WaitingRooms([]), metrics=Metrics(), jobs=cast("Jobs", object()))
    edge = create_edge_app(services, find_share("static"))
    ops = create_ops_app(services, settings, [])
    endpoints = routes_of(edge) | routes_of(ops)
    assert set(operations_of(described)) == endpoints
    # I expect endpoints of both listeners, so that the comparison is not one of empty sets.
    assert {("get", "/check"), ("patch", "/admin/rooms/{room}")} <= endpoints


def test_each_setting_is_described(described):
    """It is described in replies and in requests, in which a duration may also be text."""
    schemas = described["components"]["schemas"]
    assert set(schemas["RoomSettings"]["properties"]) == set(RoomSettings.model_fields)
    assert set(schemas["Changes"]["properties"]) == set(RoomSettings.model_fields)
    assert "Duration" in json.dumps(schemas["Changes"]["properties"]["session_max_duration"])
    assert "Duration" not in json.dumps(schemas["Changes"]["properties"]["rollout_percent"])
    assert set(schemas["TargetSettings"]["properties"]) == set(TargetSettings.model_fields)
    assert set(schemas["TargetChanges"]["properties"]) == set(TargetSettings.model_fields)


# A replica that runs ------------------------------------------------------------------------------


class Replica(Site):
    """redis-server and one `waitroom serve` that keeps a history in SQLite."""

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        self._settings["history"] = f"sqlite:///{self.folder}/history.db"
        self._settings["jobs"] = f"sqlite:///{self.folder}/jobs.db"
        self._settings["webhooks.team.url"] = "http://127.0.0.1:1/"
        # On a busy machine, Redis may be slow without being unavailable.
        self._settings["store_timeout"] = 10
        self._start_redis()
        self._start_replica(0)
        wait_until(lambda: answers(f"{self.ops[0]}/readyz"), "the replica")
        for room in self.rooms:
            for _ in range(PEOPLE):
                self.join(room)
        seen = f"/rooms/shop/visitors/{self.people('shop')[0]}/history"
        wait_until(lambda: self.finds(seen), "the history")
        wait_until(self.has_tables, "the tables of jobs")
        for name, settings in TARGETS.items():
            self.program("PATCH", f"/targets/{name}", settings)
        self.jobs = [self.program("POST", "/jobs", order)["id"] for order in ORDERS]
        for id_ in self.jobs[-2:]:
            self.program("DELETE", f"/jobs/{id_}")
        called = f"/jobs/{self.jobs[0]}?wait=10"
        assert self.program("GET", called)["state"] == State.CALLED

    def has_tables(self) -> bool:
        try:
            return self.program("GET", "/targets") == {"targets": []}
        except urllib.error.HTTPError:
            return False

    def program(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to /v1/ with the admin token. Return the response's document."""
        return call(method, f"{self.ops[0]}/v1{path}", ADMIN_TOKEN, body)

    def join(self, room: str) -> str:
        """Let a newcomer join a room. Return the cookie."""
        request = urllib.request.Request(f"{self.edges[0]}/_waitroom/{room}/join", method="POST")
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.headers["Set-Cookie"]).partition(";")[0]

    def people(self, room: str) -> list[str]:
        """Return the ids of the visitors in the queue and of those inside."""
        lists = [
            self.admin("GET", f"/rooms/{room}/{kind}")[kind] for kind in ("waiting", "sessions")
        ]
        return [person["visitor"] for found in lists for person in found]

    def finds(self, path: str) -> bool:
        try:
            return bool(self.admin("GET", path))
        except urllib.error.HTTPError:
            return False


PEOPLE = 5
#: Settings with which no visitor is removed, although none polls.
KEPT = {"total_active_users": 2, "heartbeat_timeout": 7200, "claim_window": 3600}
#: One to look at, one for operators to change, one in which they move visitors about, one for
#: visitors to come and go, one that is open.
ROOMS = {
    "shop": KEPT,
    "spare": KEPT,
    "stage": KEPT,
    "hall": {**KEPT, "poll_limit": 5},
    "open": {**KEPT, "suspended": True},
}
#: Seats that some find taken, and whose line is full soon; a limit that a call or two reach, where
#: nobody waits for long.
LEASES = {"seat": {"term": "1h", "max_waiting": 2}}
LIMITS = {
    "pay": {
        "algorithm": "leaky_bucket", "key": "{biz}", "limit": 1000, "window": "1s",
        "on_exceed": "pace", "max_wait": "0.2s",
    }
}  # fmt: skip
#: One to look at and to submit to, one to change. No runner runs; an online job is called at once,
#: and those behind it wait, but for the last two, which are cancelled.
TARGETS: dict[str, dict[str, Any]] = {
    "images": {
        "url": "http://127.0.0.1:1/", "private": True, "concurrency": 1, "claim_window": 3600,
        "max_pending": 50,
    },
    "spare": {"kinds": ["online"]},
}  # fmt: skip
ORDERS = [{"target": "images", "kind": kind} for kind in ("online", *(["offline"] * 4))]
#: What a change takes a forecast takes, by the same code.
FORECAST = ("total_active_users", "queue_all", "new_users_per_minute", "classes", "message")
#: A setting of each kind. With all of them nearly every change is refused, whatever its odd value.
CHANGE = (
    *FORECAST, "session_duration", "queueing_method", "rollout_percent", "exempt_paths", "lines",
    "events",
)  # fmt: skip
SOME = ("url", "kinds", "headers", "paused", "rate", "window", "algorithm", "classes")
#: What schemathesis is told beside the document.
CONFIG = """
continue-on-failure = true

# Rules between settings, and between a file and the room that it goes to, are no part of a schema.
[[operations]]
include-operation-id = [
    "changeRoom", "forecastChange", "importRoom", "listStays", "getReport", "listChanges",
    "listEstimates",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 422, 503]

# Which fields a key has, how long it may be, and that a list is not held, is no part of it either.
[[operations]]
include-operation-id = ["lookAtLimit", "acquireLimit", "releaseLimit"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 404, 422, 429]

[[operations]]
include-operation-id = ["takeLease"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 429]

# What a target allows, and the rules between its settings, are no part of it either.
[[operations]]
include-operation-id = [
    "submitJob", "submitJobs", "retryJob", "changeTarget", "listJobs", "retryJobs", "cancelJobs",
    "listFailureReasons",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 403, 404, 409, 422, 429]

# A delivery is known by an id that nobody can guess, and a test names a room that there is.
[[operations]]
include-operation-id = ["resendDelivery", "sendTest"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 404, 409]

# No random token is a link, and no link is signed here.
[[operations]]
include-operation-id = ["showClaim", "takeClaim"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 303, 400, 404, 410]

# They answer every method alike; and a 503 is how most rooms say that one has to wait.
[[operations]]
include-operation-id = ["check", "gate"]
checks.unsupported_method.enabled = false
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""


@pytest.fixture(scope="module")
def replica():
    with Replica(rooms=ROOMS, leases=LEASES, limits=LIMITS) as started:
        yield started


def test_it_is_served(replica, described):
    """Everybody who reaches the ops listener gets the document."""
    with urllib.request.urlopen(f"{replica.ops[0]}/openapi.json", timeout=5) as answer:
        assert answer.headers.get_content_type() == "application/json"
        assert answer.headers["Cache-Control"] == "max-age=300"
        assert json.load(answer) == described


def like(pattern: str, *known: str) -> dict[str, Any]:
    """Return the schema of a name: one that exists, or any that matches the pattern."""
    return {"anyOf": [{"enum": [*known]}, {"type": "string", "pattern": pattern}]}


OWN = {
    "resource": like("^" + RESOURCE.pattern.replace(r"\Z", "$"), "1", "2"),
    "key": like("^[!-~]{1,256}$", "refund"),
}


def aimed(described: dict[str, Any], replica: Replica) -> dict[str, Any]:
    """Return the document with the names of rooms and visitors that exist, because random names
    would be unknown."""
    aimed = json.loads(json.dumps(described))
    people = {room: replica.people(room) for room in ROOMS}
    for (method, path), operation in operations_of(aimed).items():
        visitors_own = path.startswith(("/_waitroom/", "/gate/"))
        room = "hall" if visitors_own else "shop" if method == "get" else "spare"
        room = "stage" if path.endswith("/move") else room
        own = operation.setdefault("parameters", [])
        if "{room}" in path:
            own.append(in_path("room", {"enum": [room]}))
        if "{visitor}" in path:
            anybody = {"type": "string", "pattern": VISITOR_ID}
            own.append(in_path("visitor", {"anyOf": [{"enum": people[room]}, anybody]}))
        if "{webhook}" in path:
            own.append(in_path("webhook", {"enum": ["team"]}))
        if "/jobs/{id}" in path:
            # What has not ended would be waited for.
            ids = replica.jobs[:1] + replica.jobs[-2:] if method == "get" else replica.jobs[1:-2]
            own.append(in_path("id", {"enum": [*ids, make_job_id()]}))
        targets = ["images"] if method == "get" else ["spare"]
        named = targets if path.startswith("/v1/targets") else LIMITS
        schemas_of_names = {"template": {"enum": [*LEASES]}, "name": {"enum": [*named]}, **OWN}
        for name, schema in schemas_of_names.items():
            if f"{{{name}}}" in path:
                own.append(in_path(name, schema))
    for asked in aimed["paths"]["/check"]["get"]["parameters"]:
        if asked["name"] == "X-Waitroom-Room":
            asked["schema"] = {"enum": ["hall", "open"]}
    narrow(aimed)
    return aimed


def narrow(aimed: dict[str, Any]) -> None:
    """Leave out what takes long, and what would be tested often without a new result."""
    # What is tried again would be waited for; to cancel many reads the same.
    del aimed["paths"]["/v1/jobs/bulk/retry"]
    for path in ("/v1/leases/{template}/{resource}", "/v1/jobs/bulk/results"):
        for method in {"get", "post"} & aimed["paths"][path].keys():
            operation = aimed["paths"][path][method]
            operation["parameters"] = [
                each for each in operation["parameters"] if each.get("name") != "wait"
            ]
    # Every call names the field that the limit's key has.
    called = aimed["components"]["schemas"]["LimitFields"]
    called |= {
        "properties": {"biz": {"type": "string", "minLength": 1, "maxLength": 256}},
        "required": ["biz"],
        "additionalProperties": False,
    }
    schemas = aimed["components"]["schemas"]
    schemas["SubmitJob"]["properties"]["target"] = {"enum": ["images"]}
    # One setting of each kind is enough.
    changes = schemas["TargetChanges"]["properties"]
    schemas["TargetChanges"]["properties"] = {name: changes[name] for name in SOME}
    changes = schemas["Changes"]["properties"]
    schemas["Changes"]["properties"] = {name: changes[name] for name in CHANGE}
    schemas["FewChanges"] = {**schemas["Changes"], "properties": {
        name: changes[name] for name in FORECAST
    }}  # fmt: skip
    forecast = aimed["paths"]["/admin/rooms/{room}/forecast"]["post"]
    for body in forecast["requestBody"]["content"].values():
        body["schema"] = {"$ref": "#/components/schemas/FewChanges"}


def in_path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def fuzz(
    folder: Path, document: dict[str, Any], url: str, *more: str, phases: str = "coverage,fuzzing"
) -> None:
    """Send `url` requests that the document allows and others. Fail with the output of schemathesis
    if a response is not as the document says."""
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"), "--config-file",
            "schemathesis.toml", "run", "openapi.json", "--url", url, "--no-color",
            # Deterministic: the same requests each time.
            "--generation-deterministic", "--max-examples", "10",
            "--phases", phases, *more,
        ],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


OPERATORS = [f"--include-tag={tag}" for tag in (
    "operations", "administration", "history", "leases", "limits", "jobs", "targets", "webhooks",
)]  # fmt: skip
VISITORS = ["--include-tag=visitor", "--include-tag=proxy"]


@pytest.mark.full
@pytest.mark.timeout(660)  # as long as it may take beside others
def test_operators_get_what_is_described(replica, described, tmp_path):
    """Whatever is sent to the ops listener: no server error, nothing undescribed, nothing wrong
    let through. (Ten wrong tokens would close the way; test_rights.py asks everywhere with one.)"""
    more = ["-H", f"Authorization: Bearer {ADMIN_TOKEN}", "--exclude-checks", "ignored_auth"]
    fuzz(tmp_path, aimed(described, replica), replica.ops[0], *more, *OPERATORS)


@pytest.mark.full
@pytest.mark.timeout(660)
def test_visitors_and_proxies_get_what_is_described(replica, described, tmp_path):
    """Whatever is sent to the edge listener, by somebody new and by somebody in line."""
    document, edge = aimed(described, replica), replica.edges[0]
    fuzz(tmp_path, document, edge, *VISITORS)
    cookie = f"Cookie: {replica.join('hall')}"
    fuzz(tmp_path, document, edge, *VISITORS, "-H", cookie, phases="fuzzing")


#: A change that is allowed.
NOTHING = b'{"message": null}'
#: What no generator comes upon: method, path, headers, body; and the status that is right.
ODD = {
    "more digits than Python reads": ("GET", "/shop/waiting?limit=" + "9" * 5000, {}, b"", 422),
    "longer ago than there are dates": ("GET", "/shop/stays?from=99999999d", {}, b"", 200),
    "later than there are dates": ("GET", "/shop/report?to=9999-12-31T23:59-23:00", {}, b"", 200),
    "no gzip": ("PATCH", "/spare", {"Content-Encoding": "gzip"}, NOTHING, 400),
    "no charset": ("PATCH", "/spare", {"Content-Type": "text/plain; charset=x"}, NOTHING, 400),
    "half a character": ("PATCH", "/spare", {}, b'{"message": "\\ud800"}', 422),
    "a number beyond doubles": ("PATCH", "/spare", {}, b'{"max_waiting": %s}' % (b"9" * 400), 422),
    "the same in a file": ("POST", "/spare/import", {}, b'{"kind": "waiting", "exported_at_ms": 0,'
        b'"rows": [["AAAAAAAAAAAAAAAAAAAAAA", 1, %s]]}' % (b"9" * 400), 422),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_requests_of_operators_are_no_server_errors(replica, what):
    """They are refused with the right status, or understood."""
    method, path, headers, body, status = ODD[what]
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", **headers}
    assert ask(f"{replica.ops[0]}/admin/rooms{path}", method, headers, body) == status


#: Numbers and times that Python has, and a database, a script or a datetime does not.
OUT_OF_RANGE = (
    2**63, 2**64, -(2**63) - 1, 10**400, 1e300, "99999999999999h", "9999-12-31T23:59:59-12:00",
)  # fmt: skip
NAMES = {"room": "spare", "webhook": "team", "template": "seat", "resource": "1", "key": "refund"}


def find_members(operation: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, str]]:
    """Return where an operation takes values ("query" or "body"), and their names."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    query = [each["name"] for each in operation.get("parameters", []) if each.get("in") == "query"]
    return [("query", name) for name in query] + [
        ("body", name) for name in schema.get("properties", {})
    ]


@pytest.mark.full
def test_no_value_of_a_caller_is_an_outage(replica, described):
    """Whatever is too large for a database, a script or a clock is refused, or understood: no
    server error, least of all that the database does not answer."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
    asked, outages = 0, []
    for (method, path), operation in operations_of(described).items():
        if not {f"--include-tag={tag}" for tag in operation["tags"]} & {*OPERATORS}:
            continue
        own = "images" if path.startswith("/v1/targets") else "pay"
        names = {**NAMES, "name": own, "id": replica.jobs[-1], "visitor": "A" * 22}
        url = replica.ops[0] + re.sub(
            r"{(\w+)}", lambda found, of=names: of.get(found[1], "1"), path
        )
        for where, name in find_members(operation, described["components"]["schemas"]):
            for value in OUT_OF_RANGE:
                query = urllib.parse.urlencode({name: value}) if where == "query" else ""
                members = {name: value} if where == "body" else {}
                given = {"target": "images"} if operation["operationId"] == "submitJob" else {}
                body = json.dumps({**given, **members}).encode() if method != "get" else b""
                status = ask(f"{url}?{query}", method.upper(), headers, body)
                asked += 1
                if status >= 500:
                    outages.append((method, path, name, str(value)[:40], status))
    assert outages == []
    # I expect the walk to have found them.
    assert asked > 500


@pytest.mark.parametrize("name", ["X-Forwarded-Uri", "X-Original-URI", "X-Original-Method"])
def test_a_header_that_is_no_text_is_no_server_error(replica, name):
    """The gate responds with the waiting page, as to any other request."""
    assert ask(f"{replica.edges[0]}/gate/hall", "GET", {name: "/\xff"}, b"") == 503


def test_a_body_that_cannot_be_unpacked_is_no_server_error(replica):
    """Browsers never compress a form, such as this one of a visitor."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
    url = f"{replica.edges[0]}/_waitroom/hall/leave"
    assert ask(url, "POST", {**form, "Content-Encoding": "gzip"}, b"next=/") == 400


def ask(url: str, method: str, headers: dict[str, str], body: bytes) -> int:
    request = urllib.request.Request(url, body or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
