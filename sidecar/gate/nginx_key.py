"""The keys with which nginx verifies stamps (stamps.py), and the file with them for nginx.

The keys are derived from `secret_keys` and have no other use. nginx proves which key it has, so
that nobody else can request a stamp and nginx gets no stamp that it cannot verify.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

STAMP_COOKIE = "waitroom_now"


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
        def derive(part: str) -> str:
            text = f"waitroom-nginx-key/{part}".encode()
            return encode_base64url(hmac.digest(secret_key.encode(), text, "sha256"))

        return cls(derive("id")[:4], derive("proof")[:22], derive("secret"))


def encode_base64url(digest: bytes) -> str:
    """Return a digest in base64url without padding, as nginx's `secure_link` reads it."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def build_key_file(secret_keys: Sequence[str]) -> str:
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
