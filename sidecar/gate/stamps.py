"""Stamps: with one nginx decides by itself, for seconds, that its bearer is inside.

A stamp is the cookie `waitroom_now`, `<md5>.<until>.<key>`. nginx verifies it by `secure_link`
(nginx/waitroom/stamp.conf), so it is made the way that module wants: the MD5 of
`until;room;binding;secret`, in base64url. `until` is the last second in which it is valid, by the
clock of the nginx that asked; `binding` names that nginx.

nginx's keys are derived from `secret_keys` for this purpose alone. nginx proves which key it has:
nobody else can ask for a stamp, and nginx gets none that it could not verify.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5

from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS

STAMP_COOKIE = "waitroom_now"
#: A stamp ends this many seconds after the second of the question: no later than a kept verdict.
_MORE_S = VERDICT_TTL_MS // 1000 - 1
#: nginx's question: its proof, its $msec, and its name or that of several together.
_ASKED = re.compile(r"([\w-]{22});([0-9]{10})\.[0-9]{3};([\w.-]{1,255})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class NginxKey:
    """The key of nginx that is derived from one of `secret_keys`."""

    #: Tells the keys apart in stamps; not a secret.
    id: str
    #: nginx shows it to replicas, and to nobody else.
    proof: str
    #: Ends the text of which a stamp is the MD5.
    secret: str

    @classmethod
    def of(cls, secret_key: str) -> "NginxKey":
        return cls(
            _derived(secret_key, "id")[:4],
            _derived(secret_key, "proof")[:22],
            _derived(secret_key, "secret"),
        )


def _derived(secret_key: str, part: str) -> str:
    digest = hmac.digest(secret_key.encode(), b"waitroom-nginx-key/" + part.encode(), "sha256")
    return _text(digest)


class Stamps:
    """Signs stamps for any nginx that has one of the keys."""

    def __init__(self, secret_keys: Sequence[str]) -> None:
        self._keys = {key.proof: key for key in map(NginxKey.of, secret_keys)}
        #: Whether nginx's last key is one of ours: known, unknown; None: nginx sent none yet.
        self.nginx_key: str | None = None

    def sign(self, asked: str, room: str) -> str | None:
        """Return the cookie's value for nginx's question, or None if nginx may not have one."""
        match = _ASKED.match(asked)
        if match is None:
            return None
        proof, second, binding = match.groups()
        key = self._keys.get(proof)
        self.nginx_key = "known" if key else "unknown"
        if key is None:
            return None
        until = int(second) + _MORE_S
        return f"{stamp_md5(until, room, binding, key.secret)}.{until}.{key.id}"


def stamp_md5(until: int, room: str, binding: str, secret: str) -> str:
    """Return the MD5 as nginx computes it. docs/security.md says why MD5 is enough here."""
    text = f"{until};{room};{binding};{secret}".encode()
    return _text(md5(text, usedforsecurity=False).digest())


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode().rstrip("=")


def key_file(secret_keys: Sequence[str]) -> str:
    """Return the file that nginx includes. The last key is the newest, as in the settings."""
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
