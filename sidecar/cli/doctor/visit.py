"""Sends the requests of `waitroom doctor` to a site, and collects the responses.

Most requests are prefetches. The gate (nginx asking the sidecar) refuses a prefetch without giving
it a place, so the doctor sees the gate even if the room is not full. Two requests without a cookie
are not prefetches. They may get places in the room, which the doctor releases at the end.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from sidecar.cli.doctor.site_response import SiteResponse
from sidecar.cli.replica_api import Room
from sidecar.cli.replica_client import ReplicaOptions
from sidecar.cli.rooms.changed import describe_changes, read_rooms
from sidecar.kit.egress import open_session
from sidecar.kit.names import SEPARATOR
from sidecar.visitors.tokens import COOKIE_PREFIX

#: A room name that no sidecar has, used in requests while the name of the room is unknown.
NO_ROOM = "waitroom-doctor"
ASSETS = ("waiting.js", "waiting.css", "logo.svg", "i18n/en.json")
#: Paths of the ops listener. On the site's own port, the site itself must answer them.
OPS_PATHS = ("/metrics", "/admin/rooms")
#: Top-level folders that a room often does not protect.
FOLDERS = ("health", "assets", "static", "webhooks", "api")
#: Spellings of a page's path, made from a folder and the path. nginx may serve such a path from the
#: folder, without a room, and the application may still respond with the page.
ODD_SPELLINGS = ("/{}/..\\{}", "/{}/..;/{}", "/{}/..%2f{}", "//{}/{}")
#: The front controller of most PHP sites, which renders every page.
FRONT_CONTROLLER = "/index.php?waitroom-doctor"
#: An IP address that no client has, because it is reserved for documentation.
FALSE_ADDRESS = "203.0.113.77"
#: The number of polls with the cookie. nginx distributes them over the replicas in turn.
COOKIE_POLLS = 3
#: The number of further polls, sent to reach every replica. On a busy site each poll reaches a
#: random replica, so that 1 of 128 visits reaches only one of two replicas.
MORE_POLLS = 6

_MAX_REDIRECTS = 5
_MAX_BODY_BYTES = 262_144
_OPS_TIMEOUT_S = 3.0

_BROWSER = {
    "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
    "Accept-Language": "en",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}
_PREFETCH = {"Sec-Purpose": "prefetch"}
_JSON = {"Accept": "application/json"}
_FALSE_HEADERS = {"X-Forwarded-For": FALSE_ADDRESS, "X-Real-IP": FALSE_ADDRESS}

#: The pattern of a room's name, or of a lease template and its resource, such as seat~17.
_NAME = r"[a-z0-9_-]+(?:~[\w.:@+-]+)?"
_ROOM_IN_PAGE = re.compile(rf'data-room="({_NAME})"')
_ROOM_IN_URL = re.compile(rf"(?:https?://[^/]+)?/_waitroom/({_NAME})/")
_CACHE_PATH = re.compile(r"^\s*proxy_cache_path\s+(/\S+)[^;]*keys_zone=waitroom:", re.MULTILINE)
_UPSTREAM = re.compile(r"^\s*upstream\s+waitroom\s*\{([^}]*)\}", re.MULTILINE)
_REPLICA = re.compile(r"^\s*server\s+(?:unix:(/[^\s;]+)|(\S+):(\d+))(?=[\s;])", re.MULTILINE)
_UNKNOWN_ROOM = re.compile(r"No waiting room is called '([^']*)'")

_NOTHING = SiteResponse()


@dataclass(frozen=True)
class Options:
    """The options of a visit."""

    room: str | None = None
    ops_port: int = 8401
    edge_port: int = 8400
    #: True if https certificates must be valid.
    verify: bool = True
    timeout_s: float = 10.0
    #: The folder of nginx's includes, if the site is on this machine.
    includes: Path = Path("/etc/nginx/waitroom")


@dataclass
class Visit:
    """The responses of a site in one visit, and other facts about the site."""

    requested: URL
    options: Options
    #: The URL of the page, after redirects within the site.
    page: URL
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = field(default_factory=list)
    #: The local IP address of connections to the site.
    own_address: str = ""
    #: The responses to prefetches of the page, by a browser and by a client that accepts only JSON.
    prefetch: SiteResponse = _NOTHING
    prefetch_json: SiteResponse = _NOTHING
    #: The responses to two requests for the page without a cookie, as from two new visitors.
    first: SiteResponse = _NOTHING
    second: SiteResponse = _NOTHING
    #: The responses to odd spellings of the page's path, by path.
    odd_paths: dict[str, SiteResponse] = field(default_factory=dict)
    #: The responses for missing files in FOLDERS, by path.
    missing: dict[str, SiteResponse] = field(default_factory=dict)
    #: The response of the site's front controller, if it has one.
    front: SiteResponse = _NOTHING
    #: The waiting page: `prefetch`, or the page to which it redirects.
    waiting: SiteResponse = _NOTHING
    #: The responses to a poll, to one that claims FALSE_ADDRESS, and to MORE_POLLS further polls.
    poll: SiteResponse = _NOTHING
    false_address: SiteResponse = _NOTHING
    more_polls: list[SiteResponse] = field(default_factory=list)
    assets: dict[str, SiteResponse] = field(default_factory=dict)
    join: SiteResponse = _NOTHING
    heartbeats: list[SiteResponse] = field(default_factory=list)
    #: The response to the first visitor's second request for the page, with the cookie.
    revisit: SiteResponse = _NOTHING
    #: The response to the first visitor's third request, with the stamp cookie too.
    stamp_visit: SiteResponse = _NOTHING
    #: What replicas report about nginx's key, with which nginx verifies stamp cookies.
    nginx_keys: set[str] = field(default_factory=set)
    #: The responses to requests sent directly to the sidecar's ports, not through nginx.
    ops: SiteResponse = _NOTHING
    edge: SiteResponse = _NOTHING
    #: The site's responses to requests for OPS_PATHS, by path.
    through_site: dict[str, SiteResponse] = field(default_factory=dict)
    #: The responses to the requests that release the doctor's places.
    leaves: list[SiteResponse] = field(default_factory=list)
    #: The responses to `prefetch` and `poll` sent again at the end, to detect a cache.
    late_prefetch: SiteResponse = _NOTHING
    late_poll: SiteResponse = _NOTHING
    #: The error of each unreachable replica, by address. Empty if nginx is on another machine.
    unreachable_replicas: dict[str, str] = field(default_factory=dict)
    #: Each setting of the room that was changed at run time, and the command that undoes the
    #: change. Empty if the site or its token is on another machine.
    changes: list[tuple[str, str]] = field(default_factory=list)
    #: The number of visitors inside an adaptive room if nginx reports none of the site's responses.
    unreported: int = 0
    #: The folder in which nginx on this machine caches the sidecar's verdicts. None if unknown.
    verdict_folder: Path | None = None

    @property
    def host(self) -> str:
        return self.page.host or ""

    @property
    def is_loopback(self) -> bool:
        return bool(self.addresses) and all(address.is_loopback for address in self.addresses)

    @property
    def unknown_room(self) -> str | None:
        """Return the name of the room, if nginx names one that the sidecar does not have."""
        match = _UNKNOWN_ROOM.search(self.prefetch.body) or _UNKNOWN_ROOM.search(self.first.body)
        return match[1] if match else None

    @property
    def room_of_gate(self) -> str | None:
        """Return the name of the room in the responses for the page, or None."""
        for reply in (self.prefetch_json, self.prefetch, self.first):
            if "status_url" in reply.document:
                return str(reply.document.get("room"))
            match = _ROOM_IN_URL.match(reply.headers.get("Location", ""))
            if reply.is_waiting_page:
                match = _ROOM_IN_PAGE.search(reply.body)
            if match:
                return match[1]
            if reply.cookie:
                return reply.cookie.name.removeprefix(COOKIE_PREFIX)
        return self.unknown_room

    @property
    def room(self) -> str | None:
        return self.options.room or self.room_of_gate

    @property
    def is_without_redis(self) -> bool:
        replies = (self.poll, self.late_poll, self.join, *self.heartbeats)
        if any(_is_without_redis(reply.document) for reply in replies):
            return True
        if SEPARATOR in (self.room or ""):  # The status document of a resource names no store.
            return False
        polls = (self.poll.document, self.late_poll.document)
        return any(poll.get("store", "unsaid") is None for poll in polls)

    @property
    def is_limited(self) -> bool:
        """Return True if nginx itself refuses some of the requests to /_waitroom/."""
        replies = [self.poll, self.late_poll, self.join, *self.more_polls, *self.heartbeats]
        replies += [*self.leaves, *self.assets.values()]
        return any(reply.status in {429, 503} and reply.is_nginx_error for reply in replies)

    @property
    def stores(self) -> set[str]:
        """Return the names of the stores of all replicas that responded."""
        polls = (self.poll, self.false_address, *self.more_polls)
        stores = (poll.document.get("store") for poll in polls)
        return {store for store in stores if isinstance(store, str)}

    @property
    def cookie(self) -> str:
        """Return the first visitor's latest cookie as NAME=VALUE, or ""."""
        replies = (*reversed(self.heartbeats), self.join, self.first)
        return next((str(reply.cookie) for reply in replies if reply.cookie), "")

    def endpoint_url(self, path: str) -> URL:
        """Return the URL of an endpoint or file under /_waitroom/."""
        return self.page.join(URL(f"/_waitroom/{path}"))

    @property
    def status_url(self) -> URL:
        return self.endpoint_url(f"{self.room or NO_ROOM}/status")


