"""Jobs and targets as programs and operators see them: the doors of two replicas, with a worker
and a target behind them."""

import base64
import hashlib
import hmac
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_server import Received, Response, serve
from tests.support.processes import wait_until
from tests.support.target import PART
from tests.support.works import JobSystem, SubmittedJob, sign_grant

SECRET = "a-secret-for-callbacks"
#: Bytes of an answer that a job's document holds.
INLINE = 65_536
MAX_PENDING = 3
GOLD = {"class": "gold"}


class Receiver:
    """A receiver of callbacks. Each path is answered with what its last part says, the first time;
    then with 200."""

    def __init__(self) -> None:
        self.came: list[Received] = []
        self.url = ""

    def of(self, path: str) -> list[Received]:
        return [came for came in self.came if came.path == f"/hooks/{path}"]

    def respond(self, came: Received) -> Response:
        is_first = all(earlier.path != came.path for earlier in self.came)
        self.came.append(came)
        status = int(came.path.rpartition("/")[2]) if is_first else 200
        return status, b"", {"Location": f"{self.url}elsewhere/200"} if status == 302 else {}


class Place:
    """What the tests of this file share. `early` was submitted first, for what takes some seconds
    to happen."""

    def __init__(self, works: JobSystem, receiver: Receiver) -> None:
        self.works, self.receiver = works, receiver
        self.shop, self.press = works.caller("shop"), works.caller("press", replica=1)
        self.service, self.operator = works.caller(), works.caller("operator", replica=1)
        url = receiver.url
        self.early = {
            "expired": self.shop.submit(target="short", callback_url=f"{url}expired/200"),
            "later": self.shop.submit(target="images", path="ok/1", callback_url=f"{url}later/503"),
            "moved": self.shop.submit(target="images", path="ok/1", callback_url=f"{url}moved/302"),
            "dead": self.shop.submit(target="images", path="close", callback_url=f"{url}dead/200"),
        }


@pytest.fixture(scope="module")
def receiver():
    receiver = Receiver()
    with serve(receiver.respond) as url:
        receiver.url = f"{url}/hooks/"
        yield receiver


@pytest.fixture(scope="module")
def place(receiver):
    images = {
        "methods": ["GET", "POST", "PUT"], "retries": 1, "retry_delay": "50ms",
        "headers": {"X-Key": "the-key-of-the-target"}, "max_body": 2000, "max_result": 300_000,
        "classes": {"gold": {"priority": 2}, "silver": {"head_start": "1m"}},
        "callback_urls": [receiver.url], "callback_secret": SECRET, "break_after": 1000,
    }  # fmt: skip
    targets = {
        "images": images,
        "still": {"paused": True},
        "strict": {"callback_urls": [receiver.url], "callback_secret": SECRET},
        "lax": {"fail_on": []},
        "writes": {"methods": ["GET", "POST"], "paused": True},
        "posts": {"methods": ["POST"]},
        "crowded": {"paused": True, "max_pending": MAX_PENDING},
        "shy": {"delete_after_read": True, "result_ttl": "1h"},
        "patient": {"abort": True, "concurrency": 1, "expected_seconds": 7},
        "short": {"paused": True, "pending_ttl": "1s", "callback_urls": [receiver.url],
                  "callback_secret": SECRET},
        "permits": {"kinds": ["online"], "concurrency": 1},
    }  # fmt: skip
    scopes = '[scopes]\nservice = ["jobs", "classes"]\n'
    with JobSystem(targets, replicas=2, runners=1, more=scopes) as works:
        yield Place(works, receiver)


# Whose jobs they are ------------------------------------------------------------------------------


def test_a_caller_sees_its_own_jobs_alone(place):
    """What belongs to another is as if it were not there. An operator sees and cancels all."""
    sent = place.shop.submit(target="still", path="ok/mine")
    path = f"/jobs/{sent.id}"
    doors = [("GET", path), ("GET", f"{path}/body"), ("DELETE", path),
             ("POST", f"{path}/retry"), ("POST", f"{path}/done")]  # fmt: skip
    for method, door in doors:
        theirs = place.press.call(method, door)
        nobodys = place.press.call(method, door.replace(sent.id, "A" * 22))
        assert (theirs.status, nobodys.status) == (404, 404), door
        assert theirs.json == {**nobodys.json, "detail": theirs.json["detail"]}
        assert theirs.json["detail"].replace(sent.id, "A" * 22) == nobodys.json["detail"]
    assert place.shop.job(sent.id)["owner"] == "shop"
    for caller, sees in ((place.shop, True), (place.press, False), (place.operator, True)):
        found = caller.call("GET", "/jobs?target=still&limit=1000").json["jobs"]
        assert (sent.id in {job["id"] for job in found}) is sees
    assert place.operator.job(sent.id)["owner"] == "shop"
    assert place.operator.call("DELETE", path).json["state"] == "cancelled"
    assert place.shop.job(sent.id)["state"] == "cancelled"


# The same job again -------------------------------------------------------------------------------


def test_a_key_names_one_job(place):
    """However often it is submitted, in the body or in the header, at any replica."""
    order = {"target": "still", "path": "ok/once", "body": None}
    first = place.shop.submit(**order, idempotency_key="once")
    for key in ("once", '"once"'):
        for body in (order, order | {"idempotency_key": "once"}):
            other = place.works.caller("shop", replica=1)
            again = other.call("POST", "/jobs", body, headers={"Idempotency-Key": key})
            assert (again.status, again.json["id"]) == (200, first.id)


