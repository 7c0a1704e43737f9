"""Renders the waiting page as a replica serves it: to browsers without JavaScript, and to visitors
who were redirected to the page.

The only source of the page is static/waiting.html. This module fills the source's
`<!--# echo … -->` placeholders in the visitor's language, and converts the source for nginx."""

import html
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sidecar.gate.page.branding import read_site_name
from sidecar.gate.page.dates import format_date_and_time
from sidecar.gate.page.languages import Languages
from sidecar.gate.page.status_document import parse_updated_ms
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.estimate import round_range
from sidecar.visitors.visitor_number import visitor_number

_ECHO = re.compile(r'<!--# echo var="(\w+)"(?: encoding="\w+")? default="([^"]*)" -->')
#: The nginx variables for the placeholders that nginx fills in. Their values are safe in HTML.
_NGINX_VARIABLES = {
    "waitroom_room": "$waitroom_room",
    "waitroom_method": "$waitroom_method",
    "waitroom_state": "$waitroom_state",
    "waitroom_view": "$waitroom_page_view",
    "waitroom_position": "$waitroom_position",
    "waitroom_next": "$waitroom_next_shown",
    "waitroom_join": "${waitroom_join}",
    "waitroom_lang": "$waitroom_language",
    "waitroom_dir": "$waitroom_dir",
    "waitroom_paused": "$waitroom_paused",
    "waitroom_unsent": "$waitroom_unsent_text",
    "t_heading": "$waitroom_heading",
    "t_intro": "$waitroom_intro",
}
#: The maximum length of a string in the file, in bytes. nginx accepts at most 4,096.
_MAX_STRING_BYTES = 3_000


def format_opening(document: Mapping[str, Any], settings: RoomSettings, language: str) -> str:
    """Return the opening of the document's event as date and time in a language, or "" without an
    event. The time is in the event's time zone, because the visitor's is unknown."""
    schedule = settings.schedule_at(parse_updated_ms(document))
    event = schedule.event or schedule.next_event
    if event is None:
        return ""
    opens = datetime.fromtimestamp(event.opens_at / 1000, ZoneInfo(event.timezone))
    return format_date_and_time(opens, language)


