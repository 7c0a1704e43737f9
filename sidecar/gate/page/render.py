"""Renders the waiting page as a replica serves it: to browsers without JavaScript, and to visitors
who were redirected to the page.

The only source of the page is static/waiting.html. This module fills the source's
`<!--# echo … -->` placeholders in the visitor's language, and converts the source for nginx.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sidecar.gate.page.languages import Languages
from sidecar.gate.page.position import format_count
from sidecar.gate.page.status_document import parse_updated_ms
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.visitor_number import visitor_number

_ECHO = re.compile(r'<!--# echo var="(\w+)"(?: encoding="\w+")? default="([^"]*)" -->')
#: The nginx variables for the placeholders that nginx fills in. Their values are safe in HTML.
_NGINX_VARIABLES = {
    "waitroom_room": "$waitroom_room",
    "waitroom_method": "$waitroom_method",
    "waitroom_state": "$waitroom_state",
    "waitroom_position": "$waitroom_position",
    "waitroom_next": "$waitroom_next_shown",
    "waitroom_join": "${waitroom_join}",
    "waitroom_unsent": "$waitroom_unsent",
}
#: The maximum length of a parameter, in bytes. nginx accepts none of more than 4,096 bytes.
_MAX_PARAMETER = 3_000


def format_opening(document: Mapping[str, Any], settings: RoomSettings) -> str:
    """Return when the document's event opens, or "" without an event. The time is in the event's
    time zone, because the visitor's is unknown."""
    moments = settings.moments(parse_updated_ms(document))
    event = moments.event or moments.coming
    if event is None:
        return ""
    opens = datetime.fromtimestamp(event.opens_at / 1000, ZoneInfo(event.timezone))
    return f"{opens:%Y-%m-%d %H:%M} ({event.timezone})"


def format_for_nginx(template: str, languages: Iterable[str]) -> str:
    """Return an nginx file with the page in the variable `$waitroom_page`, because serving it from
    memory costs half as much as from a file. Raises ValueError for a line too long for nginx."""
    tags = " ".join(languages)

    def fill(match: re.Match[str]) -> str:
        name, default = match.groups()
        return tags if name == "waitroom_languages" else _NGINX_VARIABLES.get(name, default)

    quoted = template.replace("\\", "\\\\").replace("'", "\\'").replace("$", "&#36;")
    parts = [""]
    for number, line in enumerate(_ECHO.sub(fill, quoted).splitlines(keepends=True), start=1):
        if len(line.encode()) > _MAX_PARAMETER:
            raise ValueError(f"line {number} is longer than {_MAX_PARAMETER:,} bytes: break it")
        if len((parts[-1] + line).encode()) > _MAX_PARAMETER:
            parts.append("")
        parts[-1] += line
    names = [f"waitroom_page_{number}" for number in range(1, len(parts) + 1)]
    maps = [
        f"map \"\" ${name} {{\n    default '{part}';\n}}\n"
        for name, part in zip(names, parts, strict=True)
    ]
    whole = "".join(f"${{{name}}}" for name in names)
    return (
        "# Made from static/waiting.html by `waitroom page`. Edit that, make this again, and\n"
        "# reload nginx.\n"
        f'{"".join(maps)}map "" $waitroom_page {{\n    default "{whole}";\n}}\n'
    )


class Page:
    """The waiting page, rendered from the static files."""

    def __init__(self, static: Path) -> None:
        self._template = (static / "waiting.html").read_text(encoding="utf-8")
        self.languages = Languages(static)

    def render(
        self, *, language: str, view: str, values: Mapping[str, str], opens: str = ""
    ) -> str:
        """Return the page. `view` selects the heading, `values` fill the waitroom_… placeholders,
        and `opens` is the time when the event opens."""
        texts = self.languages.texts(language)
        variables = {f"t_{key}": text for key, text in texts.items()}
        variables["t_heading"], variables["t_intro"] = self.choose_headings(language, view, opens)
        variables |= {f"waitroom_{key}": value for key, value in values.items()}
        variables["waitroom_lang"] = language
        variables["waitroom_dir"] = self.languages.direction(language)
        variables["waitroom_languages"] = " ".join(self.languages.tags)

        def fill(match: re.Match[str]) -> str:
            return html.escape(variables.get(match[1], match[2]))

        return _ECHO.sub(fill, self._template)

    def collect_status_values(
        self, document: Mapping[str, Any], language: str, *, unsent: bool = False
    ) -> dict[str, str]:
        """Return the values of a status document as our page and templates show them. `unsent` is
        True if the visitor sent data, such as a form, that did not arrive at the site."""
        texts, line = self.languages.texts(language), document["line"]
        return {
            "position": format_count(document, "position"),
            "ahead": format_count(document, "ahead"),
            "number": visitor_number(document["visitor"]) if document["visitor"] else "",
            "line": texts["line"].replace("{n}", line) if line else "",
            "wait": _format_wait(texts, document),
            "unsent": texts["unsent"] if unsent else "",
        }

    def choose_headings(self, language: str, view: str, opens: str = "") -> tuple[str, str]:
        """Return the heading and the first paragraph of a view."""
        texts = self.languages.texts(language)
        heading, intro = (texts.get(key, "").replace("{t}", opens) for key in _VIEWS[view])
        return heading, intro


def _format_wait(texts: Mapping[str, str], document: Mapping[str, Any]) -> str:
    """Return the estimated wait in the same words as static/waiting.js."""
    if document["wait_seconds"] is None:
        return texts["wait_unknown"]
    low_s, high_s = document["wait_seconds_low"], document["wait_seconds_high"]
    if high_s <= 60:
        return texts["wait_less"]
    if low_s >= 7200:
        return texts["wait_more"]
    step = 60 * (1 if high_s <= 1200 else 5 if high_s <= 3600 else 10)
    low = low_s // step * step // 60
    high = math.ceil(high_s / step) * step // 60
    span = f"{low}–{high}" if 1 <= low < high else str(high)  # noqa: RUF001 - as in print
    return texts["wait_under" if low < 1 else "wait_about"].replace("{n}", span)


#: For each view, the names of the translated texts for its heading and its first paragraph.
_VIEWS = {
    "waiting": ("heading", "intro"),
    "next": ("next", "intro"),
    "admitted": ("turn", "turn_intro"),
    "full": ("full", "stay"),
    "closed": ("closed", "closed_intro"),
    "opens": ("opens_on", "opens_intro"),
    "prequeue": ("prequeue", "equal"),
    "not_queued": ("lost", "lost_intro"),
    "left": ("left", ""),
}