def test_two_keys_name_no_job(place):
    """Nobody could tell which of them the caller repeats the request by."""
    order = {"target": "still", "path": "ok/two-keys", "idempotency_key": "one-key"}
    answer = place.shop.call("POST", "/jobs", order, headers={"Idempotency-Key": "another-key"})
    assert (answer.status, answer.json["code"]) == (422, "invalid_request")
    [error] = answer.json["errors"]
    assert error == "idempotency_key: 'one-key', and the header Idempotency-Key is 'another-key'"
    for key in ("one-key", "another-key"):  # neither was used for a job
        assert place.shop.call("POST", "/jobs", order | {"idempotency_key": key}).status == 202


@pytest.mark.parametrize(
    ("first", "again", "is_same"),
    [
        ({"body": {"a": 1, "b": {"c": [1, 2], "d": "ü"}}},
         {"body": {"b": {"d": "ü", "c": [1, 2]}, "a": 1}}, True),
        ({"body": {"a": 1}}, {"body": {"a": 1.0}}, True),
        ({"body": [{"a": 1, "b": 2}]}, {"body": [{"b": 2, "a": 1}]}, True),
        ({"query": {"a": 1, "b": ["x", "y"]}}, {"query": {"b": ["x", "y"], "a": 1}}, True),
        ({"headers": {"A": "1", "B": "2"}}, {"headers": {"B": "2", "A": "1"}}, True),
        ({"body": {"a": 1}, "query": {"a": 1, "b": 2}},
         {"query": {"b": 2, "a": 1}, "body": {"a": 1}}, True),
        ({"body": {"a": 1}}, {"body": {"a": True}}, False),
        ({"body": {"a": 1}}, {"body": {"a": "1"}}, False),
        ({"body": {"a": 1}}, {"body": {"a": 1, "b": None}}, False),
        ({"body": [1, 2]}, {"body": [2, 1]}, False),
        ({"body": {"a": 1}}, {"body": "x"}, False),
        ({"query": {"a": ["x", "y"]}}, {"query": {"a": ["y", "x"]}}, False),
        ({"body": {"a": 1, "b": 2}, "headers": {"A": "1"}}, {"body": {"b": 2, "a": 1}}, False),
        ({}, {"path": "ok/2"}, False), ({}, {"query": "a=1"}, False),
        ({}, {"headers": {"A": "b"}}, False), ({}, {"method": "POST", "body": "x"}, False),
        ({}, {"target": "images"}, False),
    ],
)  # fmt: skip
def test_a_key_compares_jobs_by_value(place, first, again, is_same):
    """Not by the order of members, which no program promises to keep."""
    order = {"target": "writes", "path": "ok/1", "idempotency_key": f"value-{id(first)}"}
    sent = place.shop.submit(**order, **first)
    answer = place.works.caller("shop", replica=1).call("POST", "/jobs", order | again)
    said = answer.json["id"] if answer.status == 200 else answer.json["code"]
    assert said == (sent.id if is_same else "idempotency_key_used")


def test_a_key_names_its_job_when_the_queue_is_full_and_the_grant_is_spent(place):
    """Whoever did not hear the answer asks again, and is told the same."""
    full(place)
    order = {"target": "crowded", "idempotency_key": f"k{MAX_PENDING}"}
    [job, *_] = place.shop.call("GET", "/jobs?target=crowded&limit=1").json["jobs"]
    again = place.shop.call("POST", "/jobs", order)
    assert (again.status, again.json["id"]) == (200, job["id"])
    order = {"target": "images", "path": "ok/spent", "idempotency_key": "spent", "class": "gold",
             "grant": sign_grant("images", "gold", id_="one-job")}  # fmt: skip
    sent = place.shop.submit(**order)
    again = place.shop.call("POST", "/jobs", order)
    assert (again.status, again.json["id"]) == (200, sent.id)


# What is refused ----------------------------------------------------------------------------------


def full(place: Place) -> None:
    for number in range(1, MAX_PENDING + 1):
        order = {"target": "crowded", "idempotency_key": f"k{number}"}
        assert place.shop.call("POST", "/jobs", order).status in {200, 202}


def test_a_full_queue_takes_no_more(place):
    """429 says when to ask again; who gives up makes room."""
    full(place)
    refused = place.press.call("POST", "/jobs", {"target": "crowded"})
    assert refused.status == 429, refused
    assert int(refused.headers["Retry-After"]) > 0
    assert "max_pending" in refused.json["detail"]
    first = place.shop.call("GET", "/jobs?target=crowded&state=pending").json["jobs"][-1]
    place.shop.call("DELETE", f"/jobs/{first['id']}")
    sent = place.press.submit(target="crowded")
    assert sent.document["position"] == MAX_PENDING
    place.press.call("DELETE", f"/jobs/{sent.id}")


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({}, "target: is needed"),
        ({"target": 7}, "target: a string"),
        ({"target": "images", "priority": 9}, "priority: is what a class has"),
        ({"target": "images", "colour": "red"}, "colour: unknown member"),
        ({"target": "images", "kind": "sideways"}, "kind: offline or online"),
        ({"target": "permits", "kind": "offline"}, "kind: online"),
        ({"target": "permits", "path": "x"}, "path: not of an online job"),
        ({"target": "images", "method": "DELETE"}, "method: GET or POST or PUT"),
        ({"target": "images", "path": "/ok"}, "path: write it without /"),
        ({"target": "images", "path": "../admin"}, "path: may not have"),
        ({"target": "images", "path": "http://other/"}, "path: may not have"),
        ({"target": "images", "query": {"a": None}}, "query: a text, or an object"),
        ({"target": "images", "headers": {"Host": "other"}}, "Host is written by the worker"),
        ({"target": "images", "headers": {"A": "b\r\nC: d"}}, "the value of A"),
        ({"target": "images", "headers": []}, "headers: an object"),
        ({"target": "images", "body": "x" * 2001}, "body: at most 2,000 bytes"),
        ({"target": "images", "body": {"n": "x" * 2000}}, "body: at most 2,000 bytes"),
        ({"target": "images", "body": "x", "body_base64": "eA=="}, "either this or body_base64"),
        ({"target": "images", "body_base64": "not base64"}, "body_base64: is not base64"),
        ({"target": "images", "body": "\ud800"}, "body: has characters"),
        ({"target": "images", "idempotency_key": "a b"}, "idempotency_key: 1 to 128"),
        ({"target": "images", "idempotency_key": ""}, "idempotency_key: 1 to 128"),
        ({"target": "images", "callback_url": "http://127.0.0.1/hooks/"}, "callback_url: not one"),
        ({"target": "still", "callback_url": "http://still/hooks/"}, "callback_url: not one"),
        ({"target": "still", "run_at": "tomorrow"}, "run_at: write a date, a time and its zone"),
        ({"target": "still", "run_at": "2026-12-01T10:00"}, "run_at: write a date, a time and its"),
        ({"target": "still", "run_at": 1_800_000_000}, "run_at: write a date, a time and its"),
        ({"target": "still", "run_at": "2199-01-01T00:00Z"}, "run_at: at most 366 days ahead"),
        ({"target": "still", "delay": -1}, "delay: a number from 0 to 31622400 (got -1)"),
        ({"target": "still", "delay": 31_622_401}, "delay: a number from 0 to 31622400"),
        ({"target": "still", "delay": "90"}, "delay: a number from 0 to 31622400 (got '90')"),
        ({"target": "still", "delay": 1, "run_at": "2026-12-01T10:00Z"}, "delay: either this or"),
    ],
)
def test_what_is_wrong_with_an_order_is_said(place, order, says):
    answer = place.shop.call("POST", "/jobs", order)
    assert answer.status == 422, answer
    assert any(says in problem for problem in answer.json["errors"]), answer.json["errors"]


