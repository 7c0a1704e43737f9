"""The visit: which requests are sent, in which order, and what is kept of the responses.

Most requests are those of a browser that fetches ahead: the gate refuses that without giving a
place, so it shows itself even if the room has space. Two visits are real ones, and their places are
given up at the end.
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

#: The room of requests to /_waitroom/ if none is known; the sidecar answers that it has none.
NO_ROOM = "waitroom-doctor"
ASSETS = ("waiting.js", "waiting.css", "logo.svg", "i18n/en.json")
#: Paths of the ops listener; on the site's own port they must be the site's.
OPS_PATHS = ("/metrics", "/admin/rooms")
#: Folders that often have no room.
FOLDERS = ("health", "assets", "static", "webhooks", "api")
#: Spellings by which some servers confuse a page with one in such a folder.
ODD_SPELLINGS = ("/{}/..\\{}", "/{}/..;/{}", "/{}/..%2f{}", "//{}/{}")
#: The front controller of most sites in PHP, which makes every page.
FRONT_CONTROLLER = "/index.php?waitroom-doctor"
#: An address that nobody has: it is reserved for documentation.
FALSE_ADDRESS = "203.0.113.77"
#: Polls with the cookie; nginx asks the replicas in turn.
BEATS = 3
#: Two replicas do not strictly take turns if visitors come at the same time: the chance that one of
#: them gets none of all these polls is 1 in 128.
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
_AHEAD = {"Sec-Purpose": "prefetch"}
_JSON = {"Accept": "application/json"}
_FALSE = {"X-Forwarded-For": FALSE_ADDRESS, "X-Real-IP": FALSE_ADDRESS}

#: A room's name, or a resource's with its template's: seat~17.
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
    #: The page, after redirects within the site.
    page: URL
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = field(default_factory=list)
    #: The address from which this machine talks to the site.
    own_address: str = ""
    #: The page for a browser that fetches ahead, and for a program that does.
    ahead: SiteResponse = _NOTHING
    ahead_json: SiteResponse = _NOTHING
    #: The page for two visitors without a cookie.
    first: SiteResponse = _NOTHING
    second: SiteResponse = _NOTHING
    #: The page by other spellings, which a server may take for a folder without a room.
    odd: dict[str, SiteResponse] = field(default_factory=dict)
    #: Missing files in folders that often have no room.
    missing: dict[str, SiteResponse] = field(default_factory=dict)
    #: A site's front controller, if it has one.
    front: SiteResponse = _NOTHING
    #: The waiting page, wherever it is.
    waiting: SiteResponse = _NOTHING
    #: The status endpoint, the same with a made-up address, and again: nginx asks the replicas in
    #: turn.
    poll: SiteResponse = _NOTHING
    false_address: SiteResponse = _NOTHING
    again: list[SiteResponse] = field(default_factory=list)
    assets: dict[str, SiteResponse] = field(default_factory=dict)
    joined: SiteResponse = _NOTHING
    beats: list[SiteResponse] = field(default_factory=list)
    #: The page for the first visitor again, with the cookie.
    back: SiteResponse = _NOTHING
    #: The page at once again, with the stamp; and what replicas say of nginx's key.
    stamped: SiteResponse = _NOTHING
    nginx_keys: set[str] = field(default_factory=set)
    ops: SiteResponse = _NOTHING
    edge: SiteResponse = _NOTHING
    through_site: dict[str, SiteResponse] = field(default_factory=dict)
    left: list[SiteResponse] = field(default_factory=list)
    #: `ahead` and `poll` again at the end: a cache shows itself.
    late: SiteResponse = _NOTHING
    late_poll: SiteResponse = _NOTHING
    #: The error of each replica that does not answer, if nginx is on this machine.
    dead: dict[str, str] = field(default_factory=dict)
    #: The folder where nginx on this machine keeps verdicts.
    verdicts: Path | None = None

    @property
    def host(self) -> str:
        return self.page.host or ""

    @property
    def is_loopback(self) -> bool:
        return bool(self.addresses) and all(address.is_loopback for address in self.addresses)

    @property
    def unknown_room(self) -> str | None:
        """The room that the gate asks for, if the sidecar does not have it."""
        match = _UNKNOWN_ROOM.search(self.ahead.body) or _UNKNOWN_ROOM.search(self.first.body)
        return match[1] if match else None

    @property
    def room_of_gate(self) -> str | None:
        """The room that the page's responses name."""
        for reply in (self.ahead_json, self.ahead, self.first):
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
        replies = (self.poll, self.late_poll, self.joined, *self.beats)
        if any(_is_without_redis(one.document) for one in replies):
            return True
        if SEPARATOR in (self.room or ""):  # of a resource no store is named
            return False
        polls = (self.poll.document, self.late_poll.document)
        return any(poll.get("store", "unsaid") is None for poll in polls)

    @property
    def is_limited(self) -> bool:
        """Return True if nginx itself refuses some of the requests to /_waitroom/."""
        replies = [self.poll, self.late_poll, self.joined, *self.again, *self.beats, *self.left]
        replies += self.assets.values()
        return any(one.status in {429, 503} and one.is_nginx_error for one in replies)

    @property
    def stores(self) -> set[str]:
        """The stores of the replicas that answered."""
        polls = (self.poll, self.false_address, *self.again)
        return {store for one in polls if isinstance(store := one.document.get("store"), str)}

    @property
    def cookie(self) -> str:
        """The first visitor's cookie, as a browser would send it now; empty without one."""
        cookies = [one.cookie for one in (self.first, self.joined, *self.beats) if one.cookie]
        return str(cookies[-1]) if cookies else ""

    def at(self, path: str) -> URL:
        """Return the address of an endpoint or file under /_waitroom/."""
        return self.page.join(URL(f"/_waitroom/{path}"))

    @property
    def status(self) -> URL:
        return self.at(f"{self.room or NO_ROOM}/status")


