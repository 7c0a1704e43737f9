"""The response of a site to one request of `waitroom doctor`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.cli.parsing import read_object
from sidecar.gate.nginx_key import STAMP_COOKIE
from sidecar.visitors.tokens import COOKIE_PREFIX

_STATE = re.compile(r'data-state="(\w*)"')
_POSITION = re.compile(r'data-position="(\d+)"')
_CACHE_HEADERS = ("X-Cache", "X-Cache-Status", "X-Proxy-Cache", "CF-Cache-Status", "Cache-Status")
#: The titles of problem documents (RFC 9457) with which the sidecar responds to visitors.
_PROBLEM_TITLES = {
    "Unknown room",
    "Too many polls",
    "The store does not answer",
    "An error of the waiting room",
}


@dataclass(frozen=True)
class SetCookie:
    """A cookie from a Set-Cookie header."""

    name: str
    value: str
    #: The attributes by name in lower case. The value of Secure or HttpOnly is an empty string.
    attributes: dict[str, str]

    def __str__(self) -> str:
        """Return the cookie as a browser sends it back."""
        return f"{self.name}={self.value}"

    @classmethod
    def read(cls, header: str) -> "SetCookie":
        first, *attributes = (part.strip() for part in header.split(";"))
        name, _, value = first.partition("=")
        pairs = (part.partition("=") for part in attributes if part)
        return cls(name, value, {key.strip().lower(): text.strip() for key, _, text in pairs})


@dataclass(frozen=True)
class SiteResponse:
    """A site's response. If there was none, `status` is 0 and `error` says why."""

    status: int = 0
    headers: CIMultiDictProxy[str] = field(default_factory=lambda: CIMultiDictProxy(CIMultiDict()))
    body: str = ""
    error: str = ""
    #: The time halfway between request and response, in seconds since 1970 by the local clock.
    at_s: float = 0.0

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the body if it is a JSON object, else an empty dictionary."""
        is_json = "json" in self.headers.get("Content-Type", "")
        return (read_object(self.body) if is_json else None) or {}

    @cached_property
    def cookie(self) -> SetCookie | None:
        """Return the room's cookie if the response sets one, else None."""
        cookies = (cookie for cookie in self._read_cookies() if cookie.name != STAMP_COOKIE)
        return next((cookie for cookie in cookies if cookie.name.startswith(COOKIE_PREFIX)), None)

    @cached_property
    def stamp_cookie(self) -> SetCookie | None:
        """Return the cookie with which nginx admits visitors without the sidecar, or None."""
        cookies = self._read_cookies()
        return next((cookie for cookie in cookies if cookie.name == STAMP_COOKIE), None)

    @property
    def state(self) -> str:
        """Return the visitor's state on a waiting page, or ""."""
        match = _STATE.search(self.body)
        return match[1] if match else ""

    @property
    def position(self) -> int | None:
        match = _POSITION.search(self.body)
        return int(match[1]) if match else None

    @property
    def is_waiting_page(self) -> bool:
        return 'data-room="' in self.body and "/_waitroom/" in self.body

    @property
    def is_waiting_script(self) -> bool:
        is_javascript = "javascript" in self.headers.get("Content-Type", "")
        return self.status == 200 and is_javascript and "_waitroom" in self.body

    @property
    def is_of_gate(self) -> bool:
        """Return True if Waitroom made this response, because the visitor must wait."""
        is_to_room = "/_waitroom/" in self.headers.get("Location", "")
        policies = "\n".join(self.headers.getall("Content-Security-Policy", []))
        has_our_policy = "connect-src 'self'; form-action 'self'" in policies
        has_status = "status_url" in self.document
        return self.is_waiting_page or is_to_room or has_our_policy or has_status

    @property
    def is_of_sidecar(self) -> bool:
        """Return True if an endpoint of the sidecar under /_waitroom/ made this response: a status
        document or a problem document."""
        if "state" in self.document and "refresh_after_seconds" in self.document:
            return True
        return self.document.get("title") in _PROBLEM_TITLES

    @property
    def is_nginx_error(self) -> bool:
        """Return True if this is nginx's built-in error page."""
        return self.status >= 400 and f"<center><h1>{self.status} " in self.body

    @property
    def is_cache_hit(self) -> bool:
        """Return True if the headers say that this response came from a cache."""
        says_hit = ("hit" in self.headers.get(name, "").lower() for name in _CACHE_HEADERS)
        return "Age" in self.headers or any(says_hit)

    def _read_cookies(self) -> Iterator[SetCookie]:
        return map(SetCookie.read, self.headers.getall("Set-Cookie", []))
