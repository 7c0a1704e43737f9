"""Renders previews of the waiting page in each state, for people who design the page.

A preview is the real page with its own script. preview.js replies to the requests of that script.
"""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecar.gate.page import status_document
from sidecar.gate.page import template as page_template
from sidecar.gate.page.about import build_about
from sidecar.gate.page.branding import apply_branding, build_style_sheet
from sidecar.gate.page.render import Page
from sidecar.gate.page.status_document import choose_message
from sidecar.kit.clock import iso
from sidecar.kit.templates import Template
from sidecar.rooms.messages import get_text, get_translations
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings

SCRIPT = Path(__file__).with_name("preview.js")
_STATIC = "/_waitroom/static/"
_WAITING: dict[str, Any] = {
    "state": "waiting",
    "visitor": "cHJldmlldy0xMjM0NTY3OA",
    "position": 38,
    "position_above": None,
    "ahead": 37,
    "line": None,
    "waiting": 1240,
    "wait_seconds": 780,
    "wait_seconds_low": 660,
    "wait_seconds_high": 900,
    "refresh_after_seconds": 60,
    "phase": "open",
}
_NO_POSITION = {"position": None, "ahead": None, "wait_seconds": None, "wait_seconds_low": None}
_CLOSED = {**_WAITING, **_NO_POSITION, "state": "closed", "phase": "closed"}
#: The document that precedes the previewed one. Its position is higher, so the progress bar moves.
_BEFORE = {**_WAITING, "position": 120, "ahead": 119, "refresh_after_seconds": 0.02}
#: For each state, the replies to the page's script, in order. None means no reply, and a string
#: means an error. Times are in seconds from now.
STATES: dict[str, list[Any]] = {
    "joining": [None],
    "waiting": [_BEFORE, _WAITING],
    "next": [
        _BEFORE,
        {**_WAITING, "position": 1, "ahead": 0, "wait_seconds_low": 5, "wait_seconds_high": 40},
    ],
    "called": [{**_WAITING, **_NO_POSITION, "state": "admitted"}],
    "paused": [_BEFORE, {**_WAITING, "paused": True}],
    "opens": [{**_CLOSED, "opens_at": 93_780, "prequeue_from": 91_980}],
    "prequeue": [{**_WAITING, **_NO_POSITION, "phase": "prequeue", "opens_at": 754}],
    "closed": [_CLOSED],
    "full": [{**_WAITING, **_NO_POSITION, "state": "full"}],
    "left": [_BEFORE, _WAITING],
    "lost": [{**_WAITING, **_NO_POSITION, "state": "not_queued", "refresh_after_seconds": 0.02}],
    "error": [_BEFORE, {**_WAITING, "refresh_after_seconds": 0.02}, "nobody answers"],
    "no-script": [],
}
_RELOADS = re.compile(r'<noscript>.*?</noscript>\n?|<meta http-equiv="refresh"[^>]*>\n?', re.DOTALL)
_PAGE_SCRIPT = re.compile(r'<script src="/_waitroom/static/waiting\.js[^>]*></script>')
#: Matches the position before the path of a file of the site, in a style sheet.
_SITE_URL = re.compile(r"(?<=url\()([\"']?)(?=/(?!/|_waitroom/static/))")
#: Matches the attribute before the path of a file of the site, in a template.
_SITE_ATTRIBUTE = re.compile(r"""(?<=\s)(?:src|href)=["']?(?=/(?!/|_waitroom/))""")


