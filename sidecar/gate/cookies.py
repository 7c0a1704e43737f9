"""The cookies that a gate sets: the token of its room or template, and the stamp."""

import math
from collections.abc import Mapping

from sidecar.gate.contract import Gate
from sidecar.gate.nginx_key import STAMP_COOKIE
from sidecar.http.cookies import secure_flag
from sidecar.visitors.model import Pass, Token

#: The lifetime of the stamp cookie: longer than most visitors stay on one page.
_STAMP_COOKIE_S = 600


def format_cookie(headers: Mapping[str, str], room: Gate, token: Token) -> str:
    """Return the Set-Cookie for a token. The cookie expires with the token."""
    if isinstance(token, Pass):
        life_s = max(1, math.ceil((token.expires_ms - room.clock.now_ms()) / 1000))
    else:
        life_s = room.tokens.lifetime_ms // 1000
    return _cookie(headers, room.tokens.cookie_name, room.tokens.write(token), life_s)


def format_stamp_cookie(headers: Mapping[str, str], stamp: str) -> str:
    """Return the Set-Cookie for a stamp, with one name for all rooms. The cookie outlives the stamp
    because nginx sees from it whether the visitor keeps cookies."""
    return _cookie(headers, STAMP_COOKIE, stamp, _STAMP_COOKIE_S)


def _cookie(headers: Mapping[str, str], name: str, value: str, life_s: int) -> str:
    return f"{name}={value}; Max-Age={life_s}; Path=/; HttpOnly; SameSite=Lax{secure_flag(headers)}"
