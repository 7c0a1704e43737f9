"""The sidecar's own version of the waiting page, for browsers without JavaScript and for
visitors who are sent to it.

The page's one source is static/waiting.html. This module fills its `<!--# echo … -->` places
in the visitor's language, and makes of it what nginx answers by itself.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sidecar.gate.page import status_document
from sidecar.gate.page.languages import Languages
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.estimate import Wait
from sidecar.visitors.visitor_number import visitor_number

_ECHO = re.compile(r'<!--# echo var="(\w+)"(?: encoding="\w+")? default="([^"]*)" -->')
#: The places that nginx fills in, by variables that cannot break out of the page.
_OF_NGINX = {
    "waitroom_room": "$waitroom_room",
    "waitroom_method": "$waitroom_method",
    "waitroom_state": "$waitroom_state",
    "waitroom_position": "$waitroom_position",
    "waitroom_next": "$waitroom_next_shown",
    "waitroom_join": "${waitroom_join}",
    "waitroom_unsent": "$waitroom_unsent",
}
#: nginx takes no parameter above 4,096 bytes.
_MAX_PARAMETER = 3_000


def opening_in_digits(document: Mapping[str, Any], settings: RoomSettings) -> str:
    """Return when the document's event opens, by the event's own time zone: the visitor's is not
    known here."""
    event = status_document.event(status_document.moments_at(document, settings))
    if event is None:
        return ""
    opens = datetime.fromtimestamp(event.opens_at / 1000, ZoneInfo(event.timezone))
    return f"{opens:%Y-%m-%d %H:%M} ({event.timezone})"


def for_nginx(template: str, languages: Iterable[str]) -> str:
    """Return the page as nginx's `$waitroom_page`: from memory it costs half of what a file does.

    Raises ValueError for a line that is too long for nginx.
    """
    tags = " ".join(languages)

    def fill(match: re.Match[str]) -> str:
        name, default = match.groups()
        return tags if name == "waitroom_languages" else _OF_NGINX.get(name, default)

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
    """Renders the page from the static files."""

    def __init__(self, static: Path) -> None:
        self._template = (static / "waiting.html").read_text(encoding="utf-8")
        self.languages = Languages(static)

    def render(
        self, *, language: str, view: str, values: Mapping[str, str], opens: str = ""
    ) -> str:
        """Return the page. `view` names the heading's text, `values` fill the waitroom_… places,
        and `opens` is when an event opens."""
        texts = self.languages.texts(language)
        filled = {f"t_{key}": text for key, text in texts.items()}
        filled["t_heading"], filled["t_intro"] = self.headings(language, view, opens)
        filled |= {f"waitroom_{key}": value for key, value in values.items()}
        filled["waitroom_lang"] = language
        filled["waitroom_dir"] = self.languages.direction(language)
        filled["waitroom_languages"] = " ".join(self.languages.tags)

        def fill(match: re.Match[str]) -> str:
            return html.escape(filled.get(match[1], match[2]))

        return _ECHO.sub(fill, self._template)

    def shown(
        self, document: Mapping[str, Any], language: str, *, unsent: bool = False
    ) -> dict[str, str]:
        """Return what our page and a template show of a status document. `unsent`: what the visitor
        sent has not arrived."""
        texts, line = self.languages.texts(language), document["line"]
        return {
            "position": status_document.position_in_digits(document),
            "ahead": status_document.ahead_in_digits(document),
            "number": visitor_number(document["visitor"]) if document["visitor"] else "",
            "line": texts["line"].replace("{n}", line) if line else "",
            "wait": self.wait_in_words(language, status_document.wait_of(document)),
            "unsent": texts["unsent"] if unsent else "",
        }

    def headings(self, language: str, view: str, opens: str = "") -> tuple[str, str]:
        """Return the heading and the first paragraph."""
        texts = self.languages.texts(language)
        heading, intro = (texts.get(key, "").replace("{t}", opens) for key in _VIEWS[view])
        return heading, intro

    def wait_in_words(self, language: str, wait: Wait | None) -> str:
        """Return the estimate as the page's script words it."""
        texts = self.languages.texts(language)
        if wait is None:
            return texts["wait_unknown"]
        low_s, high_s = wait.low, wait.high
        if high_s <= 60:
            return texts["wait_less"]
        if low_s >= 7200:
            return texts["wait_more"]
        step = 60 * (1 if high_s <= 1200 else 5 if high_s <= 3600 else 10)
        low = low_s // step * step // 60
        high = math.ceil(high_s / step) * step // 60
        span = f"{low}–{high}" if 1 <= low < high else str(high)  # noqa: RUF001 - as in print
        return texts["wait_under" if low < 1 else "wait_about"].replace("{n}", span)


#: view -> the texts of its heading and its first paragraph
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
