"""Reading and writing the one cookie of a room."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.base.model import TICKET_LIFETIME_MS, Pass
from sidecar.base.tokens import cookie_value
from sidecar.core.bearer import NOBODY, Bearer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.base.model import Token
    from sidecar.core.rooms import Room


def read_token(headers: Mapping[str, str], room: Room) -> Token | None:
    return room.tokens.read(cookie_value(headers.get("Cookie"), room.tokens.cookie_name))


def read_given(headers: Mapping[str, str], room: Room) -> Token | None:
    """The token of a Set-Cookie that this very request was given already.

    An internal redirect in nginx (index, rewrite) asks about one request twice, the
    second time still with the cookies that the browser sent.
    """
    return room.tokens.read(cookie_value(headers.get("X-Waitroom-Given"), room.tokens.cookie_name))


def read_bearer(
    headers: Mapping[str, str], room: Room, *, uri: str = "", exempt: str = ""
) -> Bearer:
    """Only where the room asks: most do not, and this is done for every request. `uri` and
    `exempt` are nginx's; whoever reads them knows that no visitor can have said them."""
    if not (room.asks_who or exempt):
        return NOBODY
    return Bearer(headers.get("X-Real-IP", ""), headers.get("User-Agent", ""), uri, exempt)


def set_cookie(headers: Mapping[str, str], room: Room, token: Token) -> str:
    """The value of Set-Cookie. It lives as long as the token is worth something."""
    if isinstance(token, Pass):
        life_s = max(1, math.ceil((token.expires_ms - room.clock.now_ms()) / 1000))
    else:
        life_s = TICKET_LIFETIME_MS // 1000
    secure = "; Secure" if headers.get("X-Forwarded-Proto") == "https" else ""
    return (
        f"{room.tokens.cookie_name}={room.tokens.write(token)}; Max-Age={life_s}; "
        f"Path=/; HttpOnly; SameSite=Lax{secure}"
    )
