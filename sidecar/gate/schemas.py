"""Models of the gate's requests and responses, for OpenAPI. Handlers write them by hand, for
speed."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from sidecar.http.models import Body, Headers, Reply, Time, optional
from sidecar.http.problem_kinds import Kind
from sidecar.kit.names import NAME
from sidecar.rooms.schemas.common import VISITOR_ID, RoomAddress
from sidecar.visitors.model import Phase, VisitorState

#: A room, or a resource that is leased.
NAMED = "^" + NAME.pattern.removesuffix(r"\Z") + r"(~[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"

FROM_ELSEWHERE = Kind(
    "from_elsewhere",
    403,
    "Another site asked",
    "A browser says that a page of another site, or of another host of this one, sent the request.",
    "Send it from a page of the site itself, with `Sec-Fetch-Site: same-origin` or `none`.",
)

_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]
_Visitor = Annotated[str, Field(pattern=VISITOR_ID)]
_State = Annotated[VisitorState, WithJsonSchema({"type": "string", "enum": [*VisitorState]})]
_Phase = Annotated[Phase, WithJsonSchema({"type": "string", "enum": [*Phase]})]
_Verdict = Annotated[
    VisitorState | Literal["unknown-room", "unknown-resource"],
    WithJsonSchema({"type": "string", "enum": [*VisitorState, "unknown-room", "unknown-resource"]}),
]

# For proxies --------------------------------------------------------------------------------------


class Original(Headers):
    """What the visitor asked for, and how."""

    uri: str | None = Field(None, alias="X-Original-URI")
    """The address that the visitor asked for. X-Forwarded-Uri works too."""
    x_original_method: str | None = None
    """The method of the visitor's request. Default: GET. X-Forwarded-Method works too."""
    origin: str | None = None
    """The visitor's. Browsers from before 2023 name another site by it alone: a POST from there
    takes no place, because they leave the cookie out."""
    address: str | None = Field(None, alias="X-Real-IP")
    """The visitor's address. Needed for rooms that use it."""
    x_forwarded_proto: str | None = None
    """`https` makes the cookie Secure."""


class CheckRequest(Original):
    x_waitroom_room: Annotated[str, Field(pattern=NAMED)]
    """The room, or a leased resource with its template's name, such as `seat~17`."""
    x_waitroom_exempt: str | None = None
    """Not empty: the request passes and is not counted."""
    x_waitroom_class: str | None = None
    """The visitor's class, for rooms with `class_header`."""
    x_waitroom_msec: str | None = None
    """The proxy's time, in seconds since 1970 with three decimals. A replica uses it until Redis
    has given the time."""
    x_waitroom_given: str | None = None
    """The Set-Cookie of the last response, where the proxy checks one request twice."""
    x_waitroom_stamp: str | None = None
    """What a stamp covers. nginx repeats a result by itself while the stamp is valid."""


class CookieGiven(Headers):
    set_cookie: Annotated[str, Field(pattern="^waitroom_")] | None = None
    """The visitor's ticket or pass, `waitroom_<room>`. It is signed and opaque. Send it back with
    each request. Only when it is new or changed."""


class Passed(CookieGiven):
    x_waitroom_state: _Verdict
    """The result."""
    x_waitroom_fence: _Positive | None = None
    """The lease's fencing number, for its holder. It only grows."""


class Refused(CookieGiven):
    x_waitroom_state: _Verdict
    """The result."""
    x_waitroom_status: (
        Annotated[int, Field(json_schema_extra={"enum": [200, 202, 429, 503]})] | None
    ) = None
    """The HTTP status for the visitor. Missing: the room is unknown."""
    retry_after: _Positive | None = None
    """Seconds."""
    x_waitroom_position: _Positive | None = None
    """The position in the queue."""
    x_waitroom_wait: _Whole | None = None
    """The expected wait, seconds."""


class Kept(Headers):
    x_accel_expires: _Whole | None = None
    """For how many seconds nginx may keep the result for this cookie. Missing: not at all."""


class CheckPassed(Passed, Kept):
    x_waitroom_stamp: str | None = None
    """A Set-Cookie with which nginx repeats the result by itself."""


class CheckRefused(Refused, Kept):
    x_waitroom_json: str | None = None
    """What a program gets, where the room's `json_format` is `cloudflare`."""
    x_waitroom_document: str | None = None
    """The status document as JSON, for `/page`. Only where the room has a `template`."""
    refresh: str | None = None
    """When the browser loads that page again, seconds. Empty: its script polls."""


class PageRequest(Headers):
    x_waitroom_room: Annotated[str, Field(pattern=NAMED)]
    """The room."""
    x_waitroom_document: str
    """As `/check` gave it."""
    uri: str | None = Field(None, alias="X-Original-URI")
    """The address that the visitor asked for, or the page that they sent something from."""
    x_original_method: str | None = None
    """The method of the visitor's request. Default: GET. With another one than GET and HEAD, the
    page may say that what they sent has not arrived."""
    accept_language: str | None = None
    """The visitor's."""


