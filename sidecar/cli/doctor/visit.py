"""The doctor's visit: its requests, their order, and the responses to them.

Most requests are those of a browser that prefetches. The gate refuses a prefetch without giving it
a place, so the gate is seen even if the room has space. Two requests are real ones, and their
places are released at the end.
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
from sidecar.kit.names import SEPARATOR
from sidecar.visitors.tokens import COOKIE_PREFIX

#: The room in requests to /_waitroom/ if the room is not known. The sidecar does not have it.
NO_ROOM = "waitroom-doctor"
ASSETS = ("waiting.js", "waiting.css", "logo.svg", "i18n/en.json")
#: Paths of the ops listener. On the site's own port, the site itself must answer them.
OPS_PATHS = ("/metrics", "/admin/rooms")
#: Folders that often have no room.
FOLDERS = ("health", "assets", "static", "webhooks", "api")
#: Paths of FOLDER and PAGE: nginx may see one in the folder, and the site may see the page.
ODD_SPELLINGS = ("/{}/..\\{}", "/{}/..;/{}", "/{}/..%2f{}", "//{}/{}")
#: The front controller of most PHP sites, which makes every page.
FRONT_CONTROLLER = "/index.php?waitroom-doctor"
#: An address that no client has, because it is reserved for documentation.
FALSE_ADDRESS = "203.0.113.77"
#: How many polls are sent with the cookie; nginx asks the replicas in turn.
COOKIE_POLLS = 3
#: How many more polls look for other replicas. While visitors come, two replicas do not strictly
#: take turns: the chance that one of them gets none of the polls is 1 in 128.
MORE_POLLS = 6

_MAX_REDIRECTS = 5
_MAX_BODY = 262_144
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

#: The name of a room, or of a template and its resource: seat~17.
_NAME = r"[a-z0-9_-]+(?:~[\w.:@+-]+)?"
_ROOM_OF_PAGE = re.compile(rf'data-room="({_NAME})"')
_ROOM_OF_ADDRESS = re.compile(rf"(?:https?://[^/]+)?/_waitroom/({_NAME})/")
_CACHE_PATH = re.compile(r"^\s*proxy_cache_path\s+(/\S+)[^;]*keys_zone=waitroom:", re.MULTILINE)
_UPSTREAM = re.compile(r"^\s*upstream\s+waitroom\s*\{([^}]*)\}", re.MULTILINE)
_REPLICA = re.compile(r"^\s*server\s+(?:unix:(/[^\s;]+)|(\S+):(\d+))(?=[\s;])", re.MULTILINE)
_UNKNOWN_ROOM = re.compile(r"No waiting room is called '([^']*)'")

_NOTHING = SiteResponse()


@dataclass(frozen=True)
class Options:
    room: str | None = None
    ops_port: int = 8401
    edge_port: int = 8400
    #: Whether https certificates must be valid.
    verify: bool = True
    timeout_s: float = 10.0
    #: The folder of nginx's includes, if the site is on this machine.
    includes: Path = Path("/etc/nginx/waitroom")


@dataclass
class Visit:
    """All responses of a visit."""

    requested: URL
    options: Options
    #: The address of the page, after redirects within the site.
    page: URL
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = field(default_factory=list)
    #: The address from which this machine talks to the site.
    own_address: str = ""
    #: The page for a browser that prefetches, and for a program that asks for JSON.
    prefetch: SiteResponse = _NOTHING
    prefetch_json: SiteResponse = _NOTHING
    #: The page for two visitors without a cookie.
    first: SiteResponse = _NOTHING
    second: SiteResponse = _NOTHING
    #: The responses to odd spellings of the page's path, by path.
    odd_paths: dict[str, SiteResponse] = field(default_factory=dict)
    #: The responses for missing files in folders that often have no room, by path.
    missing: dict[str, SiteResponse] = field(default_factory=dict)
    #: The response of the site's front controller, if it has one.
    front: SiteResponse = _NOTHING
    #: The waiting page: `prefetch`, or the page to which it redirects.
    waiting: SiteResponse = _NOTHING
    #: The status endpoint, the same with a false client address, and several more times to reach
    #: other replicas.
    poll: SiteResponse = _NOTHING
    false_address: SiteResponse = _NOTHING
    more_polls: list[SiteResponse] = field(default_factory=list)
    assets: dict[str, SiteResponse] = field(default_factory=dict)
    join: SiteResponse = _NOTHING
    heartbeats: list[SiteResponse] = field(default_factory=list)
    #: The page again for the first visitor, with the cookie.
    revisit: SiteResponse = _NOTHING
    #: The page at once again, with the stamp; and the replicas' reports of nginx's key.
    stamp_visit: SiteResponse = _NOTHING
    nginx_keys: set[str] = field(default_factory=set)
    ops: SiteResponse = _NOTHING
    edge: SiteResponse = _NOTHING
    through_site: dict[str, SiteResponse] = field(default_factory=dict)
    leaves: list[SiteResponse] = field(default_factory=list)
    #: `prefetch` and `poll` again at the end, which shows whether a cache stored them.
    late: SiteResponse = _NOTHING
    late_poll: SiteResponse = _NOTHING
    #: The error of each unreachable replica, by address, if nginx is on this machine.
    unreachable_replicas: dict[str, str] = field(default_factory=dict)
    #: The folder in which nginx on this machine caches verdicts. None if it is not known.
    verdicts: Path | None = None

    @property
    def host(self) -> str:
        return self.page.host or ""

    @property
    def is_loopback(self) -> bool:
        return bool(self.addresses) and all(address.is_loopback for address in self.addresses)

    @property
    def unknown_room(self) -> str | None:
        """The room that the gate asks for. None if the sidecar has it."""
        match = _UNKNOWN_ROOM.search(self.prefetch.body) or _UNKNOWN_ROOM.search(self.first.body)
        return match[1] if match else None

    @property
    def room_of_gate(self) -> str | None:
        """The room that the page's responses name. None if there is none."""
        for reply in (self.prefetch_json, self.prefetch, self.first):
            if "status_url" in reply.document:
                return str(reply.document.get("room"))
            match = _ROOM_OF_ADDRESS.match(reply.headers.get("Location", ""))
            if reply.is_waiting_page:
                match = _ROOM_OF_PAGE.search(reply.body)
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
        if SEPARATOR in (self.room or ""):  # the status of a resource names no store
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
        """The stores of the replicas that answered."""
        polls = (self.poll, self.false_address, *self.more_polls)
        return {store for one in polls if isinstance(store := one.document.get("store"), str)}

    @property
    def cookie(self) -> str:
        """The first visitor's cookie, as a browser would send it now. Empty if there is none."""
        cookies = [one.cookie for one in (self.first, self.join, *self.heartbeats) if one.cookie]
        return str(cookies[-1]) if cookies else ""

    def at(self, path: str) -> URL:
        """Return the URL of an endpoint or file under /_waitroom/."""
        return self.page.join(URL(f"/_waitroom/{path}"))

    @property
    def status(self) -> URL:
        return self.at(f"{self.room or NO_ROOM}/status")


