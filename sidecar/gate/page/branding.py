"""Adds a room's branding to its pages: site name, logo, footer links, and a style sheet.

The style sheet is a separate file, because the page that nginx serves is the same for all rooms and
its policy forbids inline styles."""

import html
import re
from collections.abc import Iterable

from sidecar.kit.colours import (
    BLACK,
    WHITE,
    Colour,
    choose_text_colour,
    ensure_contrast,
    mix,
    read_colour,
    to_hex,
)
from sidecar.rooms.appearance import Link, format_font_families
from sidecar.rooms.settings import RoomSettings

_SITE = re.compile(r'(?<=<span id="site">)[^<]*')
_LOGO = re.compile(r'(?<=<img src=")/_waitroom/static/logo\.svg(?=")')
_FOOTER = re.compile(r'(?<=<footer id="footer">).*?(?=</footer>)', re.DOTALL)
#: The card's colours in waiting.css, light and dark, and the palest text on the dark card.
_CARD, _DARK_CARD = read_colour("#fff"), read_colour("#172120")
_DARK_MUTED = read_colour("#a0b0ac")
#: In dark mode: the shares of black that are mixed into a pale background, into the card on a pale
#: background, and into the card on a dark one; and the share of white in the card's edge.
_PALE_BLACK, _PALE_CARD_BLACK, _DARK_CARD_BLACK, _EDGE_WHITE = 0.88, 0.83, 0.3, 0.12
#: The smallest contrast of readable text (WCAG 1.4.3).
_MIN_CONTRAST = 4.5
_FALLBACK = 'system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif'


def read_site_name(page: str) -> str:
    """Return the site's name in a page. Empty if the page has none."""
    match = _SITE.search(page)
    return html.unescape(match[0]).strip() if match else ""


def apply_branding(page: str, settings: RoomSettings) -> str:
    """Return the page with the room's name, logo and links instead of those in static/."""
    page = _replace(_LOGO, settings.logo, _replace(_SITE, settings.site_name, page))
    if settings.footer:
        links = "\n".join(_format_links(settings.footer))
        page = _FOOTER.sub(lambda _: links, page, count=1)
    return page


def build_style_sheet(settings: RoomSettings) -> str:
    """Return the room's own style sheet, loaded after waiting.css. Empty if it has none."""
    light, dark = _choose_colours(settings, is_dark=False), _choose_colours(settings, is_dark=True)
    font, family = settings.font, format_font_families(settings.font or "")
    parts = []
    if font and not family:
        # The setting is the URL of a font file, so the style sheet gives the font a name.
        parts.append(f'@font-face{{font-family:wr-own;font-display:swap;src:url("{font}")}}')
        family = f"wr-own, {_FALLBACK}"
    if family:
        light["font"] = family
    if light:
        parts.append(_format_root(light))
    if dark:
        parts.append(f"@media (prefers-color-scheme:dark){{{_format_root(dark)}}}")
    return "\n".join([*parts, settings.custom_css or ""]).strip()


def _choose_colours(settings: RoomSettings, *, is_dark: bool) -> dict[str, str]:
    """Return the colours by the name of their custom property in waiting.css, without --wr-."""
    colours: dict[str, Colour] = {}
    card = _DARK_CARD if is_dark else _CARD
    if settings.background is not None:
        background = read_colour(settings.background)
        if is_dark:
            is_pale = choose_text_colour(background) == BLACK
            card = mix(background, BLACK, _PALE_CARD_BLACK if is_pale else _DARK_CARD_BLACK)
            card = ensure_contrast(card, _DARK_MUTED, _MIN_CONTRAST)
            colours |= {"surface": card, "line": mix(card, WHITE, _EDGE_WHITE)}
            background = mix(background, BLACK, _PALE_BLACK) if is_pale else background
        colours |= {"background": background, "on-background": choose_text_colour(background)}
    if settings.accent is not None:
        accent = read_colour(settings.accent)
        colours |= {"accent": accent, "on-accent": choose_text_colour(accent)}
        colours["mark"] = ensure_contrast(accent, card, _MIN_CONTRAST)
    return {name: to_hex(colour) for name, colour in colours.items()}


def _format_root(values: dict[str, str]) -> str:
    return f":root{{{''.join(f'--wr-{name}:{value};' for name, value in values.items())}}}"


def _format_links(links: Iterable[Link]) -> Iterable[str]:
    for link in links:
        # Links open in a new tab, because a waiting page that the visitor leaves stops polling.
        tab = ' target="_blank" rel="noopener"' if link.address.startswith(("/", "http")) else ""
        yield f'<a href="{html.escape(link.address)}"{tab}>{html.escape(link.text)}</a>'


def _replace(pattern: re.Pattern[str], value: str | None, page: str) -> str:
    if value is None:
        return page
    text = html.escape(value)
    # A function returns the text, because a backslash in a replacement string would need an escape.
    return pattern.sub(lambda _: text, page, count=1)
