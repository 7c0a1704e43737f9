"""The settings of one room. All of them can be changed at run time, with the same validation."""

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
from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.adaptive.settings import Adaptive
from sidecar.rooms.appearance import APPEARANCE, ColourText, Font, Links, SitePath, StyleSheet
from sidecar.rooms.hold import HoldSetting
from sidecar.rooms.messages import Message, drop_if_ended
from sidecar.rooms.openings import Events, Schedule, apply_event_settings, find_schedule
from sidecar.visitors.classes import Classes, Lines, find_class_problems
from sidecar.visitors.verdict_lifetime import OUTAGE_MS, RELEASE_HOLD_MS, SESSION_GRACE_MS

#: The approximate maximum length of a room's event stream if no history is stored.
EVENTS_KEPT = 100_000
_SITE = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?/?\Z")
#: The settings that the Lua scripts do not need.
_NON_SCRIPT_SETTINGS = {
    *("message", "site_name", "logo", "template", "public_url", "rank_limit", *APPEARANCE),
    *("queueing_status_code", "json_format", "keepalive_max_duration", "bind_pass"),
    *("rollout_percent", "exempt_addresses", "exempt_paths", "exempt_header", "class_header"),
    *("suspended", "sweep_interval", "shield_above", "on_store_failure", "notify_above"),
    *("pause_on_error_share", "pause_on_response_time", "release_by_header"),
}
#: The fields of an event that the Lua scripts do not need.
_NON_SCRIPT_EVENT_FIELDS = {"name", "message", "timezone"}


def _read_site(value: str) -> str:
    """Check the URL of a site, and return it without the slash at its end."""
    match = _SITE.match(value)
    if match is None or int((match[2] or ":443")[1:]) not in range(1, 65_536):
        raise ValueError("write the site's address, such as https://shop.example, without a path")
    return value.rstrip("/")


def _check_template(value: str) -> str:
    """Check the name of a template file. The name may not be a path: operators may choose among the
    files in template_dir, but may not read or write other files."""
    if not TEMPLATE_NAME.match(value):
        raise ValueError("write the name of a file in template_dir, such as shop.html")
    return value


