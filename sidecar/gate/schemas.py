"""Models for the OpenAPI document of the gate. For speed, the handlers do not use these models."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from sidecar.http.models import Body, Headers, Reply, Time, optional
from sidecar.http.problem_kinds import Kind
from sidecar.kit.names import NAME
from sidecar.rooms.schemas.common import VISITOR_ID, Count, Position, RoomAddress
from sidecar.visitors.model import Phase, VisitorState

#: The pattern of the name of a room, or of a leased resource with its template, such as seat~17.
GATE_NAME = "^" + NAME.pattern.removesuffix(r"\Z") + r"(~[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"

FROM_ELSEWHERE = Kind(
    "from_elsewhere",
    403,
    "Another site asked",
    "The browser reports that another site, or another host of this site, caused the request.",
    "Send the request from a page of this site, with `Sec-Fetch-Site: same-origin` or `none`.",
)

_Positive = Annotated[int, Field(ge=1)]
_Visitor = Annotated[str, Field(pattern=VISITOR_ID)]
_State = Annotated[VisitorState, WithJsonSchema({"type": "string", "enum": [*VisitorState]})]
_Phase = Annotated[Phase, WithJsonSchema({"type": "string", "enum": [*Phase]})]
_VERDICTS = [*VisitorState, "unknown-room", "unknown-resource"]
_View = Literal[
    "waiting", "next", "paused", "prequeue", "opens", "opens_draw", "full", "closed", "joining"
]  # fmt: skip
_Verdict = Annotated[
    VisitorState | Literal["unknown-room", "unknown-resource"],
    WithJsonSchema({"type": "string", "enum": _VERDICTS}),
]

# For proxies --------------------------------------------------------------------------------------


class OriginalUrlHeaders(Headers):
    uri: str | None = Field(None, alias="X-Original-URI")
    """The URL that the visitor requested. `/gate` also reads X-Forwarded-Uri. For `/page` after a
    form was submitted, this is the URL of the form's page."""
    x_original_method: str | None = None
    """The method of the visitor's request, by default GET. X-Forwarded-Method works too."""


class OriginalRequestHeaders(OriginalUrlHeaders):
    """The visitor's request, as the proxy describes it."""

    origin: str | None = None
    """The visitor's Origin header. In browsers from before 2023, only this header shows that
    another site caused a POST. Such a POST takes no place, because it lacks the cookie."""
    address: str | None = Field(None, alias="X-Real-IP")
    """The visitor's IP address, for rooms whose settings depend on it."""
    x_forwarded_proto: str | None = None
    """`https` makes the cookie Secure."""


class CheckRequestHeaders(OriginalRequestHeaders):
    x_waitroom_room: Annotated[str, Field(pattern=GATE_NAME)]
    """The room, or a leased resource with its template's name, such as `seat~17`."""
    x_waitroom_exempt: str | None = None
    """If not empty, the request passes and is not counted."""
    x_waitroom_class: str | None = None
    """The visitor's class, for rooms with `class_header`."""
    x_waitroom_msec: str | None = None
    """The proxy's time, in seconds since 1970 with three decimals. A replica uses it until it gets
    the time from Redis."""
    x_waitroom_given: str | None = None
    """The Set-Cookie of the response to the first check, if the proxy checks a request twice."""
    x_waitroom_stamp: str | None = None
    """A request for a stamp, with nginx's proof, time and name. nginx admits the visitor by itself
    while the stamp is valid."""


class CookieHeader(Headers):
    set_cookie: Annotated[str, Field(pattern="^waitroom_")] | None = None
    """The visitor's ticket or pass, `waitroom_<room>`, if it is new or changed. It is signed and
    opaque. Send it back with each request."""


class VerdictHeaders(CookieHeader):
    x_waitroom_state: _Verdict
    """The visitor's state, or why the room is unknown."""


class AdmittedHeaders(VerdictHeaders):
    x_waitroom_fence: _Positive | None = None
    """The fencing token of the holder's lease, a number that only grows."""


