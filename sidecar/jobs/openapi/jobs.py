"""The service API's doors to jobs."""

from __future__ import annotations

from typing import Any

from sidecar.jobs.model import State
from sidecar.jobs.request import MAX_PATH, MAX_QUERY
from sidecar.jobs.settings import METHODS
from sidecar.kit.http.long_poll import MAX_WAIT_S
from sidecar.kit.http.openapi import (
    ROOM,
    SERVICE,
    Json,
    body,
    moment,
    or_null,
    ref,
    refusals,
    reply,
    rows,
    shape,
    text,
    thing,
    whole,
    words,
)

#: As in sidecar/jobs/endpoints/jobs.py, which takes a third of a replica's start to import.
MAX_INLINE = 65_536
LIST_LIMIT, DEFAULT_LIMIT = 1000, 100
MAX_IDEMPOTENCY_KEY = 128
#: The dashboard's session will do too; with its CSRF token where something is changed.
READS: list[Json] = [*SERVICE, {"session": []}]
CHANGES: list[Json] = [*SERVICE, {"session": [], "csrf": []}]
_JOB = "/v1/jobs/{id}"
_ID = text(pattern="^[A-Za-z0-9_-]{22}$")
_KEY = f"^[!-~]{{1,{MAX_IDEMPOTENCY_KEY}}}$"
_NO_STORE = {"Cache-Control": ref("headers", "NoStore")}
_IN_PATH = {
    "name": "id", "in": "path", "required": True, "schema": _ID,
    "description": "As it was told when the job was submitted.",
    "example": "x0m3yQ8qS7mVt1cJr2nW4A",
}  # fmt: skip
_PENDING = {
    "id": "x0m3yQ8qS7mVt1cJr2nW4A", "target": "images", "kind": "offline", "state": "pending",
    "owner": "shop", "class": None, "method": "POST", "path": "generate", "query": None,
    "position": 12, "wait_seconds": 4.8, "attempts": 0, "status": None, "error": None,
    "created_at": "2026-11-27T18:00:00.000+00:00", "called_at": None, "started_at": None,
    "ended_at": None, "expires_at": "2026-11-27T21:00:00.000+00:00", "retry_at": None,
    "permit": None, "permit_expires_at": None, "result": None,
}  # fmt: skip
_COMPLETED = {
    **_PENDING, "state": "completed", "position": None, "wait_seconds": None, "attempts": 1,
    "status": 200,
    "started_at": "2026-11-27T18:00:04.900+00:00", "ended_at": "2026-11-27T18:00:09.100+00:00",
    "expires_at": "2026-11-30T18:00:09.100+00:00",
    "result": {"status": 200, "headers": {"content-type": "application/json"}, "size": 14,
               "body_url": "/v1/jobs/x0m3yQ8qS7mVt1cJr2nW4A/body", "body": '{"image": 471}'},
}  # fmt: skip
_CALLED = {
    **_PENDING, "kind": "online", "state": "called", "method": "GET", "path": "", "position": None,
    "wait_seconds": None, "called_at": "2026-11-27T18:00:04.900+00:00",
    "permit": "images~x0m3yQ8qS7mVt1cJr2nW4A~1795802404900000~1795802434900.kFyv…",
    "permit_expires_at": "2026-11-27T18:00:34.900+00:00",
}  # fmt: skip


