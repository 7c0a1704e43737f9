"""The waiting page as it looks in each state, for people who design it.

It is the page itself, with its own script; preview.js answers what that script asks.
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
from sidecar.gate.page.about import about
from sidecar.gate.page.branding import branded, style
from sidecar.gate.page.render import Page
from sidecar.kit.clock import iso
from sidecar.kit.templates import Template
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
_NOWHERE = {"position": None, "ahead": None, "wait_seconds": None, "wait_seconds_low": None}
_CLOSED = {**_WAITING, **_NOWHERE, "state": "closed", "phase": "closed"}
#: The first document of a visitor who moves up, so that the progress bar is not at its start.
_BEFORE = {**_WAITING, "position": 120, "ahead": 119, "refresh_after_seconds": 0.02}
#: State -> the replies to the page's script, in order. None: no reply yet; a text: an error. Times
#: are seconds from now.
STATES: dict[str, list[Any]] = {
    "joining": [None],
    "waiting": [_BEFORE, _WAITING],
    "next": [
        _BEFORE,
        {**_WAITING, "position": 1, "ahead": 0, "wait_seconds_low": 5, "wait_seconds_high": 40},
    ],
    "called": [{**_WAITING, **_NOWHERE, "state": "admitted"}],
    "paused": [_BEFORE, {**_WAITING, "paused": True}],
    "opens": [{**_CLOSED, "opens_at": 93_780, "prequeue_from": 91_980}],
    "prequeue": [{**_WAITING, **_NOWHERE, "phase": "prequeue", "opens_at": 754}],
    "closed": [_CLOSED],
    "full": [{**_WAITING, **_NOWHERE, "state": "full"}],
    "left": [_BEFORE, _WAITING],
    "lost": [{**_WAITING, **_NOWHERE, "state": "not_queued", "refresh_after_seconds": 0.02}],
    "error": [_BEFORE, {**_WAITING, "refresh_after_seconds": 0.02}, "nobody answers"],
    "no-script": [],
}
_RELOADS = re.compile(r'<noscript>.*?</noscript>\n?|<meta http-equiv="refresh"[^>]*>\n?', re.DOTALL)
_ITS_SCRIPT = re.compile(r'<script src="/_waitroom/static/waiting\.js[^>]*></script>')
_OTHER_FILE = re.compile(r"(?<=url\()([\"']?)(?=/(?!/|_waitroom/static/))")

#: Addresses in a template that may have been written for the site alone.
_OTHER_ATTRIBUTE = re.compile(r"""(?<=\s)(?:src|href)=["']?(?=/(?!/|_waitroom/))""")


@dataclass(frozen=True)
class Preview:
    """The preview of one room. `static` is where the page's own files are, preview.js too."""

    page: Page
    room: str
    settings: RoomSettings
    language: str = "en"
    static: str = "static/"
    #: The address of the site, where its other files are.
    site: str = ""
    #: The nonce of inline styles, if the policy of the previewing page wants one.
    nonce: str = ""
    #: light or dark; empty: as the browser has it.
    scheme: str = ""

    def html(self, state: str) -> str:
        settings, is_script = self._on_site(), state != "no-script"
        text = self.page.render(
            language=self.language,
            view="waiting",
            values={
                "room": self.room,
                "message": settings.message or "",
                **({} if is_script else self._values()),
            },
        )
        text = _RELOADS.sub("", branded(text, settings))
        own = f'<link rel="stylesheet" href="/_waitroom/{self.room}/style.css">'
        sheet = _OTHER_FILE.sub(rf"\g<1>{self.site}", style(settings))
        text = text.replace(own, f'<style nonce="{self.nonce}">\n{sheet}\n</style>')
        if self.scheme:  # the script reads the rules, which are of another origin
            text = text.replace('<link rel="stylesheet"', '<link rel="stylesheet" crossorigin')
        script = _ITS_SCRIPT.search(text)
        if script is not None:
            before = self._answers(settings, state) if is_script or self.scheme else ""
            text = text.replace(script[0], before + script[0] * is_script)
        return text.replace(_STATIC, self.static)

    def _on_site(self) -> RoomSettings:
        """Return the settings with absolute addresses of the site's files."""

        def absolute(path: str) -> str:
            is_of_site = path.startswith("/") and not path.startswith(_STATIC)
            return self.site + path if is_of_site else path

        links = [
            link.model_copy(update={"address": absolute(link.address)})
            for link in self.settings.footer
        ]
        logo = self.settings.logo and absolute(self.settings.logo)
        return self.settings.model_copy(update={"footer": tuple(links), "logo": logo})

    def _values(self) -> dict[str, str]:
        """Return what a replica fills in for a browser without JavaScript."""
        return {
            **self.page.shown(_WAITING, self.language),
            "waiting": str(_WAITING["waiting"]),
            "updated": "10:21:07 UTC",
            "refresh": "60",
        }

    def _answers(self, settings: RoomSettings, state: str) -> str:
        common = {"room": self.room, "message": settings.message}
        data = {
            "answers": [
                {**one, **common} if isinstance(one, dict) else one for one in STATES[state]
            ],
            "about": about(self.room, settings).model_dump(mode="json"),
            "texts": {tag: self.page.languages.texts(tag) for tag in {"en", self.language}},
            "leaves": state == "left",
            "scheme": self.scheme,
        }
        # In a script's text nothing is escaped, and nothing may end it.
        text = json.dumps(data).replace("<", r"\u003c")
        return (
            f'<script type="application/json" id="preview">{text}</script>\n'
            f'<script src="{_STATIC}preview.js"></script>\n'
        )


#: The states in which a template is shown; in the others the page is ours.
OF_TEMPLATES = ("waiting", "next", "paused", "opens", "prequeue", "closed", "full")


def by_template(template: Template, shown: Preview, state: str) -> str:
    """Return the page by the room's own template, which has no script to reply to."""
    now_ms, example = time.time_ns() // 1_000_000, STATES[state][-1]
    changes: dict[str, Any] = {"queue_all": state == "paused", "events": ()}
    if opens_s := example.get("opens_at"):
        # The pre-queue has begun a minute ago.
        begins_s = example.get("prequeue_from", -60)
        changes["events"] = (
            RoomEvent(
                name="sale",
                opens_at=now_ms + opens_s * 1000,
                prequeue_from=now_ms + begins_s * 1000,
            ),
        )
    settings = shown.settings.model_copy(update=changes)
    event = status_document.event(settings.moments(now_ms))
    document = {
        **example,
        **status_document.event_members(event),
        "room": shown.room,
        "joined_at": iso(now_ms),
        "updated_at": iso(now_ms),
    }
    values = page_template.values(document, settings, shown.page, shown.language)
    text = template.render({**values, "next": "/"})
    text = _OTHER_ATTRIBUTE.sub(rf"\g<0>{shown.site}", text)
    return text.replace(_STATIC, shown.static)


def overview(room: str, states: Iterable[str]) -> str:
    """Return a page that shows all states at once, each from its file."""
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