async def visit_site(
    url: URL, options: Options, *, now_s: Callable[[], float] = time.time
) -> Visit:
    """Send all requests of a visit, and release every place in a room that they got."""
    visit = Visit(url, options, url)
    async with open_session(
        is_private=True,
        verify=options.verify,
        auto_decompress=True,
        middlewares=(),  # aiohttp may repeat a GET after the connection breaks
        headers={"User-Agent": "Mozilla/5.0 (compatible; waitroom-doctor)"},
        timeout=aiohttp.ClientTimeout(options.timeout_s),
    ) as session:
        client = _Client(session, now_s)
        await _find_page(client, visit)
        if not visit.prefetch.status:
            return visit
        settings = ""
        with contextlib.suppress(OSError, UnicodeError):
            settings = (options.includes / "settings.conf").read_text("utf-8")
        match = _CACHE_PATH.search(settings)
        visit.verdict_folder = Path(match[1]) if match else None
        visit.unreachable_replicas = await _find_unreachable_replicas(settings)
        visit.addresses, visit.own_address = await _resolve_host(visit.host, visit.page.port or 80)
        try:
            await _send_visits(client, visit)
            if settings or visit.is_loopback:
                rooms = await asyncio.to_thread(read_rooms, ReplicaOptions())
                named = [room for room in rooms if room["room"] == visit.room]
                visit.changes = [change for room in named for change in describe_changes(room)]
                visit.unreported = sum(map(_count_unreported, named))
            visit.late_prefetch = await client.get(visit.page, _BROWSER, _PREFETCH)
            visit.late_poll = await client.get(visit.status_url.with_query(client="1"), _JSON)
        finally:
            await _release_places(client, visit)
    return visit