class RefusedHeaders(VerdictHeaders):
    x_waitroom_status: (
        Annotated[int, Field(json_schema_extra={"enum": [200, 202, 429, 503]})] | None
    ) = None
    """The HTTP status for the visitor. Missing if the room is unknown."""
    retry_after: _Positive | None = None
    """How many seconds to wait before a retry."""
    x_waitroom_position: Position | None = None
    """The position in the queue."""
    x_waitroom_wait: Count | None = None
    """The expected wait in seconds."""


class CacheHeaders(Headers):
    x_accel_expires: Count | None = None
    """How many seconds nginx may cache the verdict for this cookie. If missing: none."""


class CheckAdmittedHeaders(AdmittedHeaders, CacheHeaders):
    x_waitroom_stamp: str | None = None
    """The Set-Cookie of a stamp, with which nginx admits the visitor by itself."""


class CheckRefusedHeaders(RefusedHeaders, CacheHeaders):
    x_waitroom_view: _View | None = None
    """What the waiting page shows first. Missing if the room is unknown."""
    x_waitroom_json: str | None = None
    """The JSON document for programs, if the room's `json_format` is `cloudflare`."""
    x_waitroom_document: str | None = None
    """The status document as JSON, for `/page`. Only if the room has a `template`."""
    refresh: str | None = None
    """The seconds until the browser reloads the template's page. Empty if its script polls."""


class PageRequestHeaders(OriginalUrlHeaders):
    x_waitroom_room: Annotated[str, Field(pattern=GATE_NAME)]
    """The room."""
    x_waitroom_document: str
    """The header X-Waitroom-Document of the response of `/check`."""
    accept_language: str | None = None
    """The visitor's Accept-Language."""


class PageHeaders(Headers):
    refresh: str | None = None
    """The seconds until the browser reloads the page. Missing if the page's script polls."""
    x_accel_expires: Count | None = None
    """How many seconds nginx may cache the page for other visitors."""


class Numbers(Reply):
    """The visitor's state and position. Without these members, the room is unknown."""

    room: Annotated[str | None, optional] = None
    """The room's name."""
    state: Annotated[_State | None, optional] = None
    """The visitor's state."""
    position: Annotated[Position | None, optional] = None
    """The position in the queue."""
    wait_seconds: Annotated[Count | None, optional] = None
    """The expected wait."""
    retry_after_seconds: Annotated[_Positive, optional] = 1
    """How many seconds to wait before a retry."""
    status_url: Annotated[str | None, optional] = None
    """The path of the visitor's status."""
    join_url: Annotated[str | None, optional] = None
    """The path for joining the queue."""


# For visitors -------------------------------------------------------------------------------------


class StatusParameters(RoomAddress):
    client: Annotated[str | None, Field(json_schema_extra={"allowEmptyValue": True})] = None
    """Adds `client`, `store`, `nginx_key` and `eviction` to the response."""


class NextParameters(RoomAddress):
    next: str | None = None
    """The path on the site to go to afterwards. This must be the last parameter."""


class ClaimParameters(NextParameters):
    token: str
    """The token in the webhook's `claim_url`."""


class SiteHeader(Headers):
    sec_fetch_site: str | None = None
    """Which site caused the request, as browsers report it. Another site's POST takes no place."""


class PageForm(Body):
    """The fields of the page's form. A request for JSON needs no body."""

    __qualname__ = "Form"  # its name in the OpenAPI document

    model_config = ConfigDict(extra="ignore", title="Form")
    next: str = "/"
    """The path on the site to go to after admission."""


class RedirectHeaders(CookieHeader):
    location: str
    """The path in `next`."""


class RetryHeaders(Headers):
    retry_after: _Positive
    """How many seconds to wait before a retry."""


