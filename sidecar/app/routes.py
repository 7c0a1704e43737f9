"""Creates the aiohttp applications of a replica's two listeners, with all of their routes.

The edge listener is for nginx and, through nginx, for visitors. The ops listener is private: it
serves health, metrics, administration and the API for programs.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.app import endpoints
from sidecar.app import health as ops
from sidecar.app.access import TOKENS, authorise, list_tokens
from sidecar.app.openapi import document as openapi
from sidecar.dashboard import endpoints as dashboard
from sidecar.dashboard.alerts import Alerts
from sidecar.dashboard.live import LIVE, Live
from sidecar.dashboard.overview_rows import OverviewRows
from sidecar.gate import check, leave
from sidecar.gate import claim_link as claim
from sidecar.gate import event_stream as events
from sidecar.gate import forward_auth as gate
from sidecar.gate import status as waiting
from sidecar.gate.contract import GATES, Gates
from sidecar.gate.page.render import Page
from sidecar.gate.page.responses import PAGE
from sidecar.gate.polls import RECENT_POLLS, RecentPolls
from sidecar.gate.stamps import STAMPS, Stamps
from sidecar.history.lookups import HISTORY
from sidecar.http import app_keys as keys
from sidecar.http import long_poll
from sidecar.http.app_keys import TEMPLATES
from sidecar.http.auth.operators import Operators
from sidecar.http.auth.session import OPERATORS
from sidecar.http.fast_path import FAST
from sidecar.http.metrics import METRICS, Metrics
from sidecar.http.problems import problems
from sidecar.jobs.endpoints import check_permit
from sidecar.jobs.endpoints.long_poll import JOB_POLLS, JobPolls
from sidecar.jobs.service import JOBS, Jobs
from sidecar.kit.addresses import AddressLimit
from sidecar.kit.templates import Templates
from sidecar.leases.service import LEASES, Leases
from sidecar.leases.visitor_leases import Resources
from sidecar.limits import nginx_check as check_limit
from sidecar.limits.service import LIMITS, Limits
from sidecar.lottery import endpoints as draw
from sidecar.rooms.service import ROOMS, WaitingRooms
from sidecar.settings.model import Settings
from sidecar.webhooks.service import WEBHOOKS, Webhooks

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The largest request body at the edge listener, in bytes: a form with one URL.
MAX_BODY_BYTES = 65_536
#: The largest request body at the ops listener, in bytes: a list of calls to be rate-limited.
MAX_OPS_BODY_BYTES = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of all features. The service of an unused feature is empty or None."""

    rooms: WaitingRooms
    metrics: Metrics
    leases: Leases = field(default_factory=Leases)
    #: The leased resources for which a proxy calls /check.
    resources: Resources = field(default_factory=Resources)
    limits: Limits = field(default_factory=Limits)
    webhooks: Webhooks = field(default_factory=Webhooks)
    jobs: Jobs | None = None
    history: "History | None" = None
    templates: Templates = field(default_factory=lambda: Templates(Path("templates")))


#: The edge listener's routes, except those added for each room and for static files.
EDGE = (
    *(endpoint.route() for endpoint in (*endpoints.PROXY, *endpoints.VISITOR)),
    # In this URL, the path that the visitor has requested follows the room's name.
    web.route("*", r"/gate/{room}{visitor_path:/.*}", gate.gate),
    web.get("/_waitroom/{room}/", waiting.show_page),
)
#: Handlers of frequent requests, which bypass aiohttp's router (http/fast_path.py).
FAST_EDGE: dict[tuple[str, str], Handler] = {
    ("GET", "/check"): check.check,
    ("GET", "/check-limit"): check_limit.check_limit,
    ("GET", "/check-permit"): check_permit.check_permit,
}


def create_edge_app(
    services: Services,
    static: Path,
    *,
    event_streams: int = 0,
    memory: str = "",
    stamps: Stamps | None = None,
) -> web.Application:
    """Create the application of the edge listener. If the store is this process's memory, `memory`
    is a random name for it; if the store is a Redis that replicas share, it is ""."""
    app = web.Application(middlewares=[problems], client_max_size=MAX_BODY_BYTES)
    _add_services(app, services)
    app[GATES] = Gates(services.rooms, services.resources)
    app[waiting.MEMORY] = memory
    app[STAMPS] = stamps or Stamps([])
    app[PAGE] = Page(static)
    app[leave.LEAVE_LIMIT] = AddressLimit(per_s=leave.LEAVES_PER_S, burst=leave.LEAVES_AT_ONCE)
    app[RECENT_POLLS] = RecentPolls()
    app[claim.CLAIM_PAGE] = claim.ClaimPage(static, app[PAGE])
    app[events.STREAMS] = events.Streams(event_streams)
    app.cleanup_ctx.append(check_permit.finish_writes)
    app[draw.DRAW_PAGE] = draw.load_draw_page(static)
    fast = dict(FAST_EDGE)
    # The most frequent requests get routes without a pattern, because aiohttp finds them faster.
    for room in services.rooms:
        path = f"/_waitroom/{room.name}"
        status, join = partial(waiting.get_status, room=room), partial(waiting.join, room=room)
        app.add_routes([web.get(f"{path}/status", status), web.post(f"{path}/join", join)])
        fast |= {("GET", f"{path}/status"): status, ("POST", f"{path}/join"): join}
    app[FAST] = fast
    app.add_routes([*EDGE, web.static("/_waitroom/static", static)])
    return app


def create_ops_app(
    services: Services,
    settings: Settings,
    stopping: list[bool],
    operators: Operators | None = None,
) -> web.Application:
    """Create the application of the ops listener. `stopping` is empty until the replica stops."""
    app = web.Application(middlewares=[problems, authorise], client_max_size=MAX_OPS_BODY_BYTES)
    _add_services(app, services)
    app[LEASES] = services.leases
    app[WEBHOOKS] = services.webhooks
    app[keys.SETTINGS] = settings
    app[keys.STOPPING] = stopping
    if services.history is not None:
        app[HISTORY] = services.history
    app[OPERATORS] = operators or Operators(
        settings.secret_keys, settings.admin_token, settings.accounts
    )
    alerts = Alerts(services.rooms, services.metrics, services.jobs)
    if app[OPERATORS].is_on:
        app.cleanup_ctx.append(alerts.evaluate_forever)
    overview = OverviewRows(
        services.metrics, services.leases, services.limits, services.jobs, services.webhooks
    )
    app[LIVE] = Live(services.rooms, alerts, overview)
    app[TOKENS] = list_tokens(settings)
    app.add_routes(dashboard.ROUTES)
    app.add_routes([endpoint.route() for endpoint in (*openapi.ENDPOINTS, *endpoints.OPS)])
    if services.jobs is None:
        app.add_routes([web.route("*", r"/v1/{_:(?:jobs|targets)(?:/.*)?}", ops.refuse_jobs)])
    else:
        add_jobs(app, services.jobs)
    return app


def _add_services(app: web.Application, services: Services) -> None:
    app[ROOMS] = services.rooms
    app[LIMITS] = services.limits
    app[METRICS] = services.metrics
    app[TEMPLATES] = services.templates
    app[long_poll.LONG_POLLS] = long_poll.LongPolls()
    app.on_shutdown.append(long_poll.close)
    if services.jobs is not None:
        app[JOBS] = services.jobs


def add_jobs(app: web.Application, jobs: Jobs) -> None:
    """Add the endpoints of jobs and targets to the application of the ops listener."""
    app[JOB_POLLS] = JobPolls(jobs)
    app.add_routes([endpoint.route() for endpoint in endpoints.JOBS])
