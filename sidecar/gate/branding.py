"""A room's own name and logo on the pages that the sidecar renders."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.rooms.settings import RoomSettings

_SITE = re.compile(r'(?<=<span id="site">)[^<]*')
_LOGO = re.compile(r'(?<=<img src=")/_waitroom/static/logo\.svg(?=")')


def branded(page: str, settings: RoomSettings) -> str:
    """The page with them, in the places where static/ has the name and the logo of all rooms."""
    return _filled(_LOGO, settings.logo, _filled(_SITE, settings.site_name, page))


def _filled(place: re.Pattern[str], value: str | None, page: str) -> str:
    if value is None:
        return page
    text = html.escape(value)
    return place.sub(lambda _: text, page, count=1)  # a template would read its backslashes