def test_many_are_submitted_at_once(place):
    """Each as if it came alone: with a key one job, and refused by itself."""
    key = {"target": "still", "path": "many", "idempotency_key": "many-1"}
    jobs = [
        {"target": "still"}, key, key, {**key, "path": "other"}, {"target": "still", "class": "x"},
        *({"target": "crowded"} for _ in range(MAX_PENDING + 1)),
    ]  # fmt: skip
    answer = place.press.call("POST", "/jobs/bulk/submit", {"jobs": jobs})
    assert answer.status == 202
    ids = answer.json["ids"]
    full = [refused["index"] for refused in answer.json["refused"][2:]]
    assert ids[1] == ids[2]
    assert [n for n, id_ in enumerate(ids) if id_ is None] == [3, 4, *full]
    assert [refused["code"] for refused in answer.json["refused"]] == [
        "idempotency_key_used", "grant_needed", *["queue_full"] * len(full)
    ]  # fmt: skip
    assert len(full) >= 1
    again = place.press.call("POST", "/jobs/bulk/submit", {"jobs": [key]})
    assert again.json["ids"] == [ids[1]]
    taken = list({id_ for id_ in ids if id_})
    assert place.press.call("POST", "/jobs/bulk/cancel", {"ids": taken}).json["skipped"] == []


@pytest.mark.parametrize("has_keys", [True, False])
def test_many_are_in_the_order_in_which_they_were_sent(place, has_keys):
    jobs: list[dict[str, str]] = [{"target": "still"} for _ in range(100)]
    for number, job in enumerate(jobs if has_keys else ()):
        job["idempotency_key"] = f"in-order-{number}"
    ids = place.press.call("POST", "/jobs/bulk/submit", {"jobs": jobs}).json["ids"]
    found = place.press.call("GET", "/jobs?target=still&state=pending&limit=1000").json["jobs"]
    positions = {job["id"]: job["position"] for job in found}
    assert [positions[id_] for id_ in ids] == sorted(positions[id_] for id_ in ids)
    place.press.call("POST", "/jobs/bulk/cancel", {"ids": ids})


def test_of_many_with_one_that_is_wrong_none_is_submitted(place):
    """All that is wrong is named, with its index."""
    before = place.press.call("GET", "/jobs?target=still").json["jobs"]
    jobs = [{"target": "still"}, {"target": "nix"}, {"target": "still", "path": "../a", "delay": 1}]
    answer = place.press.call("POST", "/jobs/bulk/submit", {"jobs": jobs})
    assert answer.status == 422
    assert [error.partition(": ")[0] for error in answer.json["errors"]] == [
        "jobs.1.target", "jobs.2.path"
    ]  # fmt: skip
    for wrong, says in [
        ([], "jobs"), ([{"target": "still"}] * 101, "jobs"), ([{"path": "x"}], "jobs.0.target"),
        ([{"target": "still", "delay": -1}], "jobs.0.delay"), ({}, "jobs"),
    ]:  # fmt: skip
        answer = place.press.call("POST", "/jobs/bulk/submit", {"jobs": wrong})
        assert answer.status == 422
        assert answer.json["errors"][0].startswith(f"{says}: "), answer.json
    assert place.press.call("GET", "/jobs?target=still").json["jobs"] == before


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ({"target": "images", "path": "../x", "method": "DELETE", "priority": 3},
         ["method", "path", "priority"]),
        ({"target": "images", "path": "../x", "colour": "red", "idempotency_key": "a b",
          "headers": {"Host": "x"}, "callback_url": "ftp://x/", "query": "?a"},
         ["callback_url", "colour", "headers", "idempotency_key", "path", "query"]),
        ({"target": "nowhere", "priority": 3, "headers": []}, ["headers", "priority", "target"]),
        ({"path": "../x", "priority": 3}, ["priority", "target"]),
        ({"target": 7, "priority": 3}, ["priority", "target"]),
        # What depends on a member that cannot be read is not judged.
        ({"target": "images", "kind": "sideways", "path": "../x"}, ["kind"]),
        ({"target": "posts", "body_base64": 5}, ["body_base64"]),
        ({"target": "posts", "body_base64": 5, "method": "GET"}, ["body_base64", "method"]),
        ({"target": "images", "priority": None, "path": "/ok"}, ["path"]),
    ],
)  # fmt: skip
def test_a_member_that_cannot_be_read_hides_no_other_problem(place, order, named):
    """Each is named once."""
    answer = place.shop.call("POST", "/jobs", order)
    assert answer.status == 422, answer
    assert sorted(error.partition(":")[0] for error in answer.json["errors"]) == named


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"[]", 422), (b"7", 422), (b"\xff", 400), (b"[" * 100_000, 400),
     (b" " * 300_000, 413)],
)  # fmt: skip
def test_what_is_no_object_or_too_large_is_refused(place, body, status):
    assert place.shop.call("POST", "/jobs", body).status == status


