"""The service API's doors to targets."""

from __future__ import annotations

from typing import Any

from sidecar.jobs.endpoints.targets import MAX_HOURS
from sidecar.jobs.model import State
from sidecar.jobs.openapi.jobs import READS
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.http.openapi import (
    CHANGES,
    ROOM,
    Json,
    body,
    moment,
    or_null,
    refusals,
    reply,
    rows,
    shape,
    text,
    thing,
    whole,
    words,
)
from sidecar.kit.http.settings_schema import as_asked, as_told

_TARGET = "/v1/targets/{name}"
_IN_PATH = {
    "name": "name", "in": "path", "required": True, "schema": text(pattern=ROOM),
    "description": "Of a target.", "example": "images",
}  # fmt: skip


def schemas() -> Json:
    seconds: Json = {"type": "number", "minimum": 0}
    counts: Json = {"type": "object", "additionalProperties": whole()}
    state = {
        "name": text(pattern=ROOM),
        "source": words("file", "run time", description="Whether it is as the file has it, or was "
                        "changed since."),
        "settings": shape("TargetSettings"),
        "waiting": whole("Jobs in line."),
        "later": whole("Jobs that are tried again in a while."),
        "running": whole("Calls under way, and permits that were given."),
        "calls_in_window": whole("What counts against the rate."),
        "mean_seconds": or_null({**seconds, "description": "How long a call takes. null: none was "
                                 "measured."}),
        "calls_per_second": {**seconds, "description": "What it bears, as far as is known."},
        "wait_seconds": {**seconds, "description": "What a job that came now would wait."},
        "breaker": words("closed", "open", "trial", description="open: it failed, and nothing is "
                         "called; trial: one call tries whether it is back."),
        "open_until": or_null(moment()),
        "held_until": or_null(moment("The target asked for a pause.")),
        "is_ready": {"type": "boolean", "description": "false: the store was emptied, and the line "
                     "is being filled again."},
        "runner_seen_at": or_null(moment("When a runner last asked for jobs. null: none did since "
                                         "the store was empty.")),
        "has_runner": {"type": "boolean", "description": "false: no runner has asked for 15 s, and "
                       "none has a call under way; offline jobs wait until one is started."},
        "counters": {**counts, "description": "Since the store was empty: called, completed, "
                     "failed, …"},
        "jobs": {**counts, "description": "That are kept, by state."},
    }  # fmt: skip
    told = as_told(TargetSettings)
    told["headers"]["description"] = "Their names; values are secret: ***."
    told["callback_secret"]["description"] = "***, where there is one."
    asked = as_asked(TargetSettings)
    return {
        "Target": thing(state, description="A target as it stands."),
        "TargetSettings": thing(told, description="Durations in seconds."),
        "TargetChanges": {
            "type": "object", "properties": asked, "additionalProperties": False,
            "description": "Settings by name; all are changed, or none. Of headers all are said; "
            "*** stands for a value that is there. What each means, and the rules between them: "
            "docs/configuration.md.",
        },
    }  # fmt: skip


def _ask(name: str, summary: str, answer: Json, *refused: str, **more: Any) -> Json:
    made = refusals("401", "403", "404", "503", *refused,
                    unknown="UnknownTarget", off="JobForbidden", away="JobsAway")  # fmt: skip
    return {
        "operationId": name,
        "tags": ["targets"],
        "summary": summary,
        "security": READS,
        **more,
        "responses": {"200": answer, **made},
    }


def paths() -> Json:
    step = {
        "at": moment("When it begins."),
        "completed": whole(), "failed": whole(),
        "other": whole(f"{State.CANCELLED}, {State.EXPIRED}."),
        "mean_wait_seconds": or_null({"type": "number"}),
        "mean_seconds": or_null({"type": "number", "description": "How long a call took."}),
    }  # fmt: skip
    history = {
        "target": text(), "step_seconds": {"type": "number"},
        "steps": rows(thing(step), "Oldest first; those in which no job ended may be missing."),
    }  # fmt: skip
    hours = {
        "name": "hours", "in": "query", "description": "How far it goes back.",
        "schema": whole(minimum=1, maximum=MAX_HOURS, default=24),
    }  # fmt: skip
    one = reply("The target.", shape("Target"))
    restored = {"target": {**or_null(shape("Target")),
                           "description": "null: the file has none of this name."}}  # fmt: skip
    return {
        "/v1/targets": {
            "get": _ask("listTargets", "All targets, and how they stand",
                        reply("The targets.", thing({"targets": rows(shape("Target"))}))),
        },
        _TARGET: {
            "parameters": [_IN_PATH],
            "get": _ask("lookAtTarget", "How a target stands", one),
            "patch": _ask(
                "changeTarget", "Change a target, or make one", one, "400", "413", "422",
                description="For operators. All replicas and runners follow within two seconds. "
                "What was set stays, whatever the file says of this target, until DELETE.",
                requestBody=body(shape("TargetChanges"), {
                    "a limit": {"rate": 50, "window": "1s"},
                    "a new target": {"url": "https://images.example/v1/", "methods": ["POST"]},
                }),
                security=CHANGES,
            ),
            "delete": _ask("restoreTarget", "Go back to what the file says of a target",
                           reply("It is done.", thing(restored)),
                           description="For operators. A target that the file has not is gone.",
                           security=CHANGES),
        },
        _TARGET + "/history": {
            "parameters": [_IN_PATH],
            "get": _ask("getTargetHistory", "What became of its jobs, step by step",
                        reply("The steps.", thing(history)), "422", parameters=[hours]),
        },
    }  # fmt: skip
