"""One request of a visitor: every header and cookie that a gate decides by, read here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web
from multidict import istr

from sidecar.gate.contract import Gate
from sidecar.http.auth_request import is_preflight, original_method
from sidecar.http.cookies import cookie_value, cookie_values
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.visitors.grants import Grant, GrantError, find_grant
from sidecar.visitors.model import Pass, Token

# Names that are looked up as they are: a plain string is lower-cased anew for each request.
_ACCEPT, _COOKIE, _USER_AGENT = istr("Accept"), istr("Cookie"), istr("User-Agent")
_ADDRESS, _CLASS, _EXEMPT = istr("X-Real-IP"), istr("X-Waitroom-Class"), istr("X-Waitroom-Exempt")
_DEST, _MODE, _SITE = istr("Sec-Fetch-Dest"), istr("Sec-Fetch-Mode"), istr("Sec-Fetch-Site")
_GIVEN, _ORIGINAL_URI = istr("X-Waitroom-Given"), istr("X-Original-URI")
_ORIGIN, _REFERER = istr("Origin"), istr("Referer")
#: The headers by which browsers, new and old, announce a prefetch.
_PURPOSES = (istr("Sec-Purpose"), istr("Purpose"), istr("X-Moz"))
_FRAMES = {"iframe", "frame", "embed", "object", "fencedframe"}


@dataclass(slots=True)
class VisitorRequest:
    """One request of a visitor, with what the proxy says of it.

    Only nginx's own words are trusted: other proxies pass on whatever a visitor sends under the
    names of headers that they do not know.
    """

    headers: Mapping[str, str]
    #: The visitor's method, where a proxy asks with one of its own.
    method: str
    token: Token | None = None
    #: The requested address. It may hold a grant, and those are signed.
    uri: str = ""
    #: The token of a `join_url`.
    join_token: str | None = None
    is_from_nginx: bool = False
    #: Whether the waiting page sent the request, rather than a proxy on behalf of another one.
    is_from_page: bool = False
    #: The token that nginx's request was given already: an internal redirect (index, rewrite) asks
    #: about one request twice, the second time still with the browser's cookies.
    earlier_token: Token | None = None

    @classmethod
    def from_nginx(cls, headers: Mapping[str, str], room: Gate) -> "VisitorRequest":
        """Read a question of nginx's auth_request."""
        earlier_token = None
        if _GIVEN in headers:
            text = cookie_value(headers[_GIVEN], room.tokens.cookie_name)
            earlier_token = room.tokens.read(text)
        token = earlier_token or _read_token(headers, room)
        if isinstance(earlier_token, Pass) and earlier_token.is_first:
            # The browser has not shown this pass yet, so it is not one that is used.
            token = replace(earlier_token, renewed_ms=earlier_token.renewed_ms + 1)
        uri = headers.get(_ORIGINAL_URI, "")
        return cls(headers, original_method(headers), token, uri, None, True, False, earlier_token)

    @classmethod
    def from_page(cls, request: web.Request, room: Gate, uri: str = "") -> "VisitorRequest":
        """Read a request of the waiting page, which nginx passes on. `uri`: its own address, or
        where it leads."""
        join_token = None
        if "token=" in request.raw_path:  # the first one: the last may be part of `next`
            join_token = request.query.get("token")
        headers = request.headers
        return cls(headers, request.method, _read_token(headers, room), uri, join_token, True, True)

    @classmethod
    def from_proxy(
        cls, headers: Mapping[str, str], room: Gate, method: str, uri: str
    ) -> "VisitorRequest":
        """Read a question of another proxy."""
        return cls(headers, method, _read_token(headers, room), uri)

    def bearer(self, room: Gate, *, may_join: bool) -> Bearer:
        """Return what the room needs to know of the client: for most rooms nothing."""
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
        if not (room.checks_bearer or exempt or class_name or grant_result or has_waited):
            return NOBODY
        # A path exempts where nginx names it, and neither a page's own address nor another proxy's.
        uri = self.uri if by_nginx and not self.is_from_page else ""
        user_agent = headers.get(_USER_AGENT, "")
        return Bearer(
            self.address, user_agent, uri, exempt, class_name, grant, grant_result, has_waited
        )

    @property
    def address(self) -> str:
        """The client's address as the proxy names it, never one that the visitor names."""
        return self.headers.get(_ADDRESS, "")

    @property
    def host(self) -> str:
        """The host name and port that the visitor requested, as the proxy passes them on."""
        return self.headers.get("X-Forwarded-Host") or self.headers.get("Host", "")

    @property
    def referer(self) -> str:
        return self.headers.get(_REFERER, "")

    @property
    def has_cookies(self) -> bool:
        return _COOKIE in self.headers

    @property
    def is_preflight(self) -> bool:
        return self.method == "OPTIONS" and is_preflight(self.headers, self.method)

    @property
    def is_prefetch(self) -> bool:
        """Whether the browser asks before the visitor does (prefetch, prerender). The visitor may
        never go there."""
        for name in _PURPOSES:
            purpose = self.headers.get(name)
            if purpose and ("prefetch" in purpose.lower() or "prerender" in purpose.lower()):
                return True
        return False

    @property
    def is_cross_site(self) -> bool:
        """Whether another site made the browser send the request. The browser leaves our cookie
        out of such a POST (SameSite=Lax): its sender may well be inside, and a new cookie would
        take that from them."""
        return self._site == "cross-site"

    @property
    def is_same_site(self) -> bool:
        """Whether this site's own page made the browser ask, or the visitor, or a program."""
        return self._site in {"same-origin", "none"}

    @property
    def _site(self) -> str:
        """The value of Sec-Fetch-Site. Where the browser sends none, it follows from Origin:
        another host, or `null`, is cross-site."""
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
        """Whether a visitor sees the response: a navigation, or the call of a script or program.
        A picture's address, a HEAD and a prefetch are none."""
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
        """Whether a request without a cookie comes from somebody who wants to get in.

        Navigations do, and programs. A page's images, scripts and background requests do not: of
        six at a time each would take a place. Nor does a prefetch, or a page in a frame on another
        site, where it keeps no cookie: nobody would wait in those places.
        """
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
        # No browser of the last years: a program says */* or nothing at all, an old browser's
        # script or image says */* or image/*.
        is_browser = self.headers.get(_USER_AGENT, "").startswith("Mozilla/")
        return accept in {"", "*/*"} and not is_browser

    def may_take_place(self, room: Gate) -> bool:
        """Return whether a request without a cookie takes a slot or a place.

        While the room is free, a crawler's does too: it calls itself a browser, and never waits.
        """
        if self.method not in {"GET", "HEAD"} and self.is_cross_site:
            return False
        if self.wants_place:
            return True
        headers, snapshot = self.headers, room.snapshot
        # A browser that asks for a part of a page says so in Sec-Fetch-Mode or Accept, or names the
        # page in Referer.
        if self.is_prefetch or _MODE in headers or _DEST in headers or _REFERER in headers:
            return False
        if headers.get(_ACCEPT, "").startswith(("image/", "text/css")) or snapshot is None:
            return False
        return not snapshot.waiting and snapshot.active < room.settings.total_active_users


def _read_token(headers: Mapping[str, str], room: Gate) -> Token | None:
    """Return the visitor's token. Of several that we signed the first of the best kind: a pass
    whose session runs, then a ticket, then a pass that is over."""
    texts = cookie_values(headers.get(_COOKIE), room.tokens.cookie_name)
    if len(texts) < 2:
        return room.tokens.read(texts[0]) if texts else None
    tokens = [token for text in texts if (token := room.tokens.read(text)) is not None]
    return min(tokens, key=partial(_rank, room.clock.now_ms()), default=None)


def _rank(now_ms: int, token: Token) -> int:
    if not isinstance(token, Pass):
        return 1
    return 0 if token.expires_ms > now_ms else 2


def _read_grant(address: str, room: Gate) -> tuple[Grant | None, str]:
    """Return the grant in an address, if it is believed, and the result for the metrics, "" where
    there is no grant."""
    text = find_grant(address)
    if text is None:
        return None, ""
    try:
        grant = room.grants.read(text, room.clock.now_ms())
    except GrantError as error:
        return None, error.reason
    if grant.class_name not in room.settings.classes:
        return None, "unknown_class"
    return grant, "believed"