@pytest.mark.parametrize(
    "path",
    ["/jobs?state=lost", "/jobs?limit=0", "/jobs?limit=1001", "/jobs?limit=x", "/jobs?after=x",
     "/jobs?after=1.", "/jobs?whose=all", "/jobs/{id}?wait=61", "/jobs/{id}?wait=-1",
     "/jobs/{id}?wait=soon"],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_is_refused(place, path):
    answer = place.shop.call("GET", path.format(id=place.early["later"].id))
    assert (answer.status, bool(answer.json["errors"])) == (422, True), answer


@pytest.mark.parametrize(
    ("who", "status", "given", "says"),
    [
        ("shop", 403, {"class": "gold"}, "needs a grant"),
        ("shop", 403, {"class": "gold", "grant": "gold.9999999999.." + "0" * 64}, "forged"),
        ("shop", 403, {"class": "gold", "grant": sign_grant("other", "gold")}, "forged"),
        ("shop", 403, {**GOLD, "grant": sign_grant("images", "gold", kind="room")}, "forged"),
        ("shop", 403, {**GOLD, "grant": sign_grant("images", "gold", kind="")}, "outdated"),
        ("shop", 403, {**GOLD, "grant": sign_grant("images", "gold", life_s=-1)}, "expired"),
        ("shop", 403, {"class": "gold", "grant": "please"}, "malformed"),
        ("shop", 403, {"class": "gold", "grant": sign_grant("images", "silver")}, "for silver"),
        ("shop", 403, {"grant": sign_grant("images", "bronze")}, "no class bronze"),
        ("service", 422, {"class": "bronze"},
         "class: images has none of this name; it has gold, silver"),
        ("service", 422, {"target": "still", "class": "gold"},
         "class: still has none of this name; it has"),
        # A grant that is sent is checked all the same.
        ("service", 403, {"class": "gold", "grant": sign_grant("other", "gold")}, "forged"),
        ("service", 403, {"class": "gold", "grant": sign_grant("images", "silver")}, "for silver"),
    ],
)  # fmt: skip
def test_a_class_needs_a_grant_that_covers_it(place, who, status, given, says):
    """Or a token with the scope, which gives no class that there is not."""
    answer = getattr(place, who).call("POST", "/jobs", {"target": "images", **given})
    assert answer.status == status, answer
    assert says in "".join(answer.json.get("errors", [answer.json.get("detail", "")]))


def test_a_token_with_the_scope_chooses_a_class_without_a_grant(place):
    """So does an operator. The job is the same one when its submission is repeated."""
    given = {"target": "images", "path": "ok/1", "class": "gold", "idempotency_key": "trusted"}
    for caller in (place.service, place.operator):
        job = caller.submit(**given)
        assert job.document["class"] == "gold"
        again = caller.call("POST", "/jobs", given)
        assert (again.status, again.json["id"]) == (200, job.id)


def test_a_grant_with_an_id_is_for_one_job(place):
    given = {"target": "images", "path": "ok/1", "grant": sign_grant("images", "gold", id_="once")}
    assert place.shop.submit(**given).document["class"] == "gold"
    answer = place.shop.call("POST", "/jobs", given)
    assert (answer.status, "used" in answer.json["detail"]) == (403, True), answer


# How a job stands ---------------------------------------------------------------------------------


def test_a_job_that_waits_knows_its_place(place):
    """And how long it may wait, by what is expected of a call as long as none was measured; the
    answer to the submission says where to look."""
    runs = begun(place, "patient", "never")
    answers = [place.shop.call("POST", "/jobs", {"target": "patient"}) for _ in range(2)]
    for number, answer in enumerate(answers, start=1):
        document = answer.json
        assert (answer.status, answer.headers["Location"]) == (202, f"/v1/jobs/{document['id']}")
        assert (document["state"], document["position"]) == ("pending", number)
        assert document["wait_seconds"] == 7 * number
        assert document["created_at"] < document["expires_at"]
        looked = place.shop.call("GET", f"/jobs/{document['id']}")
        assert looked.json == document
        assert looked.headers["Cache-Control"] == "no-store"
    for answer in answers:
        place.shop.call("DELETE", f"/jobs/{answer.json['id']}")
    place.shop.call("DELETE", f"/jobs/{runs.id}")
    assert place.shop.job(runs.id, wait_s=20)["state"] == "cancelled"


def test_nobody_knows_how_long_a_paused_target_is_waited_for(place):
    sent = place.shop.submit(target="still", path="ok/1")
    assert sent.document["position"] > 0
    assert sent.document["wait_seconds"] is None


def test_a_job_is_called_as_it_was_asked_for(place):
    """Its target hears what the caller said, the target's own headers, the job and the attempt."""
    sent = place.shop.submit(
        target="images", method="put", path="ok/a%20b", query={"q": ["1", 2], "r": "é"},
        headers={"X-Mine": "yes", "X-Key": "mine"}, body={"size": 3},
    )  # fmt: skip
    job = place.shop.job(sent.id, wait_s=20)
    assert (job["state"], job["attempts"], job["result"]["status"]) == ("completed", 1, 200)
    heard = json.loads(job["result"]["body"])
    assert (heard["method"], heard["path"]) == ("PUT", "/ok/a%20b?q=1&q=2&r=%C3%A9")
    assert json.loads(heard["body"]) == {"size": 3}
    expected = {"X-Mine": "yes", "X-Key": "the-key-of-the-target", "Idempotency-Key": sent.id,
                "X-Waitroom-Attempt": "1", "Content-Type": "application/json"}  # fmt: skip
    assert expected.items() <= heard["headers"].items()
    assert job["result"]["headers"]["x-target"] == "bad"
    assert "set-cookie" not in job["result"]["headers"]
    assert job["created_at"] <= job["started_at"] <= job["ended_at"] < job["expires_at"]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}


