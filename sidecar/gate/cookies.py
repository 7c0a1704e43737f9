"""The cookies that a gate sets: the one of its room or template, and the stamp."""

import math
from collections.abc import Mapping

from sidecar.gate.contract import Gate
from sidecar.gate.stamps import STAMP_COOKIE
from sidecar.http.cookies import secure_flag
from sidecar.visitors.model import Pass, Token

#: As long as most visitors take from one page to the next.
_STAMP_STAYS_S = 600


def set_cookie(headers: Mapping[str, str], room: Gate, token: Token) -> str:
    """Return the value of Set-Cookie. The cookie lives as long as the token is worth something."""
    if isinstance(token, Pass):
        life_s = max(1, math.ceil((token.expires_ms - room.clock.now_ms()) / 1000))
    else:
        life_s = room.tokens.lifetime_ms // 1000
    return _cookie(headers, room.tokens.cookie_name, room.tokens.write(token), life_s)


def stamp_cookie(headers: Mapping[str, str], stamp: str) -> str:
    """Return the value of Set-Cookie for a stamp: one name for all rooms. A stamp that is over
    stays: by it nginx knows who keeps cookies."""
    return _cookie(headers, STAMP_COOKIE, stamp, _STAMP_STAYS_S)


def _cookie(headers: Mapping[str, str], name: str, value: str, life_s: int) -> str:
    return f"{name}={value}; Max-Age={life_s}; Path=/; HttpOnly; SameSite=Lax{secure_flag(headers)}"
