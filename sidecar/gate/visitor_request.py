"""Reads a visitor's request: every header and cookie that a verdict depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aiohttp import web
from multidict import istr

from sidecar.gate.contract import Gate
from sidecar.gate.cookies import read_token
from sidecar.http.auth_request import is_preflight, original_method
from sidecar.http.cookies import cookie_value
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.visitors.grants import Grant, GrantError, find_grant
from sidecar.visitors.model import Pass, Token

# Header names as istr, because aiohttp would lower-case a plain string at each look-up.
_ACCEPT, _USER_AGENT = istr("Accept"), istr("User-Agent")
_ADDRESS, _CLASS, _EXEMPT = istr("X-Real-IP"), istr("X-Waitroom-Class"), istr("X-Waitroom-Exempt")
_DEST, _MODE, _SITE = istr("Sec-Fetch-Dest"), istr("Sec-Fetch-Mode"), istr("Sec-Fetch-Site")
_GIVEN, _ORIGINAL_URI = istr("X-Waitroom-Given"), istr("X-Original-URI")
_ORIGIN, _REFERER = istr("Origin"), istr("Referer")
#: The headers by which new and old browsers announce a prefetch.
_PURPOSE_HEADERS = (istr("Sec-Purpose"), istr("Purpose"), istr("X-Moz"))
_FRAMES = {"iframe", "frame", "embed", "object", "fencedframe"}


@dataclass(slots=True)
class VisitorRequest:
    """One request of a visitor, as a proxy describes it.

    Headers about the visitor are trusted only from nginx. Other proxies pass on any header of a
    visitor that they do not know."""

    headers: Mapping[str, str]
    #: The visitor's method, which may differ from that of the proxy's own request.
    method: str
    token: Token | None = None
    #: The requested URL. Its query may contain a grant.
    uri: str = ""
    #: The token in a `join_url`, with which a newcomer joins while the shield is up.
    join_token: str | None = None
    is_from_nginx: bool = False
    #: True if the waiting page sent the request, False if a proxy checks it.
    is_from_page: bool = False
    #: The token from the first check of the same request. nginx checks a request with an internal
    #: redirect (index, rewrite) twice, and sends the browser's old cookies both times.
    earlier_token: Token | None = None

    @classmethod
    def from_nginx(cls, headers: Mapping[str, str], room: Gate) -> "VisitorRequest":
        earlier_token = None
        if _GIVEN in headers:
            text = cookie_value(headers[_GIVEN], room.tokens.cookie_name)
            earlier_token = room.tokens.read(text)
        token = earlier_token or read_token(headers, room)
        if isinstance(earlier_token, Pass) and earlier_token.is_first:
            # The browser has not sent this pass yet, so this does not count as its second use.
            token = replace(earlier_token, renewed_ms=earlier_token.renewed_ms + 1)
        uri = headers.get(_ORIGINAL_URI, "")
        return cls(headers, original_method(headers), token, uri, None, True, False, earlier_token)

    @classmethod
    def from_page(cls, request: web.Request, room: Gate, uri: str = "") -> "VisitorRequest":
        """Read a request of the waiting page, which nginx passes on. `uri` is the request's own
        URL or the URL to go to after admission."""
        # Parse only a query that can have a token. A second `token` belongs to the URL in `next`.
        join_token = request.query.get("token") if "token=" in request.raw_path else None
        headers = request.headers
        return cls(headers, request.method, read_token(headers, room), uri, join_token, True, True)

    def get_bearer(self, room: Gate, *, may_join: bool) -> Bearer:
        """Return the client, if the verdict depends on more than the token, otherwise NOBODY."""
        settings, headers, by_nginx = room.settings, self.headers, self.is_from_nginx
        class_name = exempt = grant_result = ""
        grant = None
        if settings.classes:
            if settings.class_header and by_nginx and headers.get(_CLASS) in settings.classes:
                class_name = headers[_CLASS]
            else:
                grant, grant_result = _read_grant(self.uri, room)
        if by_nginx and not self.is_from_page:
            exempt = headers.get(_EXEMPT, "")
        has_waited = (
            may_join and self.join_token is not None and room.tokens.may_join(self.join_token)
        )
        if not (room.depends_on_client or exempt or class_name or grant_result or has_waited):
            return NOBODY
        # Only a path that nginx checks can be exempt, not the waiting page's own path.
        uri = self.uri if by_nginx and not self.is_from_page else ""
        user_agent = headers.get(_USER_AGENT, "")
        return Bearer(
            self.address, user_agent, uri, exempt, class_name, grant, grant_result, has_waited
        )

    @property
    def address(self) -> str:
        """The client's IP address as the proxy sends it, never one that the visitor claims."""
        return self.headers.get(_ADDRESS, "")

    @property
    def host(self) -> str:
        """The host name and port that the visitor requested, as the proxy passes them on."""
        return self.headers.get("X-Forwarded-Host") or self.headers.get("Host", "")

    @property
    def is_preflight(self) -> bool:
        return self.method == "OPTIONS" and is_preflight(self.headers, self.method)

    @property
    def is_prefetch(self) -> bool:
        """True if the browser prefetches or prerenders a page that the visitor may never open."""
        for name in _PURPOSE_HEADERS:
            purpose = self.headers.get(name)
            if purpose and ("prefetch" in purpose.lower() or "prerender" in purpose.lower()):
                return True
        return False

    @property
    def is_cross_site(self) -> bool:
        """True if another site made the browser send the request. Browsers send no cookie of ours
        with such a POST (SameSite=Lax). A new cookie could replace the visitor's session."""
        return self.site == "cross-site"

    @property
    def site(self) -> str:
        """The value of Sec-Fetch-Site: `none` if the visitor or a program caused the request. If
        the header is absent, the value follows from Origin: another host, or `null`, is cross-site.
        """
        site = self.headers.get(_SITE)
        if site is not None:
            return site
        origin = self.headers.get(_ORIGIN)
        if not origin:
            return "none"
        return "same-origin" if origin.partition("://")[2] == self.host else "cross-site"

    @property
    def is_framed_cross_site(self) -> bool:
        return self.headers.get(_DEST) in _FRAMES and self.is_cross_site

    @property
    def is_script_or_navigation(self) -> bool:
        """True for a navigation, and for a request by a script or program. False for an image, a
        HEAD and a prefetch, whose responses nobody reads."""
        if self.method == "HEAD" or self.is_prefetch:
            return False
        is_navigation = self.headers.get(_MODE, "navigate") == "navigate"
        return is_navigation or self.headers.get(_DEST, "empty") == "empty"

    @property
    def wants_page(self) -> bool:
        accept = self.headers.get(_ACCEPT, "").lower()
        return "text/html" in accept and "json" not in accept

    @property
    def wants_json(self) -> bool:
        accept = self.headers.get(_ACCEPT, "").lower()
        return "json" in accept and "html" not in accept

    @property
    def wants_place(self) -> bool:
        """True if a request without a cookie is one that should take a place in the queue.

        These are navigations and requests of programs. A page's images, scripts and background
        requests are not, because browsers send six at a time, and each would take a place. Nor is a
        prefetch, or a page in a frame on another site, because there the browser keeps no cookie
        and nobody would use the place."""
        if self.is_prefetch or self.is_framed_cross_site:
            return False
        mode = self.headers.get(_MODE)
        if mode is not None:
            return mode == "navigate"
        dest = self.headers.get(_DEST)
        if dest is not None:
            return dest in {"document", "iframe", "frame"}
        accept = self.headers.get(_ACCEPT, "").lower()
        if "json" in accept or "text/html" in accept:
            return True
        # The client is a program, which accepts */* or sends no Accept, or an old browser, whose
        # scripts and images accept */* or image/*.
        is_browser = self.headers.get(_USER_AGENT, "").startswith("Mozilla/")
        return accept in {"", "*/*"} and not is_browser

    def may_take_place(self, room: Gate) -> bool:
        """Return True if a request without a cookie takes a slot or a place.

        In a room with free slots, a crawler's request takes one too. A crawler never waits."""
        if self.method not in {"GET", "HEAD"} and self.is_cross_site:
            return False
        if self.wants_place:
            return True
        headers, snapshot = self.headers, room.snapshot
        # A request for a page's part has Sec-Fetch-Mode, its type in Accept or the page in Referer.
        if self.is_prefetch or _MODE in headers or _DEST in headers or _REFERER in headers:
            return False
        if headers.get(_ACCEPT, "").startswith(("image/", "text/css")) or snapshot is None:
            return False
        return not snapshot.waiting and snapshot.active < room.settings.find_cap(snapshot.learned)


def _read_grant(url: str, room: Gate) -> tuple[Grant | None, str]:
    """Return the grant in a URL, or None if it is missing or invalid, and the result for the
    metrics, which is "" without a grant."""
    text = find_grant(url)
    if text is None:
        return None, ""
    try:
        grant = room.grants.read(text, room.clock.now_ms())
    except GrantError as error:
        return None, error.reason
    if grant.class_name not in room.settings.classes:
        return None, "unknown_class"
    return grant, "believed"
