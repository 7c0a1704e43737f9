"""Texts of the sections of docs/settings.md, with examples and links."""

import tomllib
from dataclasses import dataclass, field

from pydantic import BaseModel

from sidecar.history.settings import HistorySection
from sidecar.jobs.settings import TargetSettings
from sidecar.leases.settings import LeaseSettings
from sidecar.limits.settings import LimitSettings
from sidecar.rooms.appearance import Link
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.model import Settings
from sidecar.settings.operators import OperatorAccount
from sidecar.visitors.classes import SubQueueSettings, VisitorClass
from sidecar.webhooks.settings import Webhook

INTRODUCTION = """\
# Settings

Every setting, with its type, default and an example. [Configuration](configuration.md) says where
to write settings, and which ones you need first.

A **duration** is a number of seconds, or text with a unit: `"500ms"`, `"30s"`, `"5m"`, `"1.5h"`,
`"2d"`. A **whole number** is written without commas. *None* as a default means that the
setting is not set; the text says what happens then."""


@dataclass(frozen=True)
class Section:
    title: str
    model: type[BaseModel]
    text: str
    #: What the settings belong to, for headings, because other sections have the same names.
    of_what: str = ""
    belongs_to: str = ""
    #: A line of TOML for each setting whose example cannot be derived from its default.
    lines: str = ""
    #: Settings that come after the others.
    last: tuple[str, ...] = ()
    #: Links to further explanations, by setting.
    more: dict[str, str] = field(default_factory=dict)

    @property
    def examples(self) -> dict[str, str]:
        found = {}
        for line in self.lines.strip().splitlines():
            (name,) = tomllib.loads(line)
            found[name] = line
        return found


