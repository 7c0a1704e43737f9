"""Reading and writing the one cookie of a room, or of a template of leases."""

import math
from collections.abc import Mapping

from multidict import istr

from sidecar.gate.contract import Gate
from sidecar.gate.stamps import STAMP_COOKIE
from sidecar.http.cookies import cookie_value, cookie_values, secure
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.visitors.grants import Grant, GrantError, grant_in
from sidecar.visitors.model import Pass, Token

#: Looked up by itself, and not spelt anew for each request.
_COOKIE = istr("Cookie")
#: As long as most visitors take from one page to the next.
_STAMP_STAYS_S = 600


def read_token(headers: Mapping[str, str], room: Gate) -> Token | None:
    """The visitor's. Of several that we signed: a pass whose session runs, a ticket, a pass that
    is over; the first of a kind."""
    texts = cookie_values(headers.get(_COOKIE), room.tokens.cookie_name)
    if len(texts) < 2:
        return room.tokens.read(texts[0]) if texts else None
    tokens = [token for text in texts if (token := room.tokens.read(text)) is not None]
    now_ms = room.clock.now_ms()
    return min(tokens, key=lambda token: _rank(token, now_ms), default=None)


def _rank(token: Token, now_ms: int) -> int:
    if not isinstance(token, Pass):
        return 1
    return 0 if token.expires_ms > now_ms else 2


def read_given(headers: Mapping[str, str], room: Gate) -> Token | None:
    """The token of a Set-Cookie that this very request was given already.

    An internal redirect in nginx (index, rewrite) asks about one request twice, the
    second time still with the cookies that the browser sent.
    """
    return room.tokens.read(cookie_value(headers.get("X-Waitroom-Given"), room.tokens.cookie_name))


def read_bearer(  # noqa: PLR0913 - one for each thing that is said
    headers: Mapping[str, str],
    room: Gate,
    *,
    uri: str = "",
    exempt: str = "",
    grant_uri: str = "",
    class_name: str = "",
) -> Bearer:
    """Only where the room asks: most do not, and this is done for every request. `uri`, `exempt`
    and `class_name` are nginx's; no visitor can have set them.
    `grant_uri` is where to look for a grant; its source does not matter, as a grant is signed."""
    grant, result = None, ""
    settings = room.settings
    if not (settings.class_header and class_name in settings.classes):
        class_name = ""
    if settings.classes and not class_name:
        grant, result = _read_grant(grant_uri, room)
    if not (room.checks_bearer or exempt or class_name or result):
        return NOBODY
    address, user_agent = headers.get("X-Real-IP", ""), headers.get("User-Agent", "")
    return Bearer(address, user_agent, uri, exempt, class_name, grant, result)


def _read_grant(grant_uri: str, room: Gate) -> tuple[Grant | None, str]:
    """The grant in an address, if it is believed, and what became of it ("" where there is
    none)."""
    text = grant_in(grant_uri)
    if text is None:
        return None, ""
    try:
        grant = room.grants.read(text, room.clock.now_ms())
    except GrantError as error:
        return None, error.word
    if grant.class_name not in room.settings.classes:
        return None, "unknown_class"
    return grant, "believed"


def set_cookie(headers: Mapping[str, str], room: Gate, token: Token) -> str:
    """The value of Set-Cookie. It lives as long as the token is worth something."""
    if isinstance(token, Pass):
        life_s = max(1, math.ceil((token.expires_ms - room.clock.now_ms()) / 1000))
    else:
        life_s = room.tokens.lifetime_ms // 1000
    return (
        f"{room.tokens.cookie_name}={room.tokens.write(token)}; Max-Age={life_s}; "
        f"Path=/; HttpOnly; SameSite=Lax{secure(headers)}"
    )


def stamp_cookie(headers: Mapping[str, str], stamp: str) -> str:
    """The value of Set-Cookie for a stamp: one name for all rooms. What is worthless stays: by it
    nginx knows who keeps cookies."""
    return (
        f"{STAMP_COOKIE}={stamp}; Max-Age={_STAMP_STAYS_S}; "
        f"Path=/; HttpOnly; SameSite=Lax{secure(headers)}"
    )