def format_for_nginx(template: str, languages: Languages) -> str:
    """Return an nginx file with the page in the variable `$waitroom_page`. Serving the page from
    memory costs half as much as from a file. Raises ValueError for a line too long for nginx."""
    tags, used = " ".join(languages.tags), {"paused", "unsent"}.union(*_FIRST_VIEWS.values())

    def fill(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name in _NGINX_VARIABLES or not name.startswith("t_"):
            return tags if name == "waitroom_languages" else _NGINX_VARIABLES.get(name, default)
        used.add(name[2:])
        return f"${{waitroom_{name}}}"

    quoted = template.replace("\\", "\\\\").replace("'", "\\'").replace("$", "&#36;")
    parts = [""]
    for number, line in enumerate(_ECHO.sub(fill, quoted).splitlines(keepends=True), start=1):
        if len(line.encode()) > _MAX_STRING_BYTES:
            raise ValueError(f"line {number} is longer than {_MAX_STRING_BYTES:,} bytes: break it")
        if len((parts[-1] + line).encode()) > _MAX_STRING_BYTES:
            parts.append("")
        parts[-1] += line
    names = [f"waitroom_page_{number}" for number in range(1, len(parts) + 1)]
    maps = [
        f"map \"\" ${name} {{\n    default '{part}';\n}}\n"
        for name, part in zip(names, parts, strict=True)
    ]
    whole = "".join(f"${{{name}}}" for name in names)
    return (
        "# Made from static/waiting.html and static/i18n/ by `waitroom page`. Edit those, make\n"
        "# this again, and reload nginx.\n"
        f"{_format_language_maps(languages)}{_format_text_maps(languages, used)}"
        f'{"".join(maps)}map "" $waitroom_page {{\n    default "{whole}";\n}}\n'
    )


def _format_language_maps(languages: Languages) -> str:
    """Return nginx maps that choose the first language in Accept-Language that the page has."""
    bases = sorted({tag.lower().partition("-")[0] for tag in languages.tags})
    known = "|".join(bases)
    tag = rf"zh-(?:\w+-)*(?:hant|tw|hk|mo)\b|{known}"
    header = rf"~*^(?:(?!\s*(?:{known})\b)[^,]*+,)*+\s*(?<waitroom_tag>{tag})\b"
    chosen = {base: languages.choose(base) for base in bases}
    rtl = {tag: "rtl" for tag in languages.tags if languages.direction(tag) == "rtl"}
    return (
        _format_map("http_accept_language", "accepted", {"default": "", header: "$waitroom_tag"})
        + _format_map(
            "waitroom_accepted",
            "language",
            {"default": "en", **chosen, "~*^zh-": languages.choose("zh-Hant")},
        )
        + _format_map("waitroom_language", "dir", {"default": "ltr", **rtl})
    )


def _format_text_maps(languages: Languages, names: set[str]) -> str:
    """Return nginx maps that choose the texts of these names by language, and headings by view."""
    maps = [
        _format_map(
            "waitroom_language",
            f"t_{name}",
            {
                "default" if tag == "en" else tag: html.escape(languages.texts(tag)[name])
                for tag in sorted(languages.tags, key=lambda tag: (tag != "en", tag))
            },
        )
        for name in sorted(names)
    ]
    for number, name in enumerate(("heading", "intro")):
        values = {view: f"$waitroom_t_{keys[number]}" for view, keys in _FIRST_VIEWS.items()}
        maps.append(
            _format_map("waitroom_page_view", name, {"default": values.pop("waiting"), **values})
        )
    paused, unsent = "$waitroom_t_paused", "$waitroom_t_unsent"
    maps.append(_format_map("waitroom_page_view", "paused", {"default": "", "paused": paused}))
    maps.append(_format_map("waitroom_unsent", "unsent_text", {"default": unsent, "": ""}))
    return "".join(maps)


def _format_map(source: str, name: str, values: Mapping[str, str]) -> str:
    """Return an nginx map. A dollar sign at the beginning of a value stands for a variable."""
    lines = (
        f"    {key if key.isalnum() else _quote(key)} "
        f"{value if value.startswith('$') else _quote(value.replace('$', '&#36;'))};\n"
        for key, value in values.items()
    )
    return f"map ${source} $waitroom_{name} {{\n{''.join(lines)}}}\n"


def _quote(text: str) -> str:
    """Return the text as nginx reads it in single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Page:
    """The waiting page, rendered from the static files."""

    def __init__(self, static: Path) -> None:
        self._template = (static / "waiting.html").read_text(encoding="utf-8")
        self.site_name = read_site_name(self._template)
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
        self,
        document: Mapping[str, Any],
        language: str,
        settings: RoomSettings,
        *,
        unsent: bool = False,
    ) -> dict[str, str]:
        """Return the values of a status document as our page and templates show them. `unsent` is
        True if the visitor sent data, such as a form, that did not arrive at the site."""
        texts, labels = self.languages.texts(language), settings.line_labels.get(document["line"])
        line = labels and (labels.get(language) or labels.get("en") or next(iter(labels.values())))
        return {
            "position": _format_count(document, "position"),
            "ahead": _format_count(document, "ahead"),
            "number": visitor_number(document["visitor"]) if document["visitor"] else "",
            "line": texts["line"].replace("{n}", line) if line else "",
            "wait": _format_wait(texts, document),
            "paused": texts["paused"] if document.get("paused") else "",
            "unsent": texts["unsent"] if unsent else "",
        }

    def choose_headings(self, language: str, view: str, opens: str = "") -> tuple[str, str]:
        """Return the heading and the first paragraph of a view, one of _VIEWS."""
        texts = self.languages.texts(language)
        heading, intro = (texts.get(key, "").replace("{t}", opens) for key in _VIEWS[view])
        return heading, intro


def _format_count(document: Mapping[str, Any], name: str) -> str:
    """Return the status document's `position` or `ahead` as text, such as 7 or 2000+, or ""."""
    above, count = document["position_above"], document[name]
    return f"{above}+" if above is not None else "" if count is None else str(count)


def _format_wait(texts: Mapping[str, str], document: Mapping[str, Any]) -> str:
    """Return the estimated wait in the same words as static/waiting.js."""
    if document["wait_seconds"] is None:
        return texts["wait_measuring" if document.get("measuring") else "wait_unknown"]
    low_s, high_s = document["wait_seconds_low"], document["wait_seconds_high"]
    if high_s <= 60:
        return texts["wait_less"]
    low, high = round_range(low_s, document["wait_seconds"], high_s)
    key, unit = ("wait_hours", 60) if high >= 90 else ("wait_about" if low else "wait_under", 1)
    numbers = [f"{n / unit:g}".replace(".", texts["decimal"]) for n in sorted({low, high} - {0})]
    return texts[key].replace("{n}", "–".join(numbers))  # noqa: RUF001 - as in print


#: For each view, the names of the texts of its heading and its first paragraph. `opens_draw` is the
#: view `opens` of an event whose places are drawn by lot.
_VIEWS = {
    "waiting": ("heading", "intro"),
    "next": ("next", "intro"),
    "admitted": ("turn", "turn_intro"),
    "full": ("full", "stay"),
    "closed": ("closed", "closed_intro"),
    "opens": ("opens_on", "opens_intro"),
    "opens_draw": ("opens_on", "opens_draw"),
    "prequeue": ("prequeue", "equal"),
    "not_queued": ("lost", "lost_intro"),
    "left": ("left", ""),
    "joining": ("joining", "stay"),
}
#: The names of these texts for the views that nginx serves, which do not show the opening's time.
_FIRST_VIEWS = {
    **{view: _VIEWS[view] for view in ("waiting", "next", "full", "closed", "joining")},
    "paused": _VIEWS["waiting"],
    "opens": ("not_open", "opens_intro"),
    "opens_draw": ("not_open", "opens_draw"),
    "prequeue": ("prequeue", "opens_intro"),
}
