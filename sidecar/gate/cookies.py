"""Formats the cookies that a gate sets: the token of its room or template, and the stamp."""

import math
from collections.abc import Mapping

from sidecar.gate.contract import Gate
from sidecar.gate.nginx_key import STAMP_COOKIE
from sidecar.http.cookies import secure_flag
from sidecar.visitors.model import Pass, Token

#: The lifetime of the stamp cookie in seconds: longer than most visitors stay on one page.
_STAMP_COOKIE_S = 600


def format_cookie(headers: Mapping[str, str], room: Gate, token: Token) -> str:
    """Return the Set-Cookie header for a token. The cookie expires with the token."""
    if isinstance(token, Pass):
        lifetime_s = max(1, math.ceil((token.expires_ms - room.clock.now_ms()) / 1000))
    else:
        lifetime_s = room.tokens.lifetime_ms // 1000
    return _format(headers, room.tokens.cookie_name, room.tokens.write(token), lifetime_s)


def format_stamp_cookie(headers: Mapping[str, str], stamp: str) -> str:
    """Return the Set-Cookie header for a stamp, with one name for all rooms. The cookie outlives
    the stamp, because it also shows nginx that the browser accepts cookies."""
    return _format(headers, STAMP_COOKIE, stamp, _STAMP_COOKIE_S)


def _format(headers: Mapping[str, str], name: str, value: str, lifetime_s: int) -> str:
    secure = secure_flag(headers)
    return f"{name}={value}; Max-Age={lifetime_s}; Path=/; HttpOnly; SameSite=Lax{secure}"