class _Client:
    """An HTTP client that collects the cookies of rooms."""

    def __init__(self, session: aiohttp.ClientSession, now_s: Callable[[], float]) -> None:
        self._session = session
        self._now_s = now_s
        self.cookies: set[str] = set()

    async def get(self, url: URL, *headers: dict[str, str], **more: Any) -> SiteResponse:
        return await self.send("GET", url, *headers, **more)

    async def send(
        self,
        method: str,
        url: URL,
        *headers: dict[str, str],
        cookie: str = "",
        timeout_s: float | None = None,
    ) -> SiteResponse:
        all_headers = {name: text for group in headers for name, text in group.items()}
        if cookie:
            all_headers["Cookie"] = cookie
        timeout = aiohttp.ClientTimeout(timeout_s) if timeout_s else None
        start_s = self._now_s()
        try:
            async with self._session.request(
                method, url, headers=all_headers, allow_redirects=False, timeout=timeout
            ) as response:
                at_s = (start_s + self._now_s()) / 2
                body = b""
                while part := await response.content.read(_MAX_BODY_BYTES - len(body)):
                    body += part
                text = body.decode(errors="replace")
                reply = SiteResponse(response.status, response.headers, text, at_s=at_s)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return SiteResponse(error=_describe_error(error))
        if reply.cookie:
            self.cookies.add(str(reply.cookie))
        return reply