class RoomSettings(BaseModel):
    """The settings of one room. Durations are in seconds, or strings such as "5m"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    total_active_users: Count = Field(ge=0, le=10_000_000)
    """The cap: how many sessions the room may have at a time, including those of visitors who have
    been called but have not arrived yet. When you lower the cap, active visitors stay."""
    adaptive: Adaptive = None
    """A table, `[rooms.NAME.adaptive]`. With it, the room learns from the site's response times and
    errors how many visitors the site can serve, up to the cap. None: only the cap applies."""
    pause_on_error_share: float | None = Field(default=None, gt=0, le=1)
    """Nobody is called while more than this share of the site's responses are errors (5xx, 429 and
    failed connections). Requires `health_listen`, as `adaptive` does. None: no such pause."""
    pause_on_response_time: Seconds | None = Field(default=None, ge=0.01, le=600)
    """Nobody is called while more than 10 % of the site's responses take longer than this. Requires
    `health_listen`. None: no such pause."""
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    """The maximum number of visitors admitted per minute, spread evenly. Called visitors who do not
    arrive count too. None: visitors are admitted as soon as slots are free."""
    session_duration: Seconds = Field(default=300, ge=5, le=86_400 * 7)
    """How long a session lasts after its last renewal. A request renews the session if enough time
    has passed since the last renewal: a sixth of this setting, but at least 5 s (or half of this
    setting, if that is shorter). A change of this setting does not shorten running sessions."""
    session_max_duration: Seconds | None = Field(default=None, ge=5, le=86_400 * 30)
    """The maximum duration of a session, even if its visitor is active. None: no limit."""
    max_extension: Seconds | None = Field(default=None, ge=1, le=86_400)
    """The maximum time by which a header of your site's responses can extend a session. After
    `X-Waitroom-Extend: 600`, the receiving visitor's session lasts for at least 600 more seconds.
    Requires `waitroom/site-headers.conf` and `health_listen`. None: the header has no effect."""
    release_by_header: bool = False
    """Whether the header `X-Waitroom-Release: 1` in a response from your site ends the receiving
    visitor's session. Requires `waitroom/site-headers.conf` and `health_listen`."""
    keepalive_max_duration: Seconds = Field(default=1800, ge=0, le=86_400)
    """How long the script `/_waitroom/ROOM/keep.js` renews the session of a visitor who types or
    scrolls on a page, counted from the time at which the page was opened. 0: never."""
    disable_session_renewal: bool = False
    """If true, a session always ends `session_duration` after its start. The cookie is set once."""
    queueing_method: Literal["fifo", "random", "passthrough", "reject"] = "fifo"
    """Which visitor is called next. `fifo`: the visitor who has waited longest. `random`: any
    visitor in the queue. `passthrough`: all visitors pass and are not counted. `reject`: visitors
    who arrive while no slot is free are turned away instead of waiting."""
    queue_all: bool = False
    """If true, all newcomers wait and nobody is called. Active visitors stay."""
    hold: HoldSetting = None
    """A temporary pause, after which visitors are admitted gradually: a table with `until` and
    `why`. `waitroom rooms hold`, an alert or a setting `pause_on_…` starts it. None: no hold."""
    suspended: bool = False
    """If true, the room is off: all visitors pass and are not counted."""
    max_waiting: Count | None = Field(default=None, ge=0, le=1_000_000_000)
    """The maximum length of the queue. When the queue is that long, newcomers are told that it is
    full. 0: newcomers may not wait, and visitors are called until the queue is empty."""
    rank_limit: Count | None = Field(default=None, ge=1, le=1_000_000_000)
    """The highest position shown as a number. With 2000, visitors further back see "2,000+"."""
    lines: Lines = ()
    """2 to 4 sub-queues in calling order, each with its own positions. Empty: one queue."""
    classes: Classes = {}
    """At most 7 classes. A class gives its visitors a head start, a priority or a sub-queue. A
    grant or `class_header` tells who belongs to it. A class name has at most 32 characters:
    lower-case letters, digits, `-` and `_`."""
    class_header: bool = False
    """Whether a visitor's class is read from `$waitroom_class` in nginx. Our nginx include files
    replace a client's header `X-Waitroom-Class`; any other proxy must remove it."""
    display: Literal["arrival", "order"] = "arrival"
    """Which position is shown in a room with classes. `arrival`: the position counts visitors who
    came earlier, and does not grow when a visitor with a class goes ahead. `order`: the position
    counts visitors who will be called earlier. The estimated wait is always based on `order`."""
    events: Events = ()
    """At most 20 scheduled openings, with or without a pre-queue. They must not overlap."""
    between_events: Literal["closed", "open"] = "closed"
    """The state of a room with events while no event is on. `closed`: no newcomer enters or gets a
    place, and the page counts down to the next event. `open`: the same as without events."""
    heartbeat_timeout: Seconds = Field(default=120, ge=10, le=86_400)
    """How long waiting visitors who stop polling keep their place after their next poll was due."""
    heartbeat_interval: Seconds | None = Field(default=None, ge=1, le=3600)
    """The time between two polls of the waiting page; at most half of `heartbeat_timeout`. None: a
    tenth of the expected wait, but at least 2 s (near the head of the queue) and at most 60 s."""
    sweep_interval: Seconds = Field(default=120, ge=1, le=3600)
    """How often visitors who no longer poll are removed from the queue. Until then, these visitors
    are skipped at the head of the queue, so they do not hold it up."""
    claim_window: Seconds = Field(default=30, ge=5, le=3600, validate_default=True)
    """How long a called visitor has to arrive, counted from when their next poll is due; at most
    `heartbeat_timeout`. If the page polls often, the time is shorter: three poll intervals, but at
    least 10 s. After that, the slot goes to the next visitor, and a visitor who returns late goes
    to the head of the queue. A place whose visitor never polls also ends after this time. While
    visitors are waiting, or at least 90 % of the slots are taken, a newcomer who is admitted at
    once and does not send the cookie back in this time loses the session."""
    rejoin_window: Seconds = Field(default=600, ge=0, le=86_400)
    """How long visitors who did not poll (a sleeping phone, a tunnel) can get their lost place
    back, counted from their last poll; sometimes up to five minutes longer. Later, they join at the
    end of the queue. This setting also applies after Redis has lost its data."""
    poll_limit: Count = Field(default=30, ge=1, le=1_000_000_000)
    """How many polls per minute a visitor may send before they are due. Further early polls are
    answered with 429."""
    shield_above: Count = Field(default=500, ge=1, le=10_000_000)
    """The shield goes up when more newcomers than this arrive at one replica within a second. nginx
    alone then answers clients without cookies and scripts, and the waiting page requests a place
    after a random delay, which no client can skip."""
    on_store_failure: Literal["bounded", "admit", "wait"] = "bounded"
    """Which visitors are admitted while Redis is unavailable. `bounded`: each replica admits its
    share of the free slots and of `new_users_per_minute`, but nobody while visitors are waiting.
    `admit`: everybody, including waiting visitors. `wait`: nobody. Active visitors always pass.
    Sessions that begin during the outage stay valid. If the room is over its cap afterwards, nobody
    is called until enough visitors have left."""
    recovery_window: Seconds | None = Field(default=None, ge=0, le=3600)
    """How long nobody is called after Redis has lost its data, so that visitors can first get their
    places back with their cookies. None: twice the longest poll interval near the head of the
    queue, but at least 5 s; 65 s if all replicas restarted too. If you set less than 5 s, some
    visitors come back too late, because nginx caches verdicts for three seconds."""
    bind_pass: Literal["none", "user_agent", "ip"] = "none"  # noqa: S105 - not a password
    """Which client may use a pass. `none`: any client that has it. `user_agent`: only the browser
    that it was issued to. `ip`: only clients at the IP address, or in the 64-bit IPv6 network, to
    which it was issued. If any other client sends the pass, the session ends; with `ip`, a visitor
    who switches between IPv4 and IPv6 therefore has to start again each time. A replica checks a
    bound pass at every request, because nginx caches verdicts by cookie alone."""
    max_places_per_address: Count | None = Field(default=None, ge=1, le=100)
    """How many places and sessions one IP address, or one 64-bit IPv6 network, may have. When an
    address has that many, further visitors from it are told that the room is full, even if they
    want a lost place back. The default is None, because an office or a mobile carrier may have one
    address for many people. Behind a load balancer, first set `set_real_ip_from` in nginx."""
    rollout_percent: Percent = Field(default=100, ge=0, le=100)
    """The percentage of newcomers to whom the room applies. The others pass and are not counted.
    All replicas choose the same visitors, and raising the percentage only adds visitors."""
    exempt_addresses: Networks = None
    """At most 1,000 IP addresses and networks whose requests pass without being counted. The
    client's address is the one that nginx sees, as for `max_places_per_address`."""
    exempt_paths: Paths = None
    """Requests for these paths, and for all paths below them, pass and are not counted. Write at
    most 100 paths, without percent-encoding. An ambiguous path (`..`, `//`, `;`, `%2f`) is never
    exempt. This setting works only with nginx, where a location without a room costs less."""
    exempt_header: bool = False
    """Whether requests for which nginx sets `$waitroom_exempt` pass and are not counted. Our nginx
    include files replace a client's header `X-Waitroom-Exempt`; any other proxy must remove it."""
    queueing_status_code: Annotated[Literal[200, 202, 429, 503], BeforeValidator(from_text)] = 503
    """The waiting page's HTTP status. Search engines and caches store no page with 503 or 429."""
    json_format: Literal["waitroom", "cloudflare"] = "waitroom"
    """The response to a waiting client that accepts JSON but not HTML. `waitroom`: a problem
    document with the client's position and expected wait. `cloudflare`: Cloudflare's
    `cfWaitingRoom` document, with the status `queueing_status_code`."""
    notify_above: Count | None = Field(default=None, ge=1, le=1_000_000_000)
    """The webhook `queue_over` is sent when more visitors than this are waiting. It is sent again
    only if fewer than 80 % of this number were waiting in the meantime."""
    public_url: Annotated[str, AfterValidator(_read_site)] | None = None
    """Your site's URL without a path, for links in the webhook `called` and on the dashboard. None:
    links in `called` are paths, and the dashboard has no links."""
    message: Message | None = None
    """Your message (at most 500 characters) on the waiting page. For several languages, write a
    table with a text per language; for all others, `text` is shown or, without it, `en` or the
    first text. If the table has `until`, the message is shown until then. None: no message."""
    template: Annotated[str, AfterValidator(_check_template)] | None = None
    """Your own waiting page: a Mustache file in `template_dir`, such as `shop.html`. The file
    replaces the whole page; changes to it take effect at once. None: the built-in waiting page."""
    site_name: str | None = Field(default=None, min_length=1, max_length=80)
    """Your site's name on the waiting page. None: the name in `waiting.html`."""
    logo: SitePath | None = None
    """The logo on the waiting page: a path on your site that no room covers, such as
    `/_waitroom/static/shop.svg`. Browsers load it only from your own site. None: `logo.svg`."""
    accent: ColourText | None = None
    """The colour of the progress bar and of the main button: any opaque CSS colour. Text on the
    button is black or white, whichever is easier to read. Lines and texts in this colour get a
    stronger shade if the contrast with the card is too low. None: the colour in `waiting.css`."""
    background: ColourText | None = None
    """The colour of the page around the card, written like `accent`. Text on it is black or white.
    In dark mode, a dark shade of this colour is used. None: the colour in `waiting.css`."""
    font: Font | None = None
    """The waiting page's font: names of fonts on visitors' devices, such as `Inter, Helvetica Neue,
    sans-serif`, or the path of a font file on your site. None: the font in `waiting.css`."""
    footer: Links = ()
    """At most 8 links at the bottom of the waiting page. Links to websites open in a new tab, so
    that nobody leaves the queue. Empty: the links in `waiting.html`."""
    custom_css: StyleSheet | None = None
    """At most 10,000 characters of CSS for the waiting page. `url()` may load images and fonts from
    your site. `@import`, URLs of other sites and backslashes outside quotes are forbidden."""

    # A rule about two fields is checked with the later one. A validator of the whole model runs
    # only if all fields are valid, so its problem would be reported after theirs are fixed.
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
        """The shortest time, in seconds, for which a called visitor's slot is kept: three poll
        intervals, by the same rule as get_patience_ms in rooms/lua/parts/no_show.lua."""
        return min(self.claim_window, max(10, 3 * (self.heartbeat_interval or 2)))

    @property
    def mode(self) -> Literal["open", "paused", "draining", "running"]:
        """The room's mode. open: all visitors pass. paused: nobody is called. draining: newcomers
        may not wait, and the visitors in the queue are called. running: none of these."""
        if self.is_open:
            return "open"
        if self.queue_all:
            return "paused"
        return "draining" if self.max_waiting == 0 else "running"

    @property
    def line_labels(self) -> dict[str, dict[str, str]]:
        """Get the labels of the sub-queues that the waiting page shows: name -> language -> label.
        The last sub-queue, where visitors without a class wait, is shown only if it has labels."""
        shown_lines = (line for line in self.lines if line.labels or line is not self.lines[-1])
        return {line.name: line.labels or {"en": line.name} for line in shown_lines}

    @property
    def is_site_measured(self) -> bool:
        """Whether nginx's reports of the site's responses are used."""
        limits = self.pause_on_error_share, self.pause_on_response_time
        return limits != (None, None) or (self.adaptive is not None and self.adaptive.mode != "off")

    @property
    def settings_needing_reports(self) -> list[str]:
        """The names of the used settings that need nginx's reports (`health_listen`)."""
        names = ["pause_on_error_share", "pause_on_response_time"]
        names += ["max_extension", "release_by_header"]
        if self.adaptive is not None and self.adaptive.mode != "off":
            names.insert(0, "adaptive")
        return [name for name in names if getattr(self, name)]

    @property
    def slow_s(self) -> float | None:
        """The response time above which a response is slow, in seconds. None if none is set."""
        limits = self.pause_on_response_time, self.adaptive.p90 if self.adaptive else None
        return min((limit for limit in limits if limit is not None), default=None)

    def find_cap(self, learned: Learned | None) -> int:
        """Return the cap in force: in an adaptive room, at most what the site can serve."""
        cap = self.total_active_users
        return cap if self.adaptive is None else self.adaptive.lower_cap(cap, learned)

    def schedule_at(self, now_ms: int) -> Schedule:
        return find_schedule(self.events, now_ms, is_open_between=self.between_events == "open")

    def find_message(self, schedule: Schedule, now_ms: int) -> str | dict[str, Any] | None:
        """Return the message that visitors see now: the open event's, or else the room's own."""
        return drop_if_ended(schedule.overrides.get("message", self.message), now_ms)

    def get_script_settings(
        self,
        *,
        events_kept: int = EVENTS_KEPT,
        tells_called: bool = False,
        outage_ms: int = OUTAGE_MS,
    ) -> dict[str, Any]:
        """Return the settings that the Lua scripts read, without those that are None.

        Args:
            events_kept: The approximate maximum number of entries in the room's event stream.
            tells_called: Whether a webhook reports calls, so that visitors may close the page.
            outage_ms: The longest time without a script call that does not count as an outage.
        """
        values: dict[str, Any] = self.model_dump(exclude_none=True, exclude=_NON_SCRIPT_SETTINGS)
        for event in values["events"]:
            for name in _NON_SCRIPT_EVENT_FIELDS & event.keys():
                del event[name]
        for line in values["lines"]:
            line.pop("labels", None)
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

    def with_overrides(self, overrides: dict[str, Any]) -> "RoomSettings":
        """Return these settings with the overrides applied. Raises InputError, which names each
        field that is unknown or not allowed."""
        try:
            return RoomSettings.model_validate({**self.model_dump(), **overrides})
        except ValidationError as error:
            raise InputError(describe_problems(error, RoomSettings)) from None

    def with_valid_overrides(self, overrides: dict[str, Any]) -> "tuple[RoomSettings, list[str]]":
        """Return these settings with all valid overrides applied, and the problems of the invalid
        ones. An override is invalid, for example, if only a later version knows the setting. The
        valid ones are applied nevertheless, because the Lua scripts apply them too."""
        try:
            return (self.with_overrides(overrides) if overrides else self), []
        except InputError as error:
            problems = error.problems
        settings, remaining = self, dict(overrides)
        for _ in overrides:  # an override may need a later one: a class needs its sub-queue
            for name in list(remaining):
                with contextlib.suppress(InputError):
                    settings = settings.with_overrides({name: remaining[name]})
                    del remaining[name]
        return settings, problems


def merge_settings(
    file_settings: RoomSettings, overrides: dict[str, Any], now_ms: int
) -> tuple[RoomSettings, list[str]]:
    """Return the settings in force, and the problems of the overrides. Changes made at run time
    replace the file's settings, an open event replaces both, and a hold pauses the room. The Lua
    scripts merge the same way (rooms/lua/parts/settings.lua and openings.lua)."""
    settings, problems = file_settings.with_valid_overrides(overrides)
    if settings.hold:
        is_held = now_ms < settings.hold.until
        settings = settings.model_copy(update={"queue_all": True} if is_held else {"hold": None})
    return apply_event_settings(settings, settings.schedule_at(now_ms)), problems
