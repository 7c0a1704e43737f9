"""Stamps: by one nginx decides by itself, for seconds, that its bearer is inside.

A stamp is the cookie `waitroom_now`, `<md5>.<until>.<key>`. nginx verifies it by `secure_link`
(nginx/waitroom/stamp.conf), so it is made the way that module wants: the MD5 of
`until;room;binding;secret`, in base64url. `until` is the last second in which it is worth
something, by the clock of the nginx that asked; `binding` says which nginx that was.

nginx's keys are derived from `secret_keys` for this purpose alone. nginx shows by a proof which
one it has, so that nobody else can ask for a stamp, and none is given that it could not verify.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5

from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS

STAMP_COOKIE = "waitroom_now"
#: It ends with the second after the second in which it was asked for, and the next: no later than
#: a kept verdict does.
_MORE_S = VERDICT_TTL_MS // 1000 - 1
#: What nginx asks with: its proof, its $msec, and its name or what stands for several.
_ASKED = re.compile(r"([\w-]{22});([0-9]{10})\.[0-9]{3};([\w.-]{1,255})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class NginxKey:
    """What nginx knows of one of `secret_keys`."""

    #: Tells the keys apart in stamps. No secret.
    id: str
    #: Shown to replicas, and to nobody else.
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
    """Gives stamps to any nginx that has one of the keys."""

    def __init__(self, secret_keys: Sequence[str]) -> None:
        self._keys = {key.proof: key for key in map(NginxKey.of, secret_keys)}
        #: Whether nginx's key is one of ours: known, unknown; None: none was shown yet.
        self.nginx_key: str | None = None

    def sign(self, asked: str, room: str) -> str | None:
        """The value of the cookie, for what nginx asks with; None: it cannot be given one."""
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
    """As nginx computes it. That an MD5 is enough here: docs/security.md."""
    text = f"{until};{room};{binding};{secret}".encode()
    return _text(md5(text, usedforsecurity=False).digest())


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode().rstrip("=")


def key_file(secret_keys: Sequence[str]) -> str:
    """What nginx includes. The newest of the keys is the last, as in the settings."""
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
