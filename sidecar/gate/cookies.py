"""Reads and formats a gate's cookies: the token of its room or template, and the stamp."""

import math
from collections.abc import Mapping

from multidict import istr

from sidecar.gate.contract import Gate
from sidecar.gate.nginx_key import STAMP_COOKIE
from sidecar.http.cookies import cookie_values, secure_flag
from sidecar.visitors.model import Pass, Token

_COOKIE = istr("Cookie")
#: The lifetime of the stamp cookie in seconds: longer than most visitors stay on one page.
_STAMP_COOKIE_S = 600


def read_token(headers: Mapping[str, str], room: Gate) -> Token | None:
    """Return the visitor's token. Of several valid tokens, return the first of the best kind: a
    pass that has not expired, then a ticket, then an expired pass."""
    texts = cookie_values(headers.get(_COOKIE), room.tokens.cookie_name)
    if len(texts) < 2:
        return room.tokens.read(texts[0]) if texts else None
    tokens = [token for text in texts if (token := room.tokens.read(text)) is not None]
    now_ms = room.clock.now_ms()

    def get_rank(token: Token) -> int:
        if not isinstance(token, Pass):
            return 1
        return 0 if token.expires_ms > now_ms else 2

    return min(tokens, key=get_rank, default=None)


def format_cookie(headers: Mapping[str, str], room: Gate, token: Token) -> str:
    """Return the Set-Cookie header for a token. The cookie expires with the token, or after the
    latest time to which the site may extend the session."""
    if isinstance(token, Pass):
        lifetime_s = max(1, math.ceil((token.expires_ms - room.clock.now_ms()) / 1000))
        lifetime_s += math.ceil(room.settings.max_extension or 0)
    else:
        lifetime_s = room.tokens.lifetime_ms // 1000
    text = room.tokens.write(token)
    return _format_set_cookie(headers, room.tokens.cookie_name, text, lifetime_s)


def format_stamp_cookie(headers: Mapping[str, str], stamp: str) -> str:
    """Return the Set-Cookie header for a stamp. Its name is the same for all rooms. The cookie
    outlives the stamp, because it also shows nginx that the browser accepts cookies."""
    return _format_set_cookie(headers, STAMP_COOKIE, stamp, _STAMP_COOKIE_S)


def _format_set_cookie(headers: Mapping[str, str], name: str, value: str, lifetime_s: int) -> str:
    secure = secure_flag(headers)
    return f"{name}={value}; Max-Age={lifetime_s}; Path=/; HttpOnly; SameSite=Lax{secure}"
