"""Signs stamps: cookies with which nginx admits a visitor for a few seconds without a replica.

A stamp is the cookie `waitroom_now`, `<md5>.<until>.<key>`. nginx verifies it by `secure_link`
(nginx/waitroom/stamp.conf), so it has the form that `secure_link` requires: the MD5 of
`until;room;binding;secret`, in base64url. `until` is the last second in which the stamp is valid,
by the clock of the nginx that requested it; `binding` names that nginx."""

import re
from collections.abc import Sequence
from hashlib import md5

from aiohttp import web

from sidecar.gate.nginx_key import NginxKey, encode_base64url
from sidecar.rooms.exemptions import has_exemptions, has_partial_rollout
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS

#: How many seconds a stamp is valid after nginx's request, no longer than a cached verdict.
_LIFETIME_S = VERDICT_TTL_MS // 1000 - 1
#: nginx's request for a stamp: its proof, its $msec, and its name. Several nginx may share a name.
_STAMP_REQUEST = re.compile(r"([\w-]{22});([0-9]{10})\.[0-9]{3};([\w.-]{1,255})\Z", re.ASCII)


def may_have_stamps(settings: RoomSettings) -> bool:
    """Return True if the room's visitors may get stamps. A stamp is valid for any client, whatever
    exemptions and roll-out the room has, so the room must not use these settings."""
    return not (
        settings.bind_pass in {"user_agent", "ip"}
        or settings.exempt_header
        or has_partial_rollout(settings)
        or has_exemptions(settings)
    )


class Stamps:
    """Signs stamps for any nginx that has one of the keys."""

    def __init__(self, secret_keys: Sequence[str]) -> None:
        self._keys = {key.proof: key for key in map(NginxKey.derive_from, secret_keys)}
        #: "known" if nginx's last proof was of one of these keys, else "unknown". None at first.
        self.nginx_key: str | None = None

    def sign(self, stamp_request: str, room: str) -> str | None:
        """Return the stamp for nginx's request. None if the request or its proof is invalid."""
        match = _STAMP_REQUEST.match(stamp_request)
        if match is None:
            return None
        proof, second, binding = match.groups()
        key = self._keys.get(proof)
        self.nginx_key = "known" if key else "unknown"
        if key is None:
            return None
        until = int(second) + _LIFETIME_S
        return f"{compute_stamp_md5(until, room, binding, key.secret)}.{until}.{key.id}"


STAMPS = web.AppKey("stamps", Stamps)


def compute_stamp_md5(until: int, room: str, binding: str, secret: str) -> str:
    """Return a stamp's MD5, as nginx computes it. docs/security.md explains why MD5 is enough."""
    text = f"{until};{room};{binding};{secret}".encode()
    return encode_base64url(md5(text, usedforsecurity=False).digest())