def schemas() -> Json:
    result: Json = {
        "status": {"type": "integer", "minimum": 100, "maximum": 999},
        "headers": {"type": "object", "additionalProperties": text()},
        "size": whole("Bytes of the body."),
        "body_url": text("Where the body is, as it came.", format="uri-reference"),
        "body": text(f"Of {MAX_INLINE:,} bytes at most, if it is text. Not in lists."),
        "body_base64": text("The same, if it is no text.", contentEncoding="base64"),
    }
    job = {
        "id": _ID,
        "target": text(),
        "kind": words("offline", "online"),
        "state": words(*State, description="called: an online job whose permit was not used yet."),
        "owner": text("The name of the token that submitted it; service, operator."),
        "class": or_null(text()),
        "method": text(), "path": text(), "query": or_null(text()),
        "position": or_null(whole("In line; 1 is next.", minimum=1)),
        "wait_seconds": or_null({"type": "number", "minimum": 0, "description": "Expected, until "
                                 "it is called. null: not in line."}),
        "attempts": whole("How often it was begun."),
        "status": or_null({**result["status"], "description": "Of the last answer, also of one "
                           "after which it is tried again or has failed. null: none came."}),
        "error": or_null(text("Why it failed, or what the last attempt met.")),
        "created_at": moment(),
        "called_at": or_null(moment()),
        "started_at": or_null(moment()),
        "ended_at": or_null(moment()),
        "expires_at": moment("Pending: when it gives up. Ended: when it is removed."),
        "retry_at": or_null(moment("It is not tried again before.")),
        "permit": or_null(text("Of an online job that is called: lets one call through.")),
        "permit_expires_at": or_null(moment()),
        "result": or_null(thing(result, optional=("body", "body_base64"),
                                description="What the target answered: of a job that is "
                                "completed, or has failed by `fail_on`.")),
    }  # fmt: skip
    return {
        "Job": thing(job, description="A job as it stands. null: has not happened, or not so."),
        "JobOrder": {**thing(_order(), optional=tuple(_order())[1:]),
                     "additionalProperties": False},
    }  # fmt: skip


def _order() -> Json:
    """What is null is as if it was not there."""
    one: Json = {"type": ["string", "number"]}
    many: Json = {"type": "object", "additionalProperties": {"anyOf": [one, rows(one)]}}
    return {
        "target": text("Its name.", pattern=ROOM),
        "kind": {"enum": ["offline", "online", None], "description": "Otherwise the first of the "
                 "target's kinds. online: none of the members from method to body_base64."},
        "method": or_null(text(f"{', '.join(METHODS)}: what the target allows. Otherwise GET, or "
                               "POST where there is a body.")),
        "path": or_null(text("Below the target's url, if that ends with /; percent-encoded, "
                             "without / at its beginning.", maxLength=MAX_PATH)),
        "query": {"anyOf": [text("As it is sent.", maxLength=MAX_QUERY), many, {"type": "null"}]},
        "headers": or_null({"type": "object", "additionalProperties": text()}),
        "body": {"description": "A text is sent as it is; any other JSON as application/json."},
        "body_base64": or_null(text("Instead of the body, what is no text.",
                                    contentEncoding="base64")),
        "class": or_null(text("Only with a grant that gives it.")),
        "grant": or_null(text("Signed; gives its class.")),
        "idempotency_key": or_null(text("The caller's own name for the job: the same again is the "
                                        "same job.", pattern=_KEY)),
        "callback_url": or_null(text("Is told when the job has ended: one that the target's "
                                     "`callback_urls` allow.")),
    }  # fmt: skip


def _ask(
    name: str, summary: str, answers: Json, *refused: str, security: list[Json], **more: Any
) -> Json:
    """`answers` are those of success, by status."""
    made = refusals(
        "401", "403", "503", *refused, unknown="UnknownJob", off="JobForbidden", away="JobsAway"
    )
    # Each of these is of jobs in words of its own.
    own = {"409": "JobState", "429": "LineFull"}
    made |= {status: ref("responses", own[status]) for status in own.keys() & made.keys()}
    return {
        "operationId": name,
        "tags": ["jobs"],
        "summary": summary,
        **more,
        "responses": {**answers, **made},
        "security": security,
    }


def _job(description: str, example: Json | None = None, **headers: Json) -> Json:
    return reply(description, shape("Job"), example=example, headers={**_NO_STORE, **headers})


def _in_query(name: str, schema: Json, description: str = "") -> Json:
    about = {"description": description} if description else {}
    return {"name": name, "in": "query", "schema": schema, **about}