@pytest.mark.parametrize("by", ["header", "field"])
def test_a_trace_goes_on_to_the_target_and_the_callback(place, by):
    """The headers of the submission, or those that the job names; unchanged in each try, and in the
    worker's log lines about the job."""
    order = {"target": "images", "path": "close", "callback_url": f"{place.receiver.url}{by}/503"}
    named = {"headers": {"Traceparent": TRACED["traceparent"], "Tracestate": "vendor=1"}}
    submitted = TRACED if by == "header" else {"traceparent": TRACED["traceparent"][:-1] + "0"}
    job = place.shop.call(
        "POST", "/jobs", order | ({} if by == "header" else named), headers=submitted
    ).json
    assert job["trace_id"] == TRACE
    assert place.shop.job(job["id"], wait_s=20)["state"] == "failed"
    wait_until(lambda: len(place.receiver.of(f"{by}/503")) == 2, "the callback's retry")
    for came in place.receiver.of(f"{by}/503"):
        assert {name: came.headers[name] for name in TRACED} == TRACED
    [runner] = place.works.runners
    lines = [json.loads(line) for line in runner.output.splitlines() if job["id"] in line]
    assert {line["event"] for line in lines} >= {"attempt_failed", "callback_retried"}
    assert {line["trace_id"] for line in lines} == {TRACE}


def test_each_try_has_the_trace(place):
    """Of a retried job, and of a job whose caller gave all headers that a job may have."""
    headers = {f"X-{number}": "1" for number in range(64)}
    order = {"target": "images", "path": "flaky", "query": "times=1", "headers": headers}
    sent = place.shop.call("POST", "/jobs", order, headers=TRACED).json
    job = place.shop.job(sent["id"], wait_s=20)
    assert (job["state"], job["attempts"]) == ("completed", 2), job
    heard = json.loads(job["result"]["body"])["headers"]
    assert {name: heard.get(name, heard.get(name.title())) for name in TRACED} == TRACED


def test_a_malformed_trace_is_dropped(place):
    """The job goes on without it, as W3C Trace Context says."""
    order = {"target": "images", "path": "ok/untraced"}
    bad = {"traceparent": TRACED["traceparent"].upper(), "tracestate": "vendor=1"}
    sent = place.shop.call("POST", "/jobs", order, headers=bad).json
    job = place.shop.job(sent["id"], wait_s=20)
    assert (job["state"], job["trace_id"]) == ("completed", None)
    heard = json.loads(job["result"]["body"])["headers"]
    assert not {name.lower() for name in heard} & {*TRACED}


def test_a_key_names_one_job_in_another_trace(place):
    """A retry by a caller has a span, and perhaps a trace, of its own. The first one stays."""
    order = {"target": "still", "path": "ok/1", "idempotency_key": "traced"}
    first = place.shop.call("POST", "/jobs", order, headers=TRACED)
    other = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}
    again = place.shop.call("POST", "/jobs", order, headers=other)
    assert (first.status, again.status) == (202, 200)
    assert again.json["id"] == first.json["id"]
    assert again.json["trace_id"] == TRACE


def test_an_online_job_keeps_its_trace(place):
    """For its callback; its caller makes the call."""
    order = {"target": "permits", "kind": "online"}
    sent = place.shop.call("POST", "/jobs", order, headers=TRACED).json
    assert sent["trace_id"] == TRACE
    place.shop.call("DELETE", f"/jobs/{sent['id']}")