async def visit_site(
    url: URL, options: Options, *, now_s: Callable[[], float] = time.time
) -> Visit:
    """Send all requests, and release every place that they got."""
    visit = Visit(url, options, url)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=options.verify),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "Mozilla/5.0 (compatible; waitroom-doctor)"},
        timeout=aiohttp.ClientTimeout(options.timeout_s),
    ) as session:
        client = _Client(session, now_s)
        await _find_page(client, visit)
        if not visit.prefetch.status:
            return visit
        settings = _read_settings(options.includes)
        match = _CACHE_PATH.search(settings)
        visit.verdicts = Path(match[1]) if match else None
        visit.unreachable_replicas = await _find_unreachable_replicas(settings)
        visit.addresses, visit.own_address = await _resolve(visit.host, visit.page.port or 80)
        try:
            await _send_visits(client, visit)
            visit.late = await client.get(visit.page, _BROWSER, _PREFETCH)
            visit.late_poll = await client.get(visit.status.with_query(client="1"), _JSON)
        finally:
            await _release_places(client, visit)
    return visit


class _Client:
    """A client that stores every room cookie that it gets."""

    def __init__(self, session: aiohttp.ClientSession, now_s: Callable[[], float]) -> None:
        self._session = session
        self._now_s = now_s
        self.cookies: set[str] = set()

    async def get(self, url: URL, *headers: dict[str, str], **more: Any) -> SiteResponse:
        return await self.ask("GET", url, *headers, **more)

    async def ask(
        self,
        method: str,
        url: URL,
        *headers: dict[str, str],
        cookie: str = "",
        timeout_s: float | None = None,
    ) -> SiteResponse:
        sent = {name: text for some in headers for name, text in some.items()}
        if cookie:
            sent["Cookie"] = cookie
        timeout = aiohttp.ClientTimeout(timeout_s) if timeout_s else None
        start_s = self._now_s()
        try:
            async with self._session.request(
                method, url, headers=sent, allow_redirects=False, timeout=timeout
            ) as answer:
                at_s = (start_s + self._now_s()) / 2
                body = b""
                async for chunk in answer.content.iter_chunked(65_536):
                    body += chunk
                    if len(body) > _MAX_BODY:
                        break
                text = body.decode(errors="replace")
                reply = SiteResponse(answer.status, answer.headers, text, at_s=at_s)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return SiteResponse(error=_describe_error(error))
        if reply.cookie:
            self.cookies.add(str(reply.cookie))
        return reply


async def _find_page(client: _Client, visit: Visit) -> None:
    """Request the page. Follows redirects within the site, except those to /_waitroom/."""
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
        visit.join = await client.ask("POST", visit.at(f"{visit.room}/join"), _JSON)
    if not visit.cookie:
        return
    for _ in range(COOKIE_POLLS if has_room else 0):
        visit.heartbeats.append(await client.get(visit.status, _JSON, cookie=visit.cookie))
    origin = {"Origin": str(visit.page.origin())}
    visit.revisit = await client.get(visit.page, _BROWSER, origin, cookie=visit.cookie)
    await _get_with_stamp(client, visit)
    for path in OPS_PATHS:
        address = visit.page.join(URL(path))
        visit.through_site[path] = await client.get(address, _PREFETCH, cookie=visit.cookie)


