"""One answer of the site, as the doctor keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.gate.nginx_stamps import STAMP_COOKIE
from sidecar.queue.tokens import COOKIE_PREFIX


@dataclass(frozen=True)
class Given:
    """A Set-Cookie."""

    name: str
    value: str
    #: By lower-case name; "" for those without a value.
    attributes: dict[str, str]

    @classmethod
    def read(cls, line: str) -> Given:
        first, *rest = (part.strip() for part in line.split(";"))
        name, _, value = first.partition("=")
        pairs = (part.partition("=") for part in rest if part)
        return cls(name, value, {key.strip().lower(): text.strip() for key, _, text in pairs})


@dataclass(frozen=True)
class Reply:
    """Status 0: nothing came, and `error` says why."""

    status: int = 0
    headers: CIMultiDictProxy[str] = field(default_factory=lambda: CIMultiDictProxy(CIMultiDict()))
    body: str = ""
    error: str = ""
    #: The middle between asking and answer, seconds since 1970 by this machine's clock.
    at_s: float = 0.0

    @cached_property
    def document(self) -> dict[str, Any]:
        """The JSON object that came; empty if it was something else."""
        if "json" not in self.headers.get("Content-Type", ""):
            return {}
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def cookie(self) -> Given | None:
        """The cookie of a room, if it gave one."""
        for line in self.headers.getall("Set-Cookie", []):
            given = Given.read(line)
            if given.name.startswith(COOKIE_PREFIX) and given.name != STAMP_COOKIE:
                return given
        return None

    @cached_property
    def stamp(self) -> Given | None:
        """What lets nginx pass the next requests by itself, if it brought that."""
        given = (Given.read(line) for line in self.headers.getall("Set-Cookie", []))
        return next((one for one in given if one.name == STAMP_COOKIE), None)

    @property
    def is_waiting_page(self) -> bool:
        return 'data-room="' in self.body and "/_waitroom/" in self.body

    @property
    def is_nginx_error(self) -> bool:
        """The bare page that nginx makes itself."""
        return self.status >= 400 and f"<center><h1>{self.status} " in self.body

    @property
    def is_of_sidecar(self) -> bool:
        """Whether the doors under /_waitroom/ gave it: a status document or a problem."""
        if "state" in self.document and "refresh_after_seconds" in self.document:
            return True
        return self.document.get("title") in _TITLES


#: Titles of the edge's problem documents.
_TITLES = {
    "Unknown room",
    "Too many polls",
    "The store does not answer",
    "An error of the waiting room",
}