REPLICA = Section(
    "The replica",
    Settings,
    """\
These settings are at the top of the file, before the first table. The environment variable of
`store` is `WAITROOM_STORE`, and so on. To apply a change, restart the replica; for `log_level` and
`log_format`, a reload is enough.""",
    last=(*HistorySection.model_fields, "demo"),
    lines="""
store = "redis://127.0.0.1:6379/0"
secret_keys = ["3f9c…64 characters in all…"]
grant_keys = ["77b0…64 characters in all…"]
admin_token = "c41d…32 characters or more…"
operators.anna = { role = "viewer", password = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$Rdescudv" }
operator_header = "Remote-User"
operator_header_from = ["10.0.0.7"]
operator_header_role = "viewer"
service_token = "9e02…32 characters or more…"
tokens = { shop = "5a7e…32 characters or more…" }
scopes = { shop = ["jobs", "read"] }
edge_listen = "10.0.0.5:8400"
ops_listen = "10.0.0.5:8401"
done_listen = "127.0.0.1:8402"
health_listen = "127.0.0.1:8403"
static_dir = "/srv/waitroom/static"
template_dir = "/srv/waitroom/templates"
log_level = "warning"
shutdown_delay = "10s"
event_streams = 5000
history = "postgresql://waitroom:PASSWORD@db.internal/waitroom"
jobs = "postgresql://waitroom:PASSWORD@db.internal/waitroom"
leases = { seat = { term = "5m" } }
limits = { pay = { algorithm = "fixed_window", limit = 20, window = "1s" } }
targets = { images = { url = "https://images.example/v1/" } }
rooms = { shop = { total_active_users = 300 } }
webhooks = { team = { url = "https://example.com/hook" } }
""",
    more={
        "store": "[the address of Redis](configuration.md#the-address-of-redis)",
        "secret_keys": "[changing the key](security.md#changing-the-key)",
        "grant_keys": "[who is next](who-is-next.md)",
        "admin_token": "[the dashboard](dashboard.md)",
        "operators": "[operators and roles](access.md#operators-and-roles)",
        "operator_header": "[sign-in by a proxy](access.md#sign-in-by-a-proxy)",
        "service_token": "[the API](api.md)",
        "scopes": "[who may do what](access.md)",
        "done_listen": "[permits](nginx-calls.md#permits)",
        "health_listen": "[adaptive rooms](adaptive.md)",
        "event_streams": "[server-sent events](webhooks.md#server-sent-events)",
        "history": "[history](history.md)",
        "jobs": "[jobs](jobs.md)",
    },
)
ROOM = Section(
    "A room",
    RoomSettings,
    """\
A table for each room, `[rooms.NAME]`. Only `total_active_users` is needed. You can change each
setting while the room runs: `waitroom rooms set NAME SETTING=VALUE`. The variable of
`total_active_users`, for a room `shop`, is `WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS`.

```toml
[rooms.shop]
total_active_users = 300
session_duration = "10m"
```""",
    lines="""
total_active_users = 300
adaptive = { mode = "on", p90 = "1.2s", min = 50 }
pause_on_error_share = 0.2
pause_on_response_time = "3s"
new_users_per_minute = 600
session_max_duration = "2h"
max_extension = "10m"
keepalive_max_duration = "1h"
hold = { until = "2027-06-01 10:00", why = "maintenance" }
max_waiting = 50000
rank_limit = 2000
lines = [{ name = "members", weight = 3 }, { name = "ordinary", weight = 7 }]
classes = { vip = { head_start = "5m" } }
events = [{ name = "sale", opens_at = "2027-06-01 10:00" }]
heartbeat_interval = "10s"
recovery_window = "30s"
max_places_per_address = 20
exempt_addresses = ["192.0.2.0/24", "2001:db8::7"]
exempt_paths = ["/static/", "/feed.xml"]
queueing_status_code = 429
json_format = "cloudflare"
notify_above = 1000
public_url = "https://shop.example"
message = "Tickets are still available."
template = "shop.html"
site_name = "Alpenrock Tickets"
logo = "/_waitroom/static/alpenrock.svg"
accent = "#c2410c"
background = "oklch(0.97 0.02 70)"
font = "/_waitroom/static/alpenrock.woff2"
footer = [{ text = "Imprint", address = "https://alpenrock.example/imprint" }]
custom_css = "main { border-radius: 0 }"
""",
    more={
        "adaptive": "[let the room size itself](adaptive.md)",
        "pause_on_error_share": (
            "[sites in trouble](adaptive.md#pause-while-the-site-is-in-trouble)"
        ),
        "max_extension": "[the site's headers](site-headers.md)",
        "release_by_header": "[the site's headers](site-headers.md)",
        "hold": "[holds](adaptive.md#hold-the-room)",
        "message": "[messages](dashboard.md#messages)",
        "lines": "[who is next](who-is-next.md)",
        "classes": "[who is next](who-is-next.md)",
        "class_header": "[switches in nginx](nginx.md#switches)",
        "events": "[the lottery draw](draw.md)",
        "bind_pass": "[what is not defended](security.md#what-is-not-defended)",
        "max_places_per_address": "[real addresses in nginx](nginx.md#more-lines-where-needed)",
        "rollout_percent": "[roll-out](rollout.md)",
        "exempt_header": "[switches in nginx](nginx.md#switches)",
        "json_format": "[the fields](coming-from-cloudflare.md#json)",
        "notify_above": "[webhooks](webhooks.md)",
        "public_url": "[the webhook `called`](webhooks.md#called)",
        "template": "[branding](branding.md#a-template-of-your-own)",
        "accent": "[branding](branding.md#each-room-its-own)",
        "background": "[branding](branding.md#each-room-its-own)",
        "custom_css": "[branding](branding.md#rules-of-your-own)",
    },
)
CLASS = Section(
    "A class",
    VisitorClass,
    """\
What the visitors of a class get; see [who is next](who-is-next.md). `waitroom grant` makes the
links that give a class. A class may be empty: you can then tell its visitors apart in the
[history](history.md).

```toml
[rooms.shop.classes]
vip = { head_start = "5m" }
partner = { priority = 1 }
```""",
    of_what="class",
    belongs_to="A room",
    lines="""
head_start = "5m"
priority = 1
line = "members"
""",
)
LINE = Section(
    "A line",
    SubQueueSettings,
    """\
One sub-queue of a room. Here, members get 30 % of the calls while visitors wait in both.

```toml
[[rooms.shop.lines]]
name = "members"
weight = 3

[[rooms.shop.lines]]
name = "ordinary"
weight = 7

[rooms.shop.classes]
member = { line = "members" }
```""",
    of_what="line",
    belongs_to="A room",
    lines="""
name = "members"
weight = 3
labels = { en = "Members", de = "Mitglieder" }
""",
)
LINK = Section(
    "A link",
    Link,
    """\
One link at the bottom of the waiting page.

```toml
[[rooms.shop.footer]]
text = "Imprint"
address = "https://shop.example/imprint"
```""",
    of_what="link",
    belongs_to="A room",
    lines="""
text = "Imprint"
address = "https://shop.example/imprint"
""",
)
EVENT = Section(
    "An event",
    RoomEvent,
    """\
A room that opens at a set time.

```toml
[[rooms.tickets.events]]
name = "summer-sale"
timezone = "Europe/Zurich"
prequeue_from = "2027-06-01 09:30"
opens_at = "2027-06-01 10:00"
closes_at = "2027-06-01 18:00"
new_users_per_minute = 600
```

1. Until 9:30 the room is closed.
2. From 9:30, visitors take places. They see no position yet.
3. At 10:00 the places are drawn by lot. Visitors who come later stand behind them.
4. At 18:00 the room closes for newcomers.

A **time** is written `2027-06-01 10:00`, with seconds if you need them, as text or as TOML's own
type. It is in the event's `timezone`, unless it ends with an offset: `2027-06-01T10:00+02:00`,
`2027-06-01T08:00Z`. A time that the clocks skip or show twice needs an offset.

`waitroom rooms events tickets` and `waitroom check-config` show what happens when, and warn of
likely mistakes.""",
    of_what="event",
    belongs_to="A room",
    lines="""
name = "summer-sale"
timezone = "Europe/Zurich"
prequeue_from = "2027-06-01 09:30"
opens_at = "2027-06-01 10:00"
closes_at = "2027-06-01 18:00"
total_active_users = 500
new_users_per_minute = 600
message = "The summer sale is open."
""",
    more={"name": "[the lottery draw](draw.md)", "prequeue_from": "[the lottery draw](draw.md)"},
)
WEBHOOK = Section(
    "A webhook",
    Webhook,
    """\
A receiver of notifications; see [webhooks](webhooks.md). Its name is used in the log and in
variables such as `WAITROOM_WEBHOOKS__TEAM__URL_FILE`. After a change, restart the replicas.

```toml
[webhooks.team]
url = "https://hooks.slack.com/services/…"
format = "slack"
events = ["queue_over", "room_full"]
```""",
    of_what="webhook",
    lines="""
url = "https://example.com/hook"
secret = "0d51…16 characters or more…"
previous_secret = "whsec_…the base64 of 32 bytes…"
events = ["queue_over", "room_full"]
rooms = ["shop"]
""",
    more={"events": "[the webhook `called`](webhooks.md#called)"},
)
OPERATOR = Section(
    "An operator",
    OperatorAccount,
    """\
A person who logs in to the dashboard; see
[operators and roles](access.md#operators-and-roles). After a change, restart the replicas. A new
role or password ends the operator's sessions.

```toml
[operators.anna]
role = "operator"
password = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub"

[operators."ben@example.org"]
role = "viewer"
password = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub"
```""",
    of_what="operator",
    lines="""
role = "operator"
password = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub"
""",
    more={"role": "[who may do what](access.md)"},
)
LEASE = Section(
    "A lease",
    LeaseSettings,
    """\
A template of [leases](leases.md). A resource exists as soon as a client names it, and has a queue
of its own. After a change, restart the replicas.

```toml
[leases.seat]
term = "5m"
max_waiting = 20
message = "Seat {resource} is being booked."
```""",
    of_what="lease",
    lines="""
term = "5m"
max_term = "30m"
max_waiting = 20
heartbeat_interval = "5s"
resources = "[1-9][0-9]{0,3}"
message = "Seat {resource} is being booked."
queueing_status_code = 429
""",
)
LIMIT = Section(
    "A limit",
    LimitSettings,
    """\
How often something may be called; see [limits](limits.md). After a change, restart the replicas.
The limits of individual keys can be changed at run time: `waitroom limits set`.

```toml
[limits.pay]
key = "{biz}:{channel}"
algorithm = "fixed_window"
limit = 20
window = "1s"
on_exceed = "pace"
values = { "refund:wx" = 1, "test:wx" = -1 }
```""",
    of_what="limit",
    lines="""
algorithm = "fixed_window"
key = "{biz}:{channel}"
limit = 20
window = "1s"
burst = 50
values = { "refund:wx" = 1, "test:wx" = -1 }
""",
    more={
        "algorithm": "[which algorithm when](limits.md#which-algorithm-when)",
        "values": "[limits of keys](limits.md#costs-retries-keys)",
    },
)
TARGET = Section(
    "A target",
    TargetSettings,
    """\
An API that [jobs](jobs.md) may call, and how many calls it allows. Jobs call nothing else.

```toml
[targets.generate-image]
url = "https://images.example/v1/"
methods = ["POST"]
headers = { Authorization = "Bearer ..." }
concurrency = 10
rate = 50
window = "1s"
timeout = "2m"
expected_seconds = "20s"
max_pending = 10000
classes = { vip = { head_start = "5m" } }
callback_urls = ["https://shop.example/hooks/"]
callback_secret = "16 characters or more"
```

You can change targets and add new ones while the replicas run: `waitroom targets set NAME
SETTING=VALUE`. All replicas and workers apply the change within two seconds, or within ten while
Redis is unavailable. When you change headers, name all of them. The value `***` keeps a header's
stored value.

A header's value may come from a file: `WAITROOM_TARGETS__IMAGES__HEADERS__AUTHORIZATION_FILE`.""",
    of_what="target",
    lines="""
url = "https://images.example/v1/"
kinds = ["offline"]
methods = ["POST"]
headers = { Authorization = "Bearer ..." }
rate = 50
burst = 100
retry_on = ["429", "5xx", "connection"]
fail_on = ["4xx"]
max_pending = 10000
notify_above = 500
classes = { vip = { head_start = "5m" } }
callback_urls = ["https://shop.example/hooks/"]
callback_secret = "5b1c…16 characters or more…"
previous_callback_secret = "whsec_…the base64 of 32 bytes…"
""",
    more={
        "kinds": "[jobs](jobs.md)",
        "fail_on": "[which answers are results](jobs-rules.md#which-answers-are-results)",
        "notify_above": "[webhooks](webhooks.md#a-targets-long-queue)",
        "algorithm": "[which algorithm when](limits.md#which-algorithm-when)",
        "classes": "[who is next](who-is-next.md)",
    },
)
SECTIONS = (REPLICA, OPERATOR, ROOM, CLASS, LINE, LINK, EVENT, WEBHOOK, LEASE, LIMIT, TARGET)
