"""The documents that doors take and give, as JSON Schema; made of the code's own types where it has
them."""

from __future__ import annotations

from sidecar.kit.http.openapi import (
    ROOM,
    VISITOR_ID,
    Json,
    moment,
    or_null,
    rows,
    shape,
    text,
    thing,
    whole,
    words,
)
from sidecar.queue.model import Phase, State
from sidecar.rooms.openapi import settings

_EARLIEST = "ms since 1970, by the store's clock"


_STATUS = thing(
    {
        "state": words(*(state.value for state in State)),
        "visitor": or_null({**shape("VisitorId"), "description": "Their own id. null: has neither "
                            "a place nor a session, or is not counted."}),
        "position": or_null(whole("From 1 on, in the own line. null unless waiting, before the "
                                  "opening, or while places come back.", minimum=1)),
        "position_above": or_null(whole("The position is above this one (`rank_limit`), and not "
                                        "told.", minimum=1)),
        "line": or_null(text("The name of the own line, where the room has several.")),
        "waiting": or_null(whole("How many wait, in the own line.")),
        "ahead": or_null(whole("How many are before this visitor; one less than the position.")),
        "wait_seconds": or_null(whole("null: cannot be known.")),
        "wait_seconds_low": or_null(whole()),
        "wait_seconds_high": or_null(whole("The wait is between the two four times in five.")),
        "joined_at": or_null(moment()),
        "updated_at": moment("By the store's clock."),
        "refresh_after_seconds": {"type": "number", "exclusiveMinimum": 0,
                                  "description": "When to ask again."},
        "message": or_null(text("The operator's words.")),
        "room": shape("Room"),
        "phase": words(*(phase.value for phase in Phase), description="open: people are let in; "
                       "prequeue: places are taken, to be drawn at the opening; closed: neither."),
        "event": or_null(text("The event that the times are of: the current one, or the next.")),
        "prequeue_from": or_null(moment("null: there is no pre-queue.")),
        "opens_at": or_null(moment("Count down from `updated_at`, not from your own clock.")),
        "closes_at": or_null(moment("null: stays open until the next event.")),
        "paused": {"const": True, "description": "Nobody is called for the moment."},
        "expires_at": moment("When the term of a lease ends that this visitor holds."),
        "client": or_null(text("The address that the proxy names; if `client` was asked for.")),
        "store": or_null(text("Which store the replica has, the same for all that share one: "
                              "`memory` or `redis`, and what tells it from others; if `client` "
                              "was asked for.")),
        "nginx_key": or_null(words("known", "unknown", description="Whether the key that nginx "
                                   "showed last is one of the replica's; if `client` was asked "
                                   "for. null: none was shown.")),
    },
    optional=("paused", "expires_at", "client", "store", "nginx_key"),
)  # fmt: skip
_ROOM_STATE = thing(
    {
        "room": shape("Room"),
        "mode": words("open", "paused", "draining", "running",
                      description="open: everybody passes; paused: nobody is called; draining: "
                      "nobody new may wait."),
        "phase": words(*(phase.value for phase in Phase), description="By the room's events."),
        "event": or_null(text("In whose pre-queue or opening it is.")),
        "coming": or_null(text("The next event.")),
        "waiting": whole("In line."),
        "active": whole("Sessions, those of the called included."),
        "provisional": whole("Of the active: called, and not yet here."),
        "wait_seconds": or_null(whole("What somebody who came now would wait.")),
        "lines": rows(thing({"line": text(), "waiting": whole(), "wait_seconds": or_null(whole())}),
                      "The room's lines. Drawn places stand in none of them."),
        "revision": whole("Grows with every change of a setting."),
        "replicas": whole("Heard of in the last seconds."),
        "recovery_stage": {"enum": [0, 1, 2], "description": "2: the store was emptied, and nobody "
                           "is called; 1: some in line may be missing yet; 0: as ever."},
        "recovers_until": or_null(moment()),
        "settings": shape("Settings"),
        "changed": {"type": "object", "description": "Settings that were changed at run time."},
        "counters": {"type": "object", "additionalProperties": {"type": "integer"},
                     "description": "Since the store was empty: joined, called, admitted, …"},
    }
)  # fmt: skip
_VISITOR = thing(
    {
        "room": shape("Room"),
        "visitor": shape("VisitorId"),
        "state": words("waiting", "called", "inside", "revoked", "unknown"),
        "position": or_null(whole("Among all who wait; null in a pre-queue.", minimum=1)),
        "line": or_null(text("null: the room has none, or the place was drawn.")),
        "line_position": or_null(whole("In that line, to a few.", minimum=1)),
        "started_at_ms": or_null(whole(_EARLIEST)),
        "ends_at_ms": or_null(whole(_EARLIEST)),
        "revoked_at_ms": or_null(whole(_EARLIEST)),
    }
)
_ACT = thing(
    {
        "at": whole(_EARLIEST),
        "by": text("Who, as they call themselves."),
        "what": text("change, reset, move, back, grade (a class), release, …"),
        "visitor": text("Empty where it is about none."),
        "detail": text(),
    }
)
_PROBLEM = thing(
    {
        "type": text(format="uri-reference"),
        "title": text("What went wrong."),
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": text("Which kind of problem it is, for programs: docs/api.md lists them."),
        "detail": text("What to do."),
        "errors": rows(text(), "Each thing that is wrong, beginning with what it is about."),
        "retry_after_seconds": whole("Retry-After says the same."),
        "retry_after": whole("The same as `retry_after_seconds`.", deprecated=True),
    },
    optional=("detail", "errors", "retry_after_seconds", "retry_after"),
    description="A problem document (RFC 9457).",
)


def schemas() -> Json:
    return {
        "Room": text("A room's name.", pattern=ROOM),
        "VisitorId": text("128 random bits.", pattern=VISITOR_ID),
        "Status": _STATUS,
        **settings.schemas(),
        "RoomState": _ROOM_STATE,
        "Visitor": _VISITOR,
        "Act": _ACT,
        "Problem": _PROBLEM,
    }
