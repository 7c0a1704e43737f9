"""The keys with which nginx verifies stamps (stamps.py), and the file from which nginx reads them.

The keys are derived from `secret_keys` and have no other use. In a request for a stamp, nginx
proves which key it has. So nobody else can request one, and nginx can verify each stamp it gets."""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

STAMP_COOKIE = "waitroom_now"


@dataclass(frozen=True, slots=True)
class NginxKey:
    """A key for nginx, derived from one of `secret_keys`."""

    #: The public id. A stamp contains the id of the key with which it was signed.
    id: str
    #: The proof that nginx has the key. nginx sends it only to replicas.
    proof: str
    #: The secret at the end of the string whose MD5 is in the stamp.
    secret: str

    @classmethod
    def derive_from(cls, secret_key: str) -> "NginxKey":
        def derive(part: str) -> str:
            text = f"waitroom-nginx-key/{part}".encode()
            return encode_base64url(hmac.digest(secret_key.encode(), text, "sha256"))

        return cls(derive("id")[:4], derive("proof")[:22], derive("secret"))


def encode_base64url(digest: bytes) -> str:
    """Return a digest in base64url without padding, as nginx's `secure_link` reads it."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def build_key_file(secret_keys: Sequence[str]) -> str:
    """Return the text of nginx's file with the keys. The last of `secret_keys` is the newest."""
    *older_keys, newest = map(NginxKey.derive_from, secret_keys)
    lines = [
        "# nginx's key, made by `waitroom nginx-key`: with it nginx knows for seconds who is",
        "# inside, without asking (docs/nginx.md). Anyone who reads it can let themselves in.",
        "# Make it again when secret_keys change; without this file stamps are off.",
        f'set $waitroom_proof "{newest.proof}";',
        f'set $waitroom_stamp_key "{newest.secret}";',
    ]
    for key in older_keys:
        lines.append(f'if ($cookie_{STAMP_COOKIE} ~ "[.]{key.id}$") {{')
        lines.append(f'    set $waitroom_stamp_key "{key.secret}";')
        lines.append("}")
    return "\n".join([*lines, "include waitroom/stamp.conf;", ""])
