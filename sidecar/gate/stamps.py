"""Stamps: cookies with which nginx admits a visitor for a few seconds without asking a replica.

A stamp is the cookie `waitroom_now`, `<md5>.<until>.<key>`. nginx verifies it by `secure_link`
(nginx/waitroom/stamp.conf), so it has the form that this module requires: the MD5 of
`until;room;binding;secret`, in base64url. `until` is the last second in which the stamp is valid,
by the clock of the nginx that requested it; `binding` names that nginx.

The keys for stamps are derived from `secret_keys` and have no other use. nginx proves which key it
has, so that nobody else can request a stamp and nginx gets none that it cannot verify.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5

from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS

STAMP_COOKIE = "waitroom_now"
#: The lifetime of a stamp after the second of nginx's request, no longer than a cached verdict's.
_LIFETIME_S = VERDICT_TTL_MS // 1000 - 1
#: The form of nginx's stamp request: its proof, its $msec, and its name, which several may share.
_STAMP_REQUEST = re.compile(r"([\w-]{22});([0-9]{10})\.[0-9]{3};([\w.-]{1,255})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class NginxKey:
    """A key of nginx, derived from one of `secret_keys`."""

    #: The public id, which tells the keys apart in stamps.
    id: str
    #: The proof that nginx has the key. nginx sends it only to replicas.
    proof: str
    #: The secret at the end of the string whose MD5 is in the stamp.
    secret: str

    @classmethod
    def of(cls, secret_key: str) -> "NginxKey":
        return cls(
            _derive(secret_key, "id")[:4],
            _derive(secret_key, "proof")[:22],
            _derive(secret_key, "secret"),
        )


def _derive(secret_key: str, part: str) -> str:
    digest = hmac.digest(secret_key.encode(), b"waitroom-nginx-key/" + part.encode(), "sha256")
    return _base64url(digest)


class Stamps:
    """The signer of stamps for any nginx that has one of the keys."""

    def __init__(self, secret_keys: Sequence[str]) -> None:
        self._keys = {key.proof: key for key in map(NginxKey.of, secret_keys)}
        #: Whether nginx's last proof was of one of these keys: known or unknown. None: none so far.
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
        return f"{stamp_md5(until, room, binding, key.secret)}.{until}.{key.id}"


def stamp_md5(until: int, room: str, binding: str, secret: str) -> str:
    """Return the MD5 as nginx computes it. docs/security.md explains why MD5 is enough here."""
    text = f"{until};{room};{binding};{secret}".encode()
    return _base64url(md5(text, usedforsecurity=False).digest())


def _base64url(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode().rstrip("=")


def key_file(secret_keys: Sequence[str]) -> str:
    """Return the file with the keys that nginx includes. `secret_keys` has the newest key last."""
    *older, newest = map(NginxKey.of, secret_keys)
    lines = [
        "# nginx's key, made by `waitroom nginx-key`: with it nginx knows for seconds who is",
        "# inside, without asking (docs/nginx.md). Anyone who reads it can let themselves in.",
        "# Make it again when secret_keys change; without this file stamps are off.",
        f'set $waitroom_proof "{newest.proof}";',
        f'set $waitroom_stamp_key "{newest.secret}";',
    ]
    for key in older:
        lines.append(f'if ($cookie_{STAMP_COOKIE} ~ "[.]{key.id}$") {{')
        lines.append(f'    set $waitroom_stamp_key "{key.secret}";')
        lines.append("}")
    return "\n".join([*lines, "include waitroom/stamp.conf;", ""])
