"""What a room's pages have of its own: name, logo, links, and a style sheet.

The style sheet stands beside the page, because the page that nginx answers is the same for all
rooms, and may have no style within it.
"""

import html
import re
from collections.abc import Iterable

from sidecar.kit.colours import BLACK, WHITE, Colour, mix, read_colour, seen_on, text_on, to_hex
from sidecar.rooms.appearance import Link, css_families
from sidecar.rooms.settings import RoomSettings

_SITE = re.compile(r'(?<=<span id="site">)[^<]*')
_LOGO = re.compile(r'(?<=<img src=")/_waitroom/static/logo\.svg(?=")')
_FOOTER = re.compile(r'(?<=<footer id="footer">).*?(?=</footer>)', re.DOTALL)
#: The card in waiting.css, in light and in dark, and its weakest text there.
_CARD, _DARK_CARD = read_colour("#fff"), read_colour("#172120")
_DARK_MUTED = read_colour("#a0b0ac")
#: How much of a pale page and its card is black in dark mode, and of the card on a dark page; how
#: much of its edge is white.
_PALE, _PALE_CARD, _DARKER, _EDGE = 0.88, 0.83, 0.3, 0.12
#: The contrast of readable text (WCAG 1.4.3).
_READABLE = 4.5
_FALLBACK = 'system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif'


def branded(page: str, settings: RoomSettings) -> str:
    """Return the page with the room's name, logo and links in place of those of static/."""
    page = _filled(_LOGO, settings.logo, _filled(_SITE, settings.site_name, page))
    if settings.footer:
        links = "\n".join(_links(settings.footer))
        page = _FOOTER.sub(lambda _: links, page, count=1)
    return page


def style(settings: RoomSettings) -> str:
    """Return the room's own style sheet, to follow waiting.css, or "" if it has none."""
    light, dark = _colours(settings, is_dark=False), _colours(settings, is_dark=True)
    font, family = settings.font, css_families(settings.font or "")
    parts = []
    if font and not family:
        # The font is a file, so it gets a name of ours.
        parts.append(f'@font-face{{font-family:wr-own;font-display:swap;src:url("{font}")}}')
        family = f"wr-own, {_FALLBACK}"
    if family:
        light["font"] = family
    if light:
        parts.append(_root(light))
    if dark:
        parts.append(f"@media (prefers-color-scheme:dark){{{_root(dark)}}}")
    return "\n".join([*parts, settings.custom_css or ""]).strip()


def _colours(settings: RoomSettings, *, is_dark: bool) -> dict[str, str]:
    """Return the colours, keyed by the custom properties of waiting.css."""
    colours: dict[str, Colour] = {}
    card = _DARK_CARD if is_dark else _CARD
    if settings.background is not None:
        background = read_colour(settings.background)
        if is_dark:
            is_pale = text_on(background) == BLACK
            card = mix(background, BLACK, _PALE_CARD if is_pale else _DARKER)
            card = seen_on(card, _DARK_MUTED, _READABLE)
            colours |= {"surface": card, "line": mix(card, WHITE, _EDGE)}
            background = mix(background, BLACK, _PALE) if is_pale else background
        colours |= {"background": background, "on-background": text_on(background)}
    if settings.accent is not None:
        accent = read_colour(settings.accent)
        colours |= {"accent": accent, "on-accent": text_on(accent)}
        colours["mark"] = seen_on(accent, card, _READABLE)
    return {name: to_hex(colour) for name, colour in colours.items()}


def _root(values: dict[str, str]) -> str:
    return f":root{{{''.join(f'--wr-{name}:{value};' for name, value in values.items())}}}"


def _links(links: Iterable[Link]) -> Iterable[str]:
    for link in links:
        # A page that is left stops polling.
        tab = ' target="_blank" rel="noopener"' if link.address.startswith(("/", "http")) else ""
        yield f'<a href="{html.escape(link.address)}"{tab}>{html.escape(link.text)}</a>'


def _filled(place: re.Pattern[str], value: str | None, page: str) -> str:
    if value is None:
        return page
    text = html.escape(value)
    return place.sub(lambda _: text, page, count=1)  # a template would read its backslashes
