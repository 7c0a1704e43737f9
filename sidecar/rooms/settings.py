"""The settings of one room. All of them can be changed at run time, under the same rules."""

import contextlib
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import (
    Count,
    Networks,
    Paths,
    Percent,
    Seconds,
    describe_problems,
    from_text,
)
from sidecar.kit.templates import TEMPLATE_NAME
from sidecar.rooms.appearance import APPEARANCE, ColourText, Font, Links, SitePath, StyleSheet
from sidecar.rooms.openings import Events, Moments, apply_event_settings, moments
from sidecar.visitors.classes import Classes, Lines, find_class_problems
from sidecar.visitors.verdict_lifetime import OUTAGE_MS, RELEASE_HOLD_MS, SESSION_GRACE_MS

#: About how many events a room's stream holds at most if no history is kept.
EVENTS_KEPT = 100_000
_SITE = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?/?\Z")
#: The settings that the scripts do not need.
_NOT_FOR_SCRIPTS = {
    *("message", "site_name", "logo", "template", "public_url", "rank_limit", *APPEARANCE),
    *("queueing_status_code", "json_format", "keepalive_max_duration", "bind_pass"),
    *("rollout_percent", "exempt_addresses", "exempt_paths", "exempt_header", "class_header"),
    *("suspended", "sweep_interval", "shield_above", "on_store_failure", "notify_above"),
}
#: The fields of an event that the scripts do not need.
_EVENT_FIELDS_NOT_FOR_SCRIPTS = {"name", "message", "timezone"}


def _read_site(value: str) -> str:
    """Check the address of a site, and return the address without a slash at the end."""
    match = _SITE.match(value)
    if match is None or int((match[2] or ":443")[1:]) not in range(1, 65_536):
        raise ValueError("write the site's address, such as https://shop.example, without a path")
    return value.rstrip("/")


def _check_template(value: str) -> str:
    """Check the name of a template file. Operators may change settings but not write files, so they
    can only choose among the files in template_dir."""
    if not TEMPLATE_NAME.match(value):
        raise ValueError("write the name of a file in template_dir, such as shop.html")
    return value