class PageShown(Headers):
    refresh: str | None = None
    """When the browser loads the page again. Missing: the page's script polls."""
    x_accel_expires: _Whole | None = None
    """For how many seconds nginx may show it to others."""


class Numbers(Reply):
    """Where the visitor stands. Without them the room is unknown."""

    room: Annotated[str | None, optional] = None
    """The room's name."""
    state: Annotated[_State | None, optional] = None
    """The visitor's state."""
    position: Annotated[_Positive | None, optional] = None
    """The position in the queue."""
    wait_seconds: Annotated[_Whole | None, optional] = None
    """The expected wait."""
    retry_after_seconds: Annotated[_Positive, optional] = 1
    """When to try again."""
    status_url: Annotated[str | None, optional] = None
    """The path of the visitor's status."""
    join_url: Annotated[str | None, optional] = None
    """The path that takes a place."""


# For visitors -------------------------------------------------------------------------------------


class StatusParameters(RoomAddress):
    client: Annotated[str | None, Field(json_schema_extra={"allowEmptyValue": True})] = None
    """Adds `client`, `store`, `nginx_key` and `eviction` to the response."""


class ClaimParameters(RoomAddress):
    token: str
    """From the webhook's `claim_url`."""
    next: str | None = None
    """A path on the site to go to afterwards. It must be the last parameter."""


class Site(Headers):
    sec_fetch_site: str | None = None
    """Browsers send it. A POST that another site caused takes no place."""


class Form(Body):
    """The fields of the page's form; JSON needs no body."""

    model_config = ConfigDict(extra="ignore")
    next: str = "/"
    """A path on the site to go to after admission."""


class Onward(CookieGiven):
    location: str
    """The `next` path."""


class RetryLater(Headers):
    retry_after: _Positive
    """Seconds."""


class Status(Reply):
    """Where a visitor stands."""

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
                }
            ]
        }
    )  # fmt: skip
    state: _State
    """`admitted`: the site lets this cookie in."""
    visitor: _Visitor | None
    """The visitor's own id. null: no place and no session, or not counted."""
    position: _Positive | None
    """In the visitor's own sub-queue. 1 is next. null unless waiting, before the opening, and while
    places come back."""
    position_above: _Positive | None
    """The position is greater than this number and is not shown (`rank_limit`)."""
    line: str | None
    """The visitor's sub-queue, where the room has several."""
    waiting: _Whole | None
    """How many wait in the same sub-queue."""
    ahead: _Whole | None
    """How many wait before this visitor: the position less one."""
    wait_seconds: _Whole | None
    """The expected wait. null: unknown."""
    wait_seconds_low: _Whole | None
    """Four times in five the wait is not shorter than this."""
    wait_seconds_high: _Whole | None
    """Four times in five the wait is not longer than this."""
    joined_at: Time | None
    """When the visitor joined."""
    updated_at: Time
    """The time of this response, by the clock of Redis."""
    refresh_after_seconds: Annotated[float, Field(gt=0)]
    """When to ask again."""
    message: str | None
    """The operator's message."""
    room: Annotated[str, Field(pattern=NAMED)]
    """The room's name."""
    phase: _Phase
    """`open`: visitors are let in. `prequeue`: places are taken, and drawn at the opening.
    `closed`: neither."""
    event: str | None
    """The event that the times belong to: the current or the next one."""
    prequeue_from: Time | None
    """When the pre-queue begins. null: there is none."""
    opens_at: Time | None
    """When the room opens. Count down from `updated_at`, not from your own clock."""
    closes_at: Time | None
    """When the room closes. null: it stays open until the next event."""
    paused: Annotated[Literal[True] | None, optional] = None
    """Nobody is called at the moment."""
    expires_at: Annotated[Time | None, optional] = None
    """When the visitor's lease ends."""
    join_url: Annotated[str | None, optional] = None
    """While the shield is up: where a newcomer joins, 2 to 60 s later."""
    client: Annotated[str | None, optional] = None
    """The visitor's address as the proxy sends it. Only with `?client`."""
    store: Annotated[str | None, optional] = None
    """`memory` or `redis`, and an id of the store. The same for all replicas that share it. null:
    Redis does not answer. Only with `?client`."""
    nginx_key: Annotated[Literal["known", "unknown"] | None, optional] = None
    """Whether the replica knows nginx's last key. null: nginx sent none. Only with `?client`."""
    eviction: Annotated[str | None, optional] = None
    """Redis' `maxmemory-policy`; null where nobody has looked yet. Only with `client`."""