async def _get_with_stamp(client: _Client, visit: Visit) -> None:
    if visit.revisit.stamp is not None:
        cookies = f"{visit.cookie}; {visit.revisit.stamp}"
        visit.stamp_visit = await client.get(visit.page, _BROWSER, cookie=cookies)
        return
    for _ in range(COOKIE_POLLS):
        reply = await client.get(visit.status.with_query(client="1"), _JSON)
        visit.nginx_keys.add(str(reply.document.get("nginx_key")))


async def _get_endpoints(client: _Client, visit: Visit) -> None:
    """Send the requests to /_waitroom/ and for the waiting page."""
    status = visit.status.with_query(client="1")
    visit.poll = await client.get(status, _JSON)
    visit.false_address = await client.get(status, _JSON, _FALSE_HEADERS)
    for _ in range(MORE_POLLS if visit.poll.document.get("store") else 0):
        visit.more_polls.append(await client.get(status, _JSON))
    for name in ASSETS:
        visit.assets[name] = await client.get(visit.at(f"static/{name}"))
    visit.waiting = visit.prefetch
    location = visit.prefetch.headers.get("Location", "")
    if _ROOM_OF_ADDRESS.match(location):
        visit.waiting = await client.get(visit.page.join(URL(location)), _BROWSER, _PREFETCH)


async def _get_odd_paths(client: _Client, visit: Visit) -> None:
    """Request the page by odd spellings, except in folders that respond 200 to every path."""
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
    """Send requests to the sidecar's own ports, which should not be reachable from outside."""
    site = URL.build(scheme="http", host=visit.host)
    ops = site.with_port(visit.options.ops_port) / "healthz"
    edge = site.with_port(visit.options.edge_port) / "check"
    visit.ops, visit.edge = await asyncio.gather(
        *(client.get(url, timeout_s=_OPS_TIMEOUT_S) for url in (ops, edge))
    )


def _read_settings(includes: Path) -> str:
    """Return settings.conf of the nginx on this machine. Empty if it cannot be read."""
    with contextlib.suppress(OSError, UnicodeError):
        return (includes / "settings.conf").read_text("utf-8")
    return ""


async def _find_unreachable_replicas(settings: str) -> dict[str, str]:
    """Return the connection error of each unreachable replica of settings.conf, by address."""
    errors = {}
    upstream = _UPSTREAM.search(settings)
    for path, host, port in _REPLICA.findall(upstream[1] if upstream else ""):
        opening = (
            asyncio.open_unix_connection(path) if path else asyncio.open_connection(host, port)
        )
        try:
            _, writer = await asyncio.wait_for(opening, _OPS_TIMEOUT_S)
        except PermissionError:
            continue  # the socket is for nginx and root only
        except (OSError, TimeoutError) as error:
            errors[f"unix:{path}" if path else f"{host}:{port}"] = _describe_error(error)
        else:
            writer.close()
    return errors


async def _release_places(client: _Client, visit: Visit) -> None:
    leaving = []
    for cookie in sorted(client.cookies):
        room = cookie.partition("=")[0].removeprefix(COOKIE_PREFIX)
        # The cookie of a resource has its template's name.
        if visit.room is not None and visit.room.partition(SEPARATOR)[0] == room:
            room = visit.room
        leaving.append(client.ask("POST", visit.at(f"{room}/leave"), _JSON, cookie=cookie))
    visit.leaves = await asyncio.gather(*leaving)


def _is_without_redis(document: dict[str, Any]) -> bool:
    """Return True if a document reports that Redis is unavailable: by its title, or by a pause
    without a position, which visitors have in a room that an operator paused."""
    numbers = document.get("position"), document.get("position_above")
    is_unnumbered = document.get("paused") is True and numbers == (None, None)
    return is_unnumbered or document.get("title") == "The store does not answer"


async def _resolve(
    host: str, port: int
) -> tuple[list[ipaddress.IPv4Address | ipaddress.IPv6Address], str]:
    """Return the site's addresses, and this machine's address on the way to them."""
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return [], ""
    own = ""
    for family, kind, _, _, address in infos:
        # Connecting a datagram socket sends nothing; it only picks a route.
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.connect(address)
            own = probe.getsockname()[0]
            break
    texts = {str(address[0]).partition("%")[0] for *_, address in infos}
    return [ipaddress.ip_address(text) for text in sorted(texts)], own


def _describe_error(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = error.certificate_error
        text = getattr(detail, "verify_message", "") or str(detail)
        return f"its certificate is not trusted: {text}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason}"
        return os.strerror(cause.errno).lower() if cause.errno else str(cause)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