@dataclass(frozen=True)
class Preview:
    """The preview of one room. `static` is the URL of the page's files and of preview.js."""

    page: Page
    room: str
    settings: RoomSettings
    language: str = "en"
    static: str = "static/"
    #: The URL of the site, for files that are not the page's own.
    site: str = ""
    #: The nonce of inline styles, if the Content-Security-Policy of the preview requires one.
    nonce: str = ""
    #: The colour scheme, light or dark. Empty for the browser's own.
    scheme: str = ""

    def html(self, state: str) -> str:
        """Return the HTML of the page in one of STATES."""
        settings, has_script = self._make_settings_absolute(), state != "no-script"
        values = {"room": self.room, "message": choose_message(self._message, self.language) or ""}
        if not has_script:  # a replica fills in the numbers for a browser without JavaScript
            values |= self.page.collect_status_values(_WAITING, self.language, settings)
            values |= {"waiting": str(_WAITING["waiting"]), "updated": "10:21:07 UTC"}
            values["refresh"] = "60"
        view = values["view"] = "joining" if has_script else "waiting"
        text = self.page.render(language=self.language, view=view, values=values)
        text = _RELOADS.sub("", apply_branding(text, settings))
        link = f'<link rel="stylesheet" href="/_waitroom/{self.room}/style.css">'
        sheet = _SITE_URL.sub(rf"\g<1>{self.site}", build_style_sheet(settings))
        text = text.replace(link, f'<style nonce="{self.nonce}">\n{sheet}\n</style>')
        if self.scheme:  # preview.js reads the rules of style sheets that are of another origin
            text = text.replace('<link rel="stylesheet"', '<link rel="stylesheet" crossorigin')
        script = _PAGE_SCRIPT.search(text)
        if script is not None:
            before = self._build_script(settings, state) if has_script or self.scheme else ""
            text = text.replace(script[0], before + script[0] * has_script)
        return text.replace(_STATIC, self.static)

    def _make_settings_absolute(self) -> RoomSettings:
        """Return the settings with absolute URLs of the site's files."""

        def make_absolute(path: str) -> str:
            is_on_site = path.startswith("/") and not path.startswith(_STATIC)
            return self.site + path if is_on_site else path

        links = [
            link.model_copy(update={"address": make_absolute(link.address)})
            for link in self.settings.footer
        ]
        logo = self.settings.logo and make_absolute(self.settings.logo)
        return self.settings.model_copy(update={"footer": tuple(links), "logo": logo})

    @property
    def _message(self) -> dict[str, Any]:
        """The members of the status document about the operator's message."""
        message = self.settings.message
        return {"message": get_text(message), "messages": get_translations(message)}

    def _build_script(self, settings: RoomSettings, state: str) -> str:
        common = {"room": self.room, **self._message}
        data = {
            "answers": [
                {**reply, **common} if isinstance(reply, dict) else reply for reply in STATES[state]
            ],
            "about": build_about(self.room, settings).model_dump(mode="json"),
            "texts": {tag: self.page.languages.texts(tag) for tag in {"en", self.language}},
            "leaves": state == "left",
            "scheme": self.scheme,
        }
        # HTML has no escapes inside a script, so the JSON escapes any "</script>".
        text = json.dumps(data).replace("<", r"\u003c")
        return (
            f'<script type="application/json" id="preview">{text}</script>\n'
            f'<script src="{_STATIC}preview.js"></script>\n'
        )


#: The states in which a room's own template is shown. In other states our page is shown.
TEMPLATE_STATES = ("waiting", "next", "paused", "opens", "prequeue", "closed", "full")


def render_template(template: Template, preview: Preview, state: str) -> str:
    """Return the HTML of the room's own template, which needs no preview.js."""
    now_ms, example = time.time_ns() // 1_000_000, STATES[state][-1]
    changes: dict[str, Any] = {"queue_all": state == "paused", "events": ()}
    if opens_s := example.get("opens_at"):
        # If the example does not say when the pre-queue began, it began a minute ago.
        begins_s = example.get("prequeue_from", -60)
        changes["events"] = (
            RoomEvent(
                name="sale",
                opens_at=now_ms + opens_s * 1000,
                prequeue_from=now_ms + begins_s * 1000,
            ),
        )
    settings = preview.settings.model_copy(update=changes)
    schedule = settings.schedule_at(now_ms)
    document = {
        **example,
        **status_document.build_event_members(schedule.event or schedule.next_event),
        "room": preview.room,
        "joined_at": iso(now_ms),
        "updated_at": iso(now_ms),
    }
    values = page_template.collect_values(document, settings, preview.page, preview.language)
    text = template.render({**values, "next": "/"})
    text = _SITE_ATTRIBUTE.sub(rf"\g<0>{preview.site}", text)
    return text.replace(_STATIC, preview.static)


def render_overview(room: str, states: Iterable[str]) -> str:
    """Return the HTML of a page that shows all states at once, each file in its own frame."""
    frames = "\n".join(
        f'<figure><figcaption><a href="{state}.html">{state}</a></figcaption>'
        f'<iframe src="{state}.html" title="{state}"></iframe></figure>'
        for state in states
    )
    return _OVERVIEW.replace("ROOM", room).replace("FRAMES", frames)


_OVERVIEW = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ROOM: the waiting page in all states</title>
<style>
:root { color-scheme: light dark }
body { margin: 1rem; font: 1rem/1.5 system-ui, sans-serif }
main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, 390px) }
figure { margin: 0 }
iframe { inline-size: 390px; block-size: 760px; border: 1px solid GrayText }
</style>
</head>
<body>
<h1>ROOM: the waiting page in all states</h1>
<main>
FRAMES
</main>
</body>
</html>
"""