async def _find_page(client: _Client, visit: Visit) -> None:
    """Request the page. Follow redirects within the site, except those to /_waitroom/."""
    for _ in range(_MAX_REDIRECTS):
        visit.prefetch = await client.get(visit.page, _BROWSER, _PREFETCH)
        location = visit.prefetch.headers.get("Location", "")
        if not 300 <= visit.prefetch.status < 400 or not location:
            break
        next_page = visit.page.join(URL(location))
        bare_host = (next_page.host or "").removeprefix("www.")
        if bare_host != visit.host.removeprefix("www.") or next_page.path.startswith("/_waitroom/"):
            break
        visit.page = next_page
    if visit.prefetch.status:
        visit.prefetch_json = await client.get(visit.page, _JSON, _PREFETCH)


async def _send_visits(client: _Client, visit: Visit) -> None:
    visit.first = await client.get(visit.page, _BROWSER)
    if visit.first.cookie:
        visit.second = await client.get(visit.page, _BROWSER)
    await asyncio.gather(
        _get_endpoints(client, visit), _get_ports(client, visit), _get_odd_paths(client, visit)
    )
    has_room = visit.room is not None and visit.poll.is_of_sidecar
    if has_room and visit.poll.document.get("state") == "not_queued" and not visit.cookie:
        visit.join = await client.send("POST", visit.endpoint_url(f"{visit.room}/join"), _JSON)
    if not visit.cookie:
        return
    for _ in range(COOKIE_POLLS if has_room else 0):
        visit.heartbeats.append(await client.get(visit.status_url, _JSON, cookie=visit.cookie))
    origin = {"Origin": str(visit.page.origin())}
    visit.revisit = await client.get(visit.page, _BROWSER, origin, cookie=visit.cookie)
    await _get_with_stamp(client, visit)
    for path in OPS_PATHS:
        url = visit.page.join(URL(path))
        visit.through_site[path] = await client.get(url, _PREFETCH, cookie=visit.cookie)


async def _get_with_stamp(client: _Client, visit: Visit) -> None:
    if visit.revisit.stamp_cookie is not None:
        cookies = f"{visit.cookie}; {visit.revisit.stamp_cookie}"
        visit.stamp_visit = await client.get(visit.page, _BROWSER, cookie=cookies)
        return
    for _ in range(COOKIE_POLLS):
        reply = await client.get(visit.status_url.with_query(client="1"), _JSON)
        visit.nginx_keys.add(str(reply.document.get("nginx_key")))


async def _get_endpoints(client: _Client, visit: Visit) -> None:
    """Send the requests to /_waitroom/ and for the waiting page."""
    status = visit.status_url.with_query(client="1")
    visit.poll = await client.get(status, _JSON)
    visit.false_address = await client.get(status, _JSON, _FALSE_HEADERS)
    for _ in range(MORE_POLLS if visit.poll.document.get("store") else 0):
        visit.more_polls.append(await client.get(status, _JSON))
    for name in ASSETS:
        visit.assets[name] = await client.get(visit.endpoint_url(f"static/{name}"))
    visit.waiting = visit.prefetch
    location = visit.prefetch.headers.get("Location", "")
    if _ROOM_IN_URL.match(location):
        visit.waiting = await client.get(visit.page.join(URL(location)), _BROWSER, _PREFETCH)