def paths() -> Json:
    return {
        "/v1/jobs": {"post": _submit(), "get": _list()},
        _JOB: {"parameters": [_IN_PATH], "get": _look(), "delete": _cancel()},
        _JOB + "/body": {"parameters": [_IN_PATH], "get": _body()},
        _JOB + "/retry": {
            "parameters": [_IN_PATH],
            "post": _ask("retryJob", "Try a job again that has ended",
                         {"202": _job("It waits, at the end of the line.", _PENDING)},
                         "404", "409", "429", security=CHANGES),
        },
        _JOB + "/done": {
            "parameters": [_IN_PATH],
            "post": _ask("endJob", "Say that an online job's call is over",
                         {"200": _job("It is, and the next one is called. Twice equals once.")},
                         "404", "409", security=CHANGES),
        },
    }  # fmt: skip


def _submit() -> Json:
    location = {
        "description": "Of the job.", "required": True, "schema": text(format="uri-reference"),
    }  # fmt: skip
    key = {
        "name": "Idempotency-Key", "in": "header", "schema": text(),
        "description": "The same as `idempotency_key`, which goes before it.",
    }  # fmt: skip
    made = _ask(
        "submitJob", "Submit a job",
        {"202": _job("It waits, and is not lost.", _PENDING, Location=location),
         "200": _job("The idempotency key names this job, which was submitted before with the same "
                     "content.", _COMPLETED, Location=location)},
        "400", "404", "413", "422", "429", security=CHANGES,
        description="A class without a grant that covers it is a 403. The idempotency key of "
        "another content is a 422.",
        parameters=[key],
        requestBody=body(shape("JobOrder"), {
            "a call": {"target": "images", "method": "POST", "path": "generate",
                       "body": {"prompt": "a lighthouse"}, "idempotency_key": "order-4711"},
            "a permit": {"target": "images", "kind": "online"},
        }),
    )  # fmt: skip
    made["responses"]["404"] = ref("responses", "UnknownTarget")
    return made


def _list() -> Json:
    page = {
        "jobs": rows(shape("Job"), "Newest first."),
        "next": or_null(text("The `after` of the next page. null: this is the last.")),
    }
    return _ask(
        "listJobs", "Jobs, newest first",
        {"200": reply("A page of those of this token; of everybody's for operators.", thing(page),
                      headers=_NO_STORE)},
        "404", "422", security=READS,
        parameters=[
            _in_query("target", text(), "Of one target."),
            _in_query("state", words(*State), "In one state."),
            _in_query("after", text(pattern=r"^[0-9]{1,15}\.[A-Za-z0-9_-]{1,32}$"),
                      "What the page before said is `next`."),
            _in_query("limit", whole(minimum=1, maximum=LIST_LIMIT, default=DEFAULT_LIMIT)),
        ],
    )  # fmt: skip


def _look() -> Json:
    about = "Seconds: the answer comes when the job has ended, or is called, or after so long."
    wait = _in_query("wait", whole(maximum=MAX_WAIT_S, default=0), about)
    found = _job("As it stands.", _COMPLETED)
    found["content"]["application/json"]["examples"] = {
        "completed": {"value": found["content"]["application/json"].pop("example")},
        "called": {"value": _CALLED},
    }
    return _ask("lookAtJob", "How a job stands, and its result", {"200": found},
                "404", "422", security=READS, parameters=[wait])  # fmt: skip


def _cancel() -> Json:
    members = {"id": _ID, "state": words("cancelled")}
    aborting = {"id": _ID, "state": words("processing"), "aborting": {"const": True}}
    return _ask(
        "cancelJob", "Cancel a job",
        {"200": reply("It is cancelled. Twice equals once.", thing(members), headers=_NO_STORE),
         "202": reply("Its call was begun, and is being cut off (`abort`).", thing(aborting),
                      headers=_NO_STORE)},
        "404", "409", security=CHANGES,
        description="409 where it has ended otherwise, or was begun and its target does not let "
        "calls be cut off.",
    )  # fmt: skip


def _body() -> Json:
    raw = {
        "description": "All of it, whatever its size and type.", "headers": _NO_STORE,
        "content": {"application/octet-stream": {}},
    }  # fmt: skip
    return _ask("getJobBody", "The result's body, as it came", {"200": raw},
                "404", security=READS,
                description="404 also where no answer is kept.")  # fmt: skip
