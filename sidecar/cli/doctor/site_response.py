"""The response to one of the doctor's requests."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.gate.nginx_key import STAMP_COOKIE
from sidecar.visitors.tokens import COOKIE_PREFIX

_STATE = re.compile(r'data-state="(\w*)"')
_POSITION = re.compile(r'data-position="(\d+)"')
_CACHE_HEADERS = ("X-Cache", "X-Cache-Status", "X-Proxy-Cache", "CF-Cache-Status", "Cache-Status")
#: The titles of problem documents of the edge listener.
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
    #: The attributes by their names in lower case. An attribute without a value has an empty one.
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
    """A response of a site. Status 0 means that there was no response, and `error` says why."""

    status: int = 0
    headers: CIMultiDictProxy[str] = field(default_factory=lambda: CIMultiDictProxy(CIMultiDict()))
    body: str = ""
    error: str = ""
    #: The time halfway between request and response, as seconds since 1970 by this machine's clock.
    at_s: float = 0.0

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the body if it is a JSON object, else an empty dictionary."""
        if "json" not in self.headers.get("Content-Type", ""):
            return {}
        try:
            document = json.loads(self.body)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}

    @cached_property
    def cookie(self) -> SetCookie | None:
        """Return the cookie of a room that the response sets, or None."""
        for cookie in self._read_cookies():
            if cookie.name.startswith(COOKIE_PREFIX) and cookie.name != STAMP_COOKIE:
                return cookie
        return None

    @cached_property
    def stamp(self) -> SetCookie | None:
        """Return the stamp, with which nginx itself lets the next requests pass, or None."""
        return next((each for each in self._read_cookies() if each.name == STAMP_COOKIE), None)

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
        """Return True for a response to a visitor who must wait."""
        is_to_room = "/_waitroom/" in self.headers.get("Location", "")
        policies = "\n".join(self.headers.getall("Content-Security-Policy", []))
        has_our_policy = "connect-src 'self'; form-action 'self'" in policies
        has_status = "status_url" in self.document
        return self.is_waiting_page or is_to_room or has_our_policy or has_status

    @property
    def is_of_sidecar(self) -> bool:
        """Return True for a status document or a problem of the endpoints under /_waitroom/."""
        if "state" in self.document and "refresh_after_seconds" in self.document:
            return True
        return self.document.get("title") in _PROBLEM_TITLES

    @property
    def is_nginx_error(self) -> bool:
        """Return True for an error page that nginx itself has made."""
        return self.status >= 400 and f"<center><h1>{self.status} " in self.body

    @property
    def is_cache_hit(self) -> bool:
        """Return True if the headers say that this response came from a cache."""
        says_hit = ("hit" in self.headers.get(name, "").lower() for name in _CACHE_HEADERS)
        return "Age" in self.headers or any(says_hit)

    def _read_cookies(self) -> Iterator[SetCookie]:
        return map(SetCookie.read, self.headers.getall("Set-Cookie", []))