async def _get_odd_paths(client: _Client, visit: Visit) -> None:
    """Request the front controller, a missing file in each of FOLDERS, and ODD_SPELLINGS of the
    page's path. Skip the spellings for a folder where the missing file gets a 200."""
    page = visit.page.raw_path.removeprefix("/")
    if visit.prefetch.is_of_gate:
        visit.front = await client.get(visit.page.join(URL(FRONT_CONTROLLER)), _BROWSER, _PREFETCH)
    for folder in FOLDERS if visit.prefetch.is_of_gate else ():
        path = f"/{folder}/{NO_ROOM}"
        url = visit.page.join(URL(path))
        visit.missing[path] = await client.get(url, _BROWSER, _PREFETCH)
        if visit.missing[path].status == 200:
            continue
        for spelling in ODD_SPELLINGS:
            path = spelling.format(folder, page)
            url = URL(f"{visit.page.origin()}{path}", encoded=True)
            visit.odd_paths[path] = await client.get(url, _BROWSER, _PREFETCH)


async def _get_ports(client: _Client, visit: Visit) -> None:
    """Send requests directly to the sidecar's ports, which should be closed to the outside."""
    site = URL.build(scheme="http", host=visit.host)
    ops = site.with_port(visit.options.ops_port) / "healthz"
    edge = site.with_port(visit.options.edge_port) / "check"
    visit.ops, visit.edge = await asyncio.gather(
        *(client.get(url, timeout_s=_OPS_TIMEOUT_S) for url in (ops, edge))
    )


async def _find_unreachable_replicas(settings: str) -> dict[str, str]:
    """Connect to each replica that nginx's settings.conf names. Return the errors by address."""
    errors = {}
    upstream = _UPSTREAM.search(settings)
    for path, host, port in _REPLICA.findall(upstream[1] if upstream else ""):
        opening = (
            asyncio.open_unix_connection(path) if path else asyncio.open_connection(host, port)
        )
        try:
            _, writer = await asyncio.wait_for(opening, _OPS_TIMEOUT_S)
        except PermissionError:
            continue  # Only nginx and root may use the socket.
        except (OSError, TimeoutError) as error:
            errors[f"unix:{path}" if path else f"{host}:{port}"] = _describe_error(error)
        else:
            writer.close()
    return errors


def _count_unreported(room: Room) -> int:
    """Return how many visitors, except the doctor's own two, are inside an adaptive room if nginx
    reports none of its site's responses. Return 0 otherwise."""
    site = room.get("site")
    return max(0, room["active"] - 2) if site and not site["responses"] else 0


async def _release_places(client: _Client, visit: Visit) -> None:
    requests = []
    for cookie in sorted(client.cookies):
        room = cookie.partition("=")[0].removeprefix(COOKIE_PREFIX)
        # The cookie of a resource has its template's name.
        if visit.room is not None and visit.room.partition(SEPARATOR)[0] == room:
            room = visit.room
        requests.append(
            client.send("POST", visit.endpoint_url(f"{room}/leave"), _JSON, cookie=cookie)
        )
    visit.leaves = await asyncio.gather(*requests)


def _is_without_redis(document: dict[str, Any]) -> bool:
    """Return True if a document reports that Redis is unavailable, by its title or by a pause
    without a position. In a room that an operator paused, visitors have a position."""
    numbers = document.get("position"), document.get("position_above")
    is_unnumbered = document.get("paused") is True and numbers == (None, None)
    return is_unnumbered or document.get("title") == "The store does not answer"


async def _resolve_host(
    host: str, port: int
) -> tuple[list[ipaddress.IPv4Address | ipaddress.IPv6Address], str]:
    """Return a host's IP addresses, and the local IP address of connections to them."""
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return [], ""
    own_address = ""
    for family, kind, _, _, address in infos:
        # Connecting a datagram socket sends nothing. It only selects a route.
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.connect(address)
            own_address = probe.getsockname()[0]
            break
    texts = {str(address[0]).partition("%")[0] for *_, address in infos}
    return [ipaddress.ip_address(text) for text in sorted(texts)], own_address


def _describe_error(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = error.certificate_error
        text = getattr(detail, "verify_message", "") or str(detail)
        return f"its certificate is not trusted: {text}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return str(cause) or type(error).__name__
