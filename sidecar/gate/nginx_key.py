"""The key by which nginx verifies stamps and proves to a replica that it may request them. It is
derived from `secret_keys` and has no other use."""

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
        return cls(
            _derive(secret_key, "id")[:4],
            _derive(secret_key, "proof")[:22],
            _derive(secret_key, "secret"),
        )


def _derive(secret_key: str, part: str) -> str:
    digest = hmac.digest(secret_key.encode(), b"waitroom-nginx-key/" + part.encode(), "sha256")
    return base64url(digest)


def base64url(digest: bytes) -> str:
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
