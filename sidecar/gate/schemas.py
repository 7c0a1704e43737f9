"""Requests and responses of the gate's endpoints. Handlers write them by hand, for speed: here they
are described."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from sidecar.kit.http.models import Body, Headers, Reply, Time, optional
from sidecar.kit.names import NAME
from sidecar.queue.model import Phase, State
from sidecar.rooms.schemas.common import VISITOR_ID, RoomAddress

#: A room, or a resource that is leased.
NAMED = "^" + NAME.pattern.removesuffix(r"\Z") + r"(~[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"

_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]
_Visitor = Annotated[str, Field(pattern=VISITOR_ID)]
_State = Annotated[State, WithJsonSchema({"type": "string", "enum": [*State]})]
_Phase = Annotated[Phase, WithJsonSchema({"type": "string", "enum": [*Phase]})]
_Verdict = Annotated[
    State | Literal["unknown-room", "unknown-resource"],
    WithJsonSchema({"type": "string", "enum": [*State, "unknown-room", "unknown-resource"]}),
]

# For proxies --------------------------------------------------------------------------------------


class Original(Headers):
    """What the visitor asked for, and how."""

    uri: str | None = Field(None, alias="X-Original-URI")
    """What the visitor asked for; X-Forwarded-Uri is understood too."""
    x_original_method: str | None = None
    """How, otherwise GET; X-Forwarded-Method is understood too."""
    address: str | None = Field(None, alias="X-Real-IP")
    """The visitor's address, for rooms that ask for it."""
    x_forwarded_proto: str | None = None
    """https makes the cookie Secure."""


class CheckRequest(Original):
    x_waitroom_room: Annotated[str, Field(pattern=NAMED)]
    """The room; or a resource that is leased, with its template's name, such as seat~17."""
    x_waitroom_exempt: str | None = None
    """Not empty: let it pass, uncounted."""
    x_waitroom_class: str | None = None
    """The visitor's class, where the room says class_header."""
    x_waitroom_msec: str | None = None
    """The proxy's time, seconds since 1970 with three decimals. A replica goes by it until its
    store has said the time."""
    x_waitroom_given: str | None = None
    """The Set-Cookie of the last answer, where a request is asked about twice."""
    x_waitroom_stamp: str | None = None
    """What a stamp is to cover: nginx repeats a verdict by itself while the stamp is valid."""


class CookieGiven(Headers):
    set_cookie: Annotated[str, Field(pattern="^waitroom_")] | None = None
    """The visitor's ticket or pass, `waitroom_<room>`: signed, opaque, to be sent back. Only when
    it is new or was changed."""


class Passed(CookieGiven):
    x_waitroom_state: _Verdict
    x_waitroom_fence: _Positive | None = None
    """The lease's fencing number, of its holder: it only grows."""


class Refused(CookieGiven):
    x_waitroom_state: _Verdict
    x_waitroom_status: (
        Annotated[int, Field(json_schema_extra={"enum": [200, 202, 429, 503]})] | None
    ) = None
    """The status that the room's visitors are to get. Missing: unknown room."""
    retry_after: _Positive | None = None
    """Seconds."""
    x_waitroom_position: _Positive | None = None
    x_waitroom_wait: _Whole | None = None
    """Seconds."""


class Kept(Headers):
    x_accel_expires: _Whole | None = None
    """For how many seconds the verdict about this very cookie may be kept; without it, not at
    all."""


class CheckPassed(Passed, Kept):
    x_waitroom_stamp: str | None = None
    """A Set-Cookie, with which nginx repeats the verdict by itself."""


class CheckRefused(Refused, Kept):
    pass


class Numbers(Reply):
    """Where the visitor stands; not of an unknown room."""

    room: Annotated[str | None, optional] = None
    state: Annotated[_State | None, optional] = None
    position: Annotated[_Positive | None, optional] = None
    wait_seconds: Annotated[_Whole | None, optional] = None
    retry_after_seconds: Annotated[_Positive, optional] = 1
    status_url: Annotated[str | None, optional] = None
    join_url: Annotated[str | None, optional] = None


# For visitors -------------------------------------------------------------------------------------


class StatusParameters(RoomAddress):
    client: Annotated[str | None, Field(json_schema_extra={"allowEmptyValue": True})] = None
    """Adds `client`, the address that the proxy names, and `store`."""


class ClaimParameters(RoomAddress):
    token: str
    """As webhooks receive it, in `claim_url`."""
    next: str | None = None
    """A path on the site, to go on to. The last parameter: it goes to the end."""


class Site(Headers):
    sec_fetch_site: str | None = None
    """Browsers send it. What another site made the browser POST takes no place."""


class Form(Body):
    """Of the page's form; JSON needs no body."""

    model_config = ConfigDict(extra="ignore")
    next: str = "/"
    """A path on the site, to go to once inside."""


class Onward(CookieGiven):
    location: str


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
    visitor: _Visitor | None
    """Their own id. null: has neither a place nor a session, or is not counted."""
    position: _Positive | None
    """From 1 on, in the own line. null unless waiting, before the opening, or while places come
    back."""
    position_above: _Positive | None
    """The position is above this one (`rank_limit`), and not said."""
    line: str | None
    """The name of the own line, where the room has several."""
    waiting: _Whole | None
    """How many wait, in the own line."""
    ahead: _Whole | None
    """How many are before this visitor; one less than the position."""
    wait_seconds: _Whole | None
    """null: cannot be known."""
    wait_seconds_low: _Whole | None
    wait_seconds_high: _Whole | None
    """The wait is between the two four times in five."""
    joined_at: Time | None
    updated_at: Time
    """By the store's clock."""
    refresh_after_seconds: Annotated[float, Field(gt=0)]
    """When to ask again."""
    message: str | None
    """The operator's words."""
    room: Annotated[str, Field(pattern=NAMED)]
    phase: _Phase
    """open: people are let in; prequeue: places are taken, to be drawn at the opening; closed:
    neither."""
    event: str | None
    """The event that the times are of: the current one, or the next."""
    prequeue_from: Time | None
    """null: there is no pre-queue."""
    opens_at: Time | None
    """Count down from `updated_at`, not from your own clock."""
    closes_at: Time | None
    """null: stays open until the next event."""
    paused: Annotated[Literal[True] | None, optional] = None
    """Nobody is called for the moment."""
    expires_at: Annotated[Time | None, optional] = None
    """When the term of a lease ends that this visitor holds."""
    client: Annotated[str | None, optional] = None
    """The address that the proxy names; if `client` was asked for."""
    store: Annotated[str | None, optional] = None
    """Which store the replica has, the same for all that share one: `memory` or `redis`, and what
    tells it from others; if `client` was asked for."""
    nginx_key: Annotated[Literal["known", "unknown"] | None, optional] = None
    """Whether the key that nginx showed last is one of the replica's; if `client` was asked for.
    null: none was shown."""