class Status(Reply):
    """The state and position of a visitor."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "state": "waiting", "visitor": "hQmVzkXy3c1tA9bWn0Lr-Q", "position": 18,
                    "position_above": None, "line": None, "waiting": 240, "ahead": 17,
                    "wait_seconds": 95, "wait_seconds_low": 60, "wait_seconds_high": 140,
                    "joined_at": "2026-11-27T18:00:03.120+00:00",
                    "updated_at": "2026-11-27T18:02:10.004+00:00", "refresh_after_seconds": 9.6,
                    "message": None, "room": "shop", "phase": "open", "event": "sale",
                    "prequeue_from": "2026-11-27T17:30:00.000+00:00",
                    "opens_at": "2026-11-27T18:00:00.000+00:00", "closes_at": None,
                    "timezone": "Europe/Zurich",
                }
            ]
        }
    )  # fmt: skip
    state: _State
    """The visitor's state. With `admitted`, the visitor's cookie gives access to the site."""
    visitor: _Visitor | None
    """The visitor's id. null if the visitor has no place and no session, or is not counted."""
    position: Position | None
    """The position in the queue, or in the visitor's sub-queue, starting at 1. null if the visitor
    does not wait, before the opening, and while places are being restored."""
    position_above: Position | None
    """The room's `rank_limit`, if the position is greater and therefore not shown."""
    line: str | None
    """The name of the visitor's sub-queue. null if the room has none."""
    waiting: Count | None
    """The number of visitors waiting in the room, or in the same sub-queue."""
    ahead: Count | None
    """The number of visitors waiting before this one: the position minus 1."""
    wait_seconds: Count | None
    """The expected wait. null if it is unknown, or still being measured."""
    wait_seconds_low: Count | None
    """The lower end of the range that contains the actual wait in four cases out of five."""
    wait_seconds_high: Count | None
    """The upper end of this range."""
    joined_at: Time | None
    """When the visitor joined."""
    updated_at: Time
    """The time of this response, by the clock of Redis."""
    refresh_after_seconds: Annotated[float, Field(gt=0)]
    """How many seconds to wait before the next poll."""
    message: str | None
    """The operator's message, for visitors whose language is not in `messages`."""
    room: Annotated[str, Field(pattern=GATE_NAME)]
    """The room's name."""
    phase: _Phase
    """With `open`, visitors are admitted. With `prequeue`, visitors join, and their places are
    drawn at the opening. With `closed`, visitors cannot join."""
    event: str | None
    """The name of the current or next event, to which the times below belong."""
    prequeue_from: Time | None
    """When the pre-queue begins. null if the event has none."""
    opens_at: Time | None
    """When the room opens. Count down from `updated_at`, not from your own clock."""
    closes_at: Time | None
    """When the room closes. null if the room stays open until the next event."""
    timezone: str | None
    """The event's `timezone`. null if the event has none, or if it is UTC."""
    paused: Annotated[Literal[True] | None, optional] = None
    """True if nobody is called at the moment."""
    measuring: Annotated[Literal[True] | None, optional] = None
    """True if too few visits have ended to estimate the wait."""
    expires_at: Annotated[Time | None, optional] = None
    """When the visitor's lease ends."""
    messages: Annotated[dict[str, str] | None, optional] = None
    """The operator's message by language, if it has several."""
    join_url: Annotated[str | None, optional] = None
    """The URL with which a newcomer joins 2 to 60 s later, while the shield is up."""
    client: Annotated[str | None, optional] = None
    """The visitor's IP address as the proxy sends it. Only with `?client`."""
    store: Annotated[str | None, optional] = None
    """`memory` or `redis`, and an id of the store, which is the same on all replicas that share the
    store. null if Redis is unavailable. Only with `?client`."""
    nginx_key: Annotated[Literal["known", "unknown"] | None, optional] = None
    """Whether the replica knows the key in nginx's last proof. null if nginx has sent no proof.
    Only with `?client`."""
    eviction: Annotated[str | None, optional] = None
    """Redis' `maxmemory-policy`. null if the replica has not read it yet. Only with `?client`."""