async def visit_site(
    url: URL, options: Options, *, now_s: Callable[[], float] = time.time
) -> Visit:
    """Send all requests; leave every place that they were given."""
    visit = Visit(url, options, url)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=options.verify),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "Mozilla/5.0 (compatible; waitroom-doctor)"},
        timeout=aiohttp.ClientTimeout(options.timeout_s),
    ) as session:
        client = _Client(session, now_s)
        await _look_ahead(client, visit)
        if not visit.ahead.status:
            return visit
        settings = _settings(options.includes)
        match = _CACHE_PATH.search(settings)
        visit.verdicts = Path(match[1]) if match else None
        visit.dead = await _dead(settings)
        visit.addresses, visit.own_address = await _addresses(visit.host, visit.page.port or 80)
        try:
            await _enter(client, visit)
            visit.late = await client.get(visit.page, _BROWSER, _AHEAD)
            visit.late_poll = await client.get(visit.status.with_query(client="1"), _JSON)
        finally:
            await _leave(client, visit)
    return visit


class _Client:
    """A client that keeps every room cookie that it gets."""

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
        began = self._now_s()
        try:
            async with self._session.request(
                method, url, headers=sent, allow_redirects=False, timeout=timeout
            ) as answer:
                at_s = (began + self._now_s()) / 2
                body = b""
                async for chunk in answer.content.iter_chunked(65_536):
                    body += chunk
                    if len(body) > _MAX_BODY:
                        break
                text = body.decode(errors="replace")
                reply = SiteResponse(answer.status, answer.headers, text, at_s=at_s)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return SiteResponse(error=_why(error))
        if reply.cookie:
            self.cookies.add(str(reply.cookie))
        return reply


async def _look_ahead(client: _Client, visit: Visit) -> None:
    """Find the page: follow redirects within the site, but not those to the room."""
    for _ in range(_MAX_REDIRECTS):
        visit.ahead = await client.get(visit.page, _BROWSER, _AHEAD)
        location = visit.ahead.headers.get("Location", "")
        if not 300 <= visit.ahead.status < 400 or not location:
            break
        following = visit.page.join(URL(location))
        bare = (following.host or "").removeprefix("www.")
        if bare != visit.host.removeprefix("www.") or following.path.startswith("/_waitroom/"):
            break
        visit.page = following
    if visit.ahead.status:
        visit.ahead_json = await client.get(visit.page, _JSON, _AHEAD)


async def _enter(client: _Client, visit: Visit) -> None:
    visit.first = await client.get(visit.page, _BROWSER)
    if visit.first.cookie:
        visit.second = await client.get(visit.page, _BROWSER)
    await asyncio.gather(
        _look_round(client, visit), _look_outside(client, visit), _look_aside(client, visit)
    )
    has_room = visit.room is not None and visit.poll.is_of_sidecar
    if has_room and visit.poll.document.get("state") == "not_queued" and not visit.cookie:
        visit.joined = await client.ask("POST", visit.at(f"{visit.room}/join"), _JSON)
    if not visit.cookie:
        return
    for _ in range(BEATS if has_room else 0):
        visit.beats.append(await client.get(visit.status, _JSON, cookie=visit.cookie))
    origin = {"Origin": str(visit.page.origin())}
    visit.back = await client.get(visit.page, _BROWSER, origin, cookie=visit.cookie)
    await _look_at_stamps(client, visit)
    for path in OPS_PATHS:
        address = visit.page.join(URL(path))
        visit.through_site[path] = await client.get(address, _AHEAD, cookie=visit.cookie)