@pytest.mark.parametrize("size", [0, INLINE, INLINE + 1, 290_000])
def test_a_result_is_whole_whatever_its_size(place, size):
    """Small ones come with the job's document, in base64 where they are no text; all at /body."""
    sent = place.shop.submit(target="images", path="huge", query=f"bytes={size}")
    result = place.shop.job(sent.id, wait_s=20)["result"]
    whole = (PART * (size // len(PART) + 1))[:size]
    assert result["size"] == size
    told = result.get("body")
    if "body_base64" in result:
        told = base64.b64decode(result["body_base64"])
    assert told == (None if size > INLINE else whole or "")
    answer = place.shop.call("GET", result["body_url"].removeprefix("/v1"))
    assert (answer.status, answer.body) == (200, whole)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Type"] == "application/octet-stream"


# Cancelled, tried again ---------------------------------------------------------------------------


def begun(place: Place, target: str, path: str, **request: str) -> SubmittedJob:
    """A job whose call has reached its target. In state processing it may still be put back: its
    worker was too slow to call."""
    before = place.works.target.open()
    sent = place.shop.submit(target=target, path=path, **request)
    wait_until(lambda: place.works.target.open() > before, "the call")
    return sent


def test_a_call_is_cut_off_where_its_target_allows_it(place):
    sent = begun(place, "patient", "never")
    answer = place.shop.call("DELETE", f"/jobs/{sent.id}")
    assert (answer.status, answer.json["aborting"]) == (202, True)
    job = place.shop.job(sent.id, wait_s=20)
    assert (job["state"], job["attempts"], job["result"]) == ("cancelled", 1, None)

    def notes() -> list[Any]:
        return [n["status"] for n in place.works.target.calls() if n["job"] == sent.id]

    wait_until(lambda: notes() == [None], "the end of the call")


def test_a_call_is_not_cut_off_elsewhere(place):
    sent = begun(place, "images", "slow", query="seconds=2")
    assert place.shop.call("DELETE", f"/jobs/{sent.id}").status == 409
    assert place.shop.job(sent.id, wait_s=20)["state"] == "completed"


def test_a_job_that_waits_is_cancelled(place):
    """Twice is the same as once, also in the docs; a job that has ended otherwise is a 409."""
    sent = place.shop.submit(target="still", path="ok/1")
    for _ in range(2):
        answer = place.shop.call("DELETE", f"/jobs/{sent.id}")
        assert (answer.status, answer.json["state"]) == (200, "cancelled")
    job = place.shop.job(sent.id)
    assert (job["state"], job["position"], job["attempts"]) == ("cancelled", None, 0)
    ended = place.shop.submit(target="images", path="ok/1")
    assert place.shop.job(ended.id, wait_s=20)["state"] == "completed"
    answer = place.shop.call("DELETE", f"/jobs/{ended.id}")
    assert (answer.status, "completed" in answer.json["detail"]) == (409, True)
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    assert "200: the job is cancelled; a repeated request also gets 200." in page


def test_a_job_that_failed_is_tried_again(place):
    """With all of its tries: two, and its target fails three times."""
    sent = place.shop.submit(target="images", path="flaky", query="times=3&how=503")
    first = place.shop.job(sent.id, wait_s=20)
    assert (first["state"], first["attempts"]) == ("failed", 2)
    assert "503" in first["error"]
    again = place.shop.call("POST", f"/jobs/{sent.id}/retry")
    assert (again.status, again.json["id"]) == (202, sent.id)
    job = place.shop.job(sent.id, wait_s=20)
    assert (job["state"], job["attempts"], job["error"]) == ("completed", 4, None)


def test_an_answer_that_is_a_failure_is_kept(place):
    """Whatever is no 2xx: it was called once, and the answer may say why. Lists, the callback and
    the target's figures say the same."""
    before = place.shop.target("strict")["counters"]
    for status in (404, 302, 500):
        url = f"{place.receiver.url}strict-{status}/200"
        sent = place.shop.submit(target="strict", path=f"status/{status}", callback_url=url)
        job = place.shop.job(sent.id, wait_s=20)
        assert (job["state"], job["status"], job["attempts"]) == ("failed", status, 1)
        assert job["error"].startswith(f"the target says {status}")
        said = f"the target's own {status}"
        assert (job["result"]["status"], job["result"]["body"]) == (status, said)
        body = place.shop.call("GET", f"/jobs/{sent.id}/body")
        assert (body.status, body.body) == (200, said.encode())
        query = f"/jobs?target=strict&status={status}&limit=1000&state="
        failed, completed = (
            {each["id"] for each in place.shop.call("GET", query + state).json["jobs"]}
            for state in ("failed", "completed")
        )
        assert (sent.id in failed, completed) == (True, set())
        path = f"strict-{status}/200"
        wait_until(lambda path=path: bool(place.receiver.of(path)), "the callback")
        came = place.receiver.of(path)[0]
        assert came.headers["X-Waitroom-Event"] == "job_failed"
        document = json.loads(came.body)
        assert (document["state"], document["status"]) == ("failed", status)
    counters = place.shop.target("strict")["counters"]
    assert counters["failed"] == before.get("failed", 0) + 3
    assert counters.get("completed", 0) == before.get("completed", 0)


def test_only_what_has_ended_is_tried_again(place):
    waits = place.shop.submit(target="still", path="ok/1")
    for change in ("retry", "done"):  # its worker says when it is done
        assert place.shop.call("POST", f"/jobs/{waits.id}/{change}").status == 409
    place.shop.call("DELETE", f"/jobs/{waits.id}")
    again = place.shop.call("POST", f"/jobs/{waits.id}/retry")
    assert (again.status, again.json["state"]) == (202, "pending")
    assert again.json["position"] == place.shop.target("still")["waiting"]


# Lists --------------------------------------------------------------------------------------------


def test_lists_are_paged_newest_first(place):
    """No page has what another one has; filters hold for all of them."""
    token = place.works.caller("press")
    sent = [token.submit(target="still", path=f"ok/{n}").id for n in range(7)]
    token.call("DELETE", f"/jobs/{sent[3]}")
    expected = [id_ for id_ in reversed(sent) if id_ != sent[3]]
    found, after = [], ""
    while True:
        page = token.call("GET", f"/jobs?target=still&state=pending&limit=4{after}").json
        found += [job["id"] for job in page["jobs"] if job["id"] in sent]
        assert {(job["state"], job["owner"]) for job in page["jobs"]} == {("pending", "press")}
        if page["next"] is None:
            break
        assert len(page["jobs"]) == 4
        after = f"&after={page['next']}"
    assert found == expected
    assert token.call("GET", "/jobs?target=elsewhere").json == {"jobs": [], "next": None}


# Read, and gone -----------------------------------------------------------------------------------


def test_jobs_are_searched(place):
    """By what the last answer said, how the id begins, and when they came; what is no such thing is
    refused."""
    token = place.works.caller("shop")
    sent = token.submit(target="strict", path="status/418")
    assert token.job(sent.id, wait_s=20)["state"] == "failed"

    def found(query):
        return {job["id"] for job in token.call("GET", f"/jobs?{query}").json["jobs"]}

    for query in ("status=418", "status=4xx&target=strict&from=1m", f"id={sent.id[:6]}",
                  f"id={sent.id}", f"owner=shop&id={sent.id[:6]}&to=now"):  # fmt: skip
        assert sent.id in found(query), query
    for query in ("status=500&target=strict", "to=1h", f"id={sent.id[:6].swapcase()}-"):
        assert sent.id not in found(query), query
    for query, said in (("status=6xx", "status: "), ("from=soon", "from: write a time"),
                        ("owner=press", "owner: the token shop sees only its own"),
                        ("id=%25", "id: "), ("from=99999999999999h", "from: write a time"),
                        ("to=99999999999999h", "to: write a time"),
                        ("to=9999-12-31T23:59:59-12:00", "to: write a time")):  # fmt: skip
        answer = token.call("GET", f"/jobs?{query}")
        assert (answer.status, answer.json["errors"][0].startswith(said)) == (422, True), query


def change(caller, what, **body):
    """All of it, answer by answer."""
    changed, skipped, after = 0, [], ""
    while after is not None:
        answer = caller.call("POST", f"/jobs/bulk/{what}", {**body, "after": after})
        assert answer.status == 200, answer.json
        changed, skipped = changed + answer.json["changed"], skipped + answer.json["skipped"]
        after = answer.json["next"]
    return changed, skipped


def test_many_are_cancelled_and_tried_again(place):
    """By what they have in common, or by their ids; a repeated request changes nothing more, and
    says of each why."""
    token = place.works.caller("shop")
    since = {"target": "still", "from": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    sent = [token.submit(target="still", path=f"ok/bulk-{n}").id for n in range(5)]
    others = place.press.submit(target="still", path="ok/bulk")
    query = {**since, "state": "pending"}
    dry = token.call("POST", "/jobs/bulk/cancel", {**query, "dry_run": True}).json
    assert (dry["changed"] >= 5, dry["skipped"], dry["next"]) == (True, [], None)
    assert {token.job(id_)["state"] for id_ in sent} == {"pending"}
    assert change(token, "cancel", **query) == (dry["changed"], [])
    assert change(token, "cancel", **query) == (0, [])
    assert {token.job(id_)["state"] for id_ in sent} == {"cancelled"}
    assert place.press.job(others.id)["state"] == "pending"
    changed, skipped = change(token, "retry", ids=[*sent[:3], others.id, sent[0]])
    assert (changed, [each["id"] for each in skipped]) == (3, [others.id])
    assert skipped[0]["reason"] == "The job is unknown."
    changed, skipped = change(token, "retry", ids=sent)
    assert (changed, {each["id"] for each in skipped}) == (2, set(sent[:3]))
    assert all("pending" in each["reason"] for each in skipped)
    assert change(place.operator, "cancel", **since)[0] >= 6
    assert place.press.job(others.id)["state"] == "cancelled"


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("retry", {}, "ids: name them"),
        ("retry", {"ids": []}, "ids: "),
        ("retry", {"state": "pending"}, "state: one of cancelled, completed, expired, failed"),
        ("cancel", {"state": "failed"}, "state: one of called, pending, processing"),
        ("cancel", {"target": "still", "after": "x"}, "after: "),
        ("cancel", {"owner": "press"}, "owner: the token shop sees only its own jobs"),
        ("cancel", {"everything": True}, "everything: "),
    ],
)
def test_a_selection_that_is_none_is_refused(place, what, body, said):
    """And nothing is changed."""
    answer = place.shop.call("POST", f"/jobs/bulk/{what}", body)
    assert answer.status == 422, answer.json
    assert any(each.startswith(said) for each in answer.json["errors"]), answer.json


@pytest.mark.parametrize("door", ["", "/body"])
def test_a_result_that_was_read_is_deleted_soon(place, door):
    """It may be read again for a little while: an answer may be lost on its way."""
    sent = place.shop.submit(target="shy", path="ok/1")
    before = until_ended(place, sent)
    first = place.shop.call("GET", f"/jobs/{sent.id}{door}")
    again = place.shop.call("GET", f"/jobs/{sent.id}{door}")
    after = place.shop.job(sent.id)
    assert first.status == again.status == 200
    assert seconds_between(before["ended_at"], before["expires_at"]) == 3600
    assert 15 <= seconds_between(after["ended_at"], after["expires_at"]) <= 120


def until_ended(place: Place, sent: SubmittedJob) -> dict[str, Any]:
    """Looks without reading it, as a list does."""

    def listed() -> dict[str, Any]:
        jobs = place.shop.call("GET", f"/jobs?target={sent.document['target']}").json["jobs"]
        return next(job for job in jobs if job["id"] == sent.id)

    wait_until(lambda: listed()["state"] == "completed", "its end")
    return listed()


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


# Permits ------------------------------------------------------------------------------------------


def test_an_online_job_is_called_and_says_when_it_is_over(place):
    """One at a time: the next is called when the first one is done."""
    first, second = (place.shop.submit(target="permits") for _ in range(2))
    job = place.shop.job(first.id, wait_s=20)
    assert (job["state"], job["kind"], job["result"]) == ("called", "online", None)
    assert job["permit"].startswith("permits~")
    assert job["permit_expires_at"] > job["created_at"]
    assert place.shop.job(second.id)["state"] == "pending"
    assert place.shop.call("POST", f"/jobs/{second.id}/done").status == 409
    for _ in range(2):
        done = place.shop.call("POST", f"/jobs/{first.id}/done")
        assert (done.status, done.json["state"]) == (200, "completed")
    assert place.shop.job(second.id, wait_s=20)["state"] == "called"
    assert place.shop.call("POST", f"/jobs/{second.id}/done").status == 200


# Targets ------------------------------------------------------------------------------------------


def test_targets_are_told_without_their_secrets(place):
    told = place.shop.target("images")
    for document in (told, *place.shop.call("GET", "/targets").json["targets"]):
        assert "the-key-of" not in json.dumps(document)
        assert SECRET not in json.dumps(document)
    assert (told["source"], told["breaker"], told["is_ready"]) == ("file", "closed", True)
    assert told["settings"]["headers"] == {"X-Key": "***"}


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_targets_are_the_operators_to_change(place, method):
    answer = place.shop.call(method, "/targets/still", {"paused": False})
    assert (answer.status, "admin_token" in answer.json["detail"]) == (403, True)


@pytest.mark.parametrize(
    ("name", "change"),
    [("images", {"concurrency": 0}), ("images", {"concurrent": 1}), ("images", {"url": "x"}),
     ("images", {"strict": True, "rate": 0}),
     ("Images", {"url": "http://127.0.0.1:1/"}), ("new", {}), ("images", {"classes": []})],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(place, name, change):
    before = place.operator.target("images")["settings"]
    answer = place.operator.call("PATCH", f"/targets/{name}", change)
    assert (answer.status, bool(answer.json["errors"])) == (422, True), answer
    assert place.operator.target("images")["settings"] == before


def test_a_secret_that_is_given_as_it_is_told_stays(place):
    """A dashboard sends back what it was shown."""
    told = place.operator.target("images")["settings"]
    changed = place.operator.call("PATCH", "/targets/images", {"headers": told["headers"]})
    assert (changed.status, changed.json["source"]) == (200, "run time")
    sent = place.shop.submit(target="images", path="ok/1")
    heard = json.loads(place.shop.job(sent.id, wait_s=20)["result"]["body"])
    assert heard["headers"]["X-Key"] == "the-key-of-the-target"
    restored = place.operator.call("DELETE", "/targets/images").json["target"]
    assert restored["source"] == "file"


def test_a_target_is_made_changed_and_removed_while_all_run(place):
    """At one replica: the other one and the worker know it within moments."""
    url, other = place.works.target.url, place.works.caller("shop", replica=0)
    made = place.operator.call("PATCH", "/targets/made", {"url": url, "private": True})
    assert (made.status, made.json["source"]) == (200, "run time")
    wait_until(lambda: other.call("GET", "/targets/made").status == 200, "the target")
    sent = other.submit(target="made", path="ok/made")
    assert other.job(sent.id, wait_s=20)["state"] == "completed"

    place.operator.call("PATCH", "/targets/made", {"paused": True, "max_pending": 1})
    waiting: list[SubmittedJob] = []

    def one_waits() -> bool:
        """The worker hears of the change, and calls no more."""
        waiting[:] = [other.submit(target="made", path="ok/made")]
        return other.job(waiting[0].id, wait_s=1)["state"] == "pending"

    wait_until(one_waits, "the change")
    assert other.call("POST", "/jobs", {"target": "made"}).status == 429
    place.operator.call("PATCH", "/targets/made", {"paused": False})
    assert other.job(waiting[0].id, wait_s=20)["state"] == "completed"

    assert place.operator.call("DELETE", "/targets/made").json == {"target": None}
    wait_until(lambda: other.call("GET", "/targets/made").status == 404, "its end")
    refused = other.call("POST", "/jobs", {"target": "made"})
    assert (refused.status, refused.json["title"]) == (404, "Unknown target")
    assert other.job(sent.id)["state"] == "completed"


def test_the_history_of_a_target_counts_what_became_of_its_jobs(place):
    """All steps of the time, and the one that has begun, with jobs and with calls."""
    done = place.shop.submit(target="shy", path="ok/1")
    until_ended(place, done)
    steps = place.shop.call("GET", "/targets/shy/history?hours=1").json["steps"]
    assert sum(step["completed"] for step in steps) >= 1
    assert len(steps) == 61
    assert all((step["mean_seconds"] or 0) >= 0 for step in steps)
    assert sum(step["calls_completed"] or 0 for step in steps) >= 1
    reasons = "/jobs/bulk/reasons?"
    assert place.shop.call("GET", reasons + "target=shy").json == {"reasons": [], "jobs": 0}
    [error] = place.shop.call("GET", reasons + "state=pending").json["errors"]
    assert error == "state: failed (got 'pending')"
    assert place.shop.call("GET", "/targets/shy/history?hours=0").status == 422


# What takes some seconds --------------------------------------------------------------------------


def test_a_callback_is_signed_and_says_how_it_ended(place):
    """Completed, failed or expired."""
    for name, state in (("later", "completed"), ("dead", "failed"), ("expired", "expired")):
        id_ = place.early[name].id
        path = place.early[name].order["callback_url"].partition("/hooks/")[2]
        wait_until(lambda path=path: bool(place.receiver.of(path)), f"the callback of {name}")
        came = place.receiver.of(path)[0]
        document = json.loads(came.body)
        job = place.shop.job(id_)
        assert (document["id"], document["state"]) == (id_, state)
        for member in ("target", "attempts", "ended_at"):
            assert document[member] == job[member]
        assert came.headers["X-Waitroom-Event"] == f"job_{state}"
        assert signature(came) == came.headers["X-Waitroom-Signature"]


def signature(came: Received) -> str:
    """As the receiver of a webhook makes it."""
    parts = dict(part.split("=", 1) for part in came.headers["X-Waitroom-Signature"].split(","))
    said = parts["t"].encode() + b"." + came.body
    return f"t={parts['t']},v1={hmac.digest(SECRET.encode(), said, hashlib.sha256).hex()}"


def test_a_callback_follows_no_redirect(place):
    """The address was allowed, and no other one was."""
    wait_until(lambda: bool(place.receiver.of("moved/302")), "the callback")
    assert place.receiver.of("elsewhere/200") == []