class RoomSettings(BaseModel):
    """The settings of one room. Durations are in seconds, or strings such as "5m"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    total_active_users: Count = Field(ge=0, le=10_000_000)
    """The cap: how many sessions the room may have at a time. Visitors who were called and have not
    arrived yet count too. When you lower it, active visitors stay."""
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    """The most visitors admitted per minute, spread evenly over it. A called visitor who does not
    arrive counts too. None: visitors are admitted as fast as sessions end."""
    session_duration: Seconds = Field(default=300, ge=5, le=86_400 * 7)
    """How long a session lasts after its last renewal. Requests renew it after a sixth of this
    time, but not within 5 s, or within half of this time if that is shorter. When you change it,
    active visitors stay, and no running session ends earlier than announced."""
    session_max_duration: Seconds | None = Field(default=None, ge=5, le=86_400 * 30)
    """How long a session lasts in all, even if its visitor is still active. None: no limit."""
    keepalive_max_duration: Seconds = Field(default=1800, ge=0, le=86_400)
    """How long the script `/_waitroom/ROOM/keep.js` renews the session of a visitor who types or
    scrolls in one page, counted from the opening of the page. 0: not at all."""
    disable_session_renewal: bool = False
    """If true, no request renews a session: `session_duration` counts from its begin, and its
    cookie is set once."""
    queueing_method: Literal["fifo", "random", "passthrough", "reject"] = "fifo"
    """Which visitor is called next. `fifo`: the one who has waited longest. `random`: any
    visitor in the queue. `passthrough`: all visitors pass and are not counted. `reject`: visitors
    who find no free session are turned away instead of waiting."""
    queue_all: bool = False
    """If true, all newcomers wait and nobody is called. Active visitors stay."""
    suspended: bool = False
    """Switches the room off: all visitors pass and are not counted."""
    max_waiting: Count | None = Field(default=None, ge=0, le=1_000_000_000)
    """The maximum length of the queue. When it is reached, newcomers are told that the queue is
    full. 0: newcomers may not wait, and the queue is called until it is empty."""
    rank_limit: Count | None = Field(default=None, ge=1, le=1_000_000_000)
    """With 2000, a visitor further back than position 2,000 sees "2,000+" instead of a number."""
    lines: Lines = ()
    """Sub-queues, 2 to 4, in the order in which they are called. Each has a length and positions of
    its own. Empty: one queue."""
    classes: Classes = {}
    """Gives some visitors a head start, a priority or a sub-queue of their own. A visitor gets a
    class by a grant or `class_header`. 7 classes at most; a name has at most 32 lower-case letters,
    digits, `-` and `_`."""
    class_header: bool = False
    """Takes a visitor's class from `$waitroom_class` in nginx. Only for our nginx includes:
    another proxy must remove `X-Waitroom-Class` from what visitors send."""
    display: Literal["arrival", "order"] = "arrival"
    """The position that is shown in a room with classes. `arrival`: counts who came before, so
    that it never grows when a visitor of a class goes ahead. `order`: counts who is called earlier.
    The estimated wait always follows `order`."""
    events: Events = ()
    """Openings by the clock, 20 at most, one at a time: sales that begin at a set time, with or
    without a pre-queue."""
    between_events: Literal["closed", "open"] = "closed"
    """What a room with events does outside of them. `closed`: no newcomer enters or takes a place,
    and the page counts down to the next event. `open`: it works as a room without events."""
    heartbeat_timeout: Seconds = Field(default=120, ge=10, le=86_400)
    """How long waiting visitors keep their place after their next poll was due."""
    heartbeat_interval: Seconds | None = Field(default=None, ge=1, le=3600)
    """How often the waiting page polls, at most half of `heartbeat_timeout`. None: a tenth of the
    expected wait, from 2 s near the head of the queue to 60 s."""
    sweep_interval: Seconds = Field(default=120, ge=1, le=3600)
    """How often visitors who no longer poll are removed from the queue. The queue does not wait
    for it: such a visitor at the head is skipped at once."""
    claim_window: Seconds = Field(default=30, ge=5, le=3600, validate_default=True)
    """How long a called visitor has to arrive, counted from their next due poll; at most
    `heartbeat_timeout`. A page that polls often has less: the time of three polls, but at least
    10 s. Then the slot goes to the next visitor, and the late one is next on return. A place that
    was never polled ends after this time too. So does the session of a newcomer who was admitted at
    once and has not sent the cookie, if visitors wait or nine of ten slots are taken."""
    rejoin_window: Seconds = Field(default=600, ge=0, le=86_400)
    """How long visitors who lost their place because they did not poll (a sleeping phone, a tunnel)
    can get it back, counted from their last poll; up to five minutes longer. Later they join at the
    end. After Redis lost its data, visitors get their earlier places back within this time."""
    poll_limit: Count = Field(default=30, ge=1, le=1_000_000_000)
    """How many polls a minute a visitor may send before they are due. Further polls are answered
    with 429."""
    shield_above: Count = Field(default=500, ge=1, le=10_000_000)
    """The shield goes up when more newcomers than this arrive at one replica within a second. The
    waiting page then asks for a place itself after a random delay; nobody gets one sooner. Clients
    without cookies and scripts get an answer from nginx alone."""
    on_store_failure: Literal["bounded", "admit", "wait"] = "bounded"
    """Which visitors are admitted while Redis is unavailable. `bounded`: each replica admits its
    share of the free sessions and of `new_users_per_minute`, and nobody if visitors waited.
    `admit`: all, waiting visitors too. `wait`: none. Active visitors pass in any case. Admitted
    visitors keep their session afterwards; a room over its cap calls nobody."""
    recovery_window: Seconds | None = Field(default=None, ge=0, le=3600)
    """How long nobody is called after Redis lost its data, so that visitors can show their cookies
    first. None: twice the longest poll interval at the head of the queue, 5 s at least; 65 s if
    all replicas restarted too. With less, some visitors come too late, because nginx keeps
    verdicts for three seconds."""
    bind_pass: Literal["none", "user_agent", "ip"] = "none"  # noqa: S105 - not a password
    """Who may use a pass. `none`: any client that has it. `user_agent`: only the browser that it
    was given to. `ip`: only the address that it was given to, or its IPv6 network of 64 bits;
    shown elsewhere, the session ends, so a visitor who changes between IPv4 and IPv6 starts anew
    each time. nginx keeps verdicts by cookie alone, so a replica checks a bound pass at every
    request."""
    max_places_per_address: Count | None = Field(default=None, ge=1, le=100)
    """How many places and sessions one address may have, or one IPv6 network of 64 bits. Beyond
    it, its newcomers learn that the room is full, and so do visitors who return to a lost place.
    None by default, because offices and mobile carriers share one address. Behind a
    load balancer, set `set_real_ip_from` in nginx first."""
    rollout_percent: Percent = Field(default=100, ge=0, le=100)
    """The share of newcomers that the room applies to. The others pass and are not counted. A
    visitor keeps the same lot on all replicas, so a higher percentage only adds visitors."""
    exempt_addresses: Networks = None
    """Requests from these networks or addresses pass and are not counted; 1,000 at most. The
    address is the one that nginx sees, as for `max_places_per_address`."""
    exempt_paths: Paths = None
    """Requests for these paths, and for all below them, pass and are not counted; 100 at most,
    decoded. A path that can be read in two ways (`..`, `//`, `;`, `%2f`) is never exempt. Works
    with nginx only. A location without a room costs less."""
    exempt_header: bool = False
    """Lets requests pass uncounted for which nginx sets `$waitroom_exempt`. Only for our nginx
    includes: another proxy must remove `X-Waitroom-Exempt` from what visitors send."""
    queueing_status_code: Annotated[Literal[200, 202, 429, 503], BeforeValidator(from_text)] = 503
    """The HTTP status of the waiting page. With 503 and 429, search engines and caches do not keep
    it."""
    json_format: Literal["waitroom", "cloudflare"] = "waitroom"
    """What a waiting program gets that accepts JSON and not HTML. `waitroom`: a problem document
    with its numbers. `cloudflare`: Cloudflare's `cfWaitingRoom`, with the room's
    `queueing_status_code`."""
    notify_above: Count | None = Field(default=None, ge=1, le=1_000_000_000)
    """Sends the webhook `queue_over` when more visitors than this wait, and not again until fewer
    than 80 % of this number waited."""
    public_url: Annotated[str, AfterValidator(_read_site)] | None = None
    """The address of your site, without a path. Links in the webhook `called` begin with it. None:
    those links are paths."""
    message: str | None = Field(default=None, max_length=500)
    """A message from you on the waiting page. None: no message."""
    template: Annotated[str, AfterValidator(_check_template)] | None = None
    """A waiting page of your own: the name of a Mustache file in `template_dir`, such as
    `shop.html`. It replaces the whole page, and a change of the file is seen at once. None: the
    waiting page."""
    site_name: str | None = Field(default=None, min_length=1, max_length=80)
    """Your site's name on the waiting page. None: the one in `waiting.html`."""
    logo: SitePath | None = None
    """The logo on the waiting page: a path on your site, such as `/_waitroom/static/shop.svg`.
    Browsers load it from your own address only. Use a path that no room applies to. None:
    `logo.svg`."""
    accent: ColourText | None = None
    """The colour of the progress bar and of the main button: `#0f766e`, or `rgb()`, `hsl()` or
    `oklch()`. Text on it is black or white, whichever reads better. Where it is too pale or too
    dark for the card behind it, lines and texts get a stronger shade of it. None: the one in
    `waiting.css`."""
    background: ColourText | None = None
    """The colour of the page around the card, written like `accent`. Text on it is black or white.
    A visitor's dark mode has a dark shade of it. None: the one in `waiting.css`."""
    font: Font | None = None
    """The font of the waiting page: families that visitors have installed, such as
    `Inter, Helvetica Neue, sans-serif`, or the path of a font file on your site. None: the one in
    `waiting.css`."""
    footer: Links = ()
    """Links below the waiting page, 8 at most. Websites open in a new tab, so that nobody leaves
    the queue. Empty: those in `waiting.html`."""
    custom_css: StyleSheet | None = None
    """Your own rules for the waiting page, 10,000 characters at most. `url()` takes a picture or a
    font on your site. Not allowed: `@import`, addresses of other sites, and a backslash outside of
    quotes."""

    # A rule between two fields belongs to the later field. A validator of the whole model would run
    # only if all fields are valid, so the problems of single fields would hide its problem.
    @field_validator("heartbeat_interval", "claim_window")
    @classmethod
    def _check_against_timeout(cls, value: float | None, info: ValidationInfo) -> float | None:
        timeout: float | None = info.data.get("heartbeat_timeout")
        if value is None or timeout is None:
            return value
        if info.field_name == "claim_window" and value > timeout:
            raise ValueError(f"must not be longer than heartbeat_timeout ({timeout:g} s)")
        if info.field_name == "heartbeat_interval" and value > timeout / 2:
            raise ValueError(f"must be at most half of heartbeat_timeout ({timeout:g} s)")
        return value

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, value: Classes, info: ValidationInfo) -> Classes:
        if problems := find_class_problems(value, info.data.get("lines")):
            raise ValueError("\n".join(problems))
        return value

    @property
    def is_open(self) -> bool:
        """Whether all visitors pass without being counted."""
        return self.suspended or self.queueing_method == "passthrough"

    @property
    def shortest_claim_s(self) -> float:
        """The shortest time in s for which a called visitor's slot is held, that of three polls.
        The same as `patience_ms` in rooms/lua/parts/no_show.lua."""
        return min(self.claim_window, max(10, 3 * (self.heartbeat_interval or 2)))

    @property
    def mode(self) -> Literal["open", "paused", "draining", "running"]:
        """The room's mode. open: all visitors pass. paused: nobody is called. draining: newcomers
        may not wait, and the queue is called. running: none of these."""
        if self.is_open:
            return "open"
        if self.queue_all:
            return "paused"
        return "draining" if self.max_waiting == 0 else "running"

    def moments(self, now_ms: int) -> Moments:
        """Return the room's phase, current event and next event at a time."""
        return moments(self.events, now_ms, is_open_between=self.between_events == "open")

    def for_scripts(
        self,
        *,
        events_kept: int = EVENTS_KEPT,
        tells_called: bool = False,
        outage_ms: int = OUTAGE_MS,
    ) -> dict[str, Any]:
        """Return the settings that the scripts read, without those that are None.

        Args:
            events_kept: About how many events the room's stream holds at most.
            tells_called: Whether a webhook reports calls, so that visitors need no open page.
            outage_ms: If no script ran for longer than this, there was an outage.
        """
        values: dict[str, Any] = self.model_dump(exclude_none=True, exclude=_NOT_FOR_SCRIPTS)
        for event in values["events"]:
            for name in _EVENT_FIELDS_NOT_FOR_SCRIPTS & event.keys():
                del event[name]
        for name in ("lines", "classes", "events"):
            if not values[name]:
                del values[name]
        return values | {
            "events_kept": events_kept,
            "tells_called": tells_called,
            "outage_ms": outage_ms,
            "session_grace_ms": SESSION_GRACE_MS,
            "release_hold_ms": RELEASE_HOLD_MS,
        }

    def changed(self, overrides: dict[str, Any]) -> "RoomSettings":
        """Return these settings with some replaced. Raises InputError naming each field that is
        unknown or not allowed."""
        try:
            return RoomSettings.model_validate({**self.model_dump(), **overrides})
        except ValidationError as error:
            raise InputError(describe_problems(error, RoomSettings)) from None

    def overridden(self, overrides: dict[str, Any]) -> "tuple[RoomSettings, list[str]]":
        """Return these settings with the overrides from run time applied, and the problems of the
        overrides. An override that is invalid, or that only a later version knows, is left out.
        The others are applied, because the scripts apply them too."""
        try:
            return (self.changed(overrides) if overrides else self), []
        except InputError as error:
            problems = error.problems
        settings, remaining = self, dict(overrides)
        for _ in overrides:  # an override may need a later one, as a class its sub-queue
            for name in list(remaining):
                with contextlib.suppress(InputError):
                    settings = settings.changed({name: remaining[name]})
                    del remaining[name]
        return settings, problems


def merge_settings(
    file: RoomSettings, overrides: dict[str, Any], now_ms: int
) -> tuple[RoomSettings, list[str]]:
    """Return the settings in force, and the problems of the overrides. Overrides from run time
    replace the file's settings, and an open event replaces both. The scripts do the same
    (rooms/lua/parts/settings.lua, openings.lua; tests/rooms/test_effective.py)."""
    settings, problems = file.overridden(overrides)
    return apply_event_settings(settings, settings.moments(now_ms)), problems