async def _look_at_stamps(client: _Client, visit: Visit) -> None:
    if visit.back.stamp is not None:
        cookies = f"{visit.cookie}; {visit.back.stamp}"
        visit.stamped = await client.get(visit.page, _BROWSER, cookie=cookies)
        return
    for _ in range(BEATS):
        reply = await client.get(visit.status.with_query(client="1"), _JSON)
        visit.nginx_keys.add(str(reply.document.get("nginx_key")))


async def _look_round(client: _Client, visit: Visit) -> None:
    """Ask for what the site has under /_waitroom/."""
    status = visit.status.with_query(client="1")
    visit.poll = await client.get(status, _JSON)
    visit.false_address = await client.get(status, _JSON, _FALSE)
    for _ in range(MORE_POLLS if visit.poll.document.get("store") else 0):
        visit.again.append(await client.get(status, _JSON))
    for name in ASSETS:
        visit.assets[name] = await client.get(visit.at(f"static/{name}"))
    visit.waiting = visit.ahead
    location = visit.ahead.headers.get("Location", "")
    if _ROOM_OF_ADDRESS.match(location):
        visit.waiting = await client.get(visit.page.join(URL(location)), _BROWSER, _AHEAD)


async def _look_aside(client: _Client, visit: Visit) -> None:
    """Ask for the page by odd spellings, except in folders that answer every path."""
    page = visit.page.raw_path.removeprefix("/")
    if visit.ahead.is_of_gate:
        visit.front = await client.get(visit.page.join(URL(FRONT_CONTROLLER)), _BROWSER, _AHEAD)
    for folder in FOLDERS if visit.ahead.is_of_gate else ():
        path = f"/{folder}/{NO_ROOM}"
        plain = visit.missing[path] = await client.get(visit.page.join(URL(path)), _BROWSER, _AHEAD)
        if plain.status == 200:
            continue
        for spelling in ODD_SPELLINGS:
            path = spelling.format(folder, page)
            url = URL(f"{visit.page.origin()}{path}", encoded=True)
            visit.odd[path] = await client.get(url, _BROWSER, _AHEAD)


async def _look_outside(client: _Client, visit: Visit) -> None:
    """Ask the sidecar's own ports, which the world should not reach."""
    site = URL.build(scheme="http", host=visit.host)
    ops = site.with_port(visit.options.ops_port) / "healthz"
    edge = site.with_port(visit.options.edge_port) / "check"
    visit.ops, visit.edge = await asyncio.gather(
        *(client.get(url, timeout_s=_OPS_TIMEOUT_S) for url in (ops, edge))
    )


def _settings(includes: Path) -> str:
    """Return settings.conf of the nginx on this machine; empty if it cannot be read."""
    with contextlib.suppress(OSError, UnicodeError):
        return (includes / "settings.conf").read_text("utf-8")
    return ""


async def _dead(settings: str) -> dict[str, str]:
    """Return the error of each replica of settings.conf on which nobody listens."""
    dead = {}
    upstream = _UPSTREAM.search(settings)
    for path, host, port in _REPLICA.findall(upstream[1] if upstream else ""):
        opening = (
            asyncio.open_unix_connection(path) if path else asyncio.open_connection(host, port)
        )
        try:
            _, writer = await asyncio.wait_for(opening, _OPS_TIMEOUT_S)
        except PermissionError:
            continue  # for nginx and root only
        except (OSError, TimeoutError) as error:
            dead[f"unix:{path}" if path else f"{host}:{port}"] = _why(error)
        else:
            writer.close()
    return dead


async def _leave(client: _Client, visit: Visit) -> None:
    leaving = []
    for cookie in sorted(client.cookies):
        room = cookie.partition("=")[0].removeprefix(COOKIE_PREFIX)
        # The cookie of a resource has its template's name.
        if visit.room is not None and visit.room.partition(SEPARATOR)[0] == room:
            room = visit.room
        leaving.append(client.ask("POST", visit.at(f"{room}/leave"), _JSON, cookie=cookie))
    visit.left = await asyncio.gather(*leaving)


def _is_without_redis(document: dict[str, Any]) -> bool:
    """Return True for a problem that says so, and for a place without a number, which only a paused
    room may have."""
    numbers = document.get("position"), document.get("position_above")
    is_unnumbered = document.get("paused") is True and numbers == (None, None)
    return is_unnumbered or document.get("title") == "The store does not answer"


async def _addresses(
    host: str, port: int
) -> tuple[list[ipaddress.IPv4Address | ipaddress.IPv6Address], str]:
    """Return the site's addresses, and the one of this machine that it talks from."""
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


def _why(error: Exception) -> str:
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
