"""Defines the types of a room's appearance settings, and checks their values.

No value may load anything from another site, or inject HTML or a script into the page."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sidecar.kit.colours import read_colour
from sidecar.visitors.classes import list_validator, problems_validator, table_validator

#: The settings of this module. Their values may be long, so the Lua scripts seldom read them.
APPEARANCE = frozenset({"accent", "background", "font", "footer", "custom_css"})
MAX_LINKS = 8
MAX_CSS_LENGTH = 10_000

_SITE_PATH = re.compile(r"/(?!/)[A-Za-z0-9._~%+@=&?:,/-]+\Z")
_FONT_FILE = re.compile(r"/(?!/)[A-Za-z0-9._~%+@/-]+\.(?:woff2?|[ot]tf)(?:\?[\w.=-]*)?\Z")
_FONT_FAMILY = re.compile(r"(['\"]?)([^\W_][\w .+-]{0,60}|-apple-system)\1\Z")
_IDENTIFIER = re.compile(r"-?[A-Za-z][A-Za-z0-9-]*\Z")
_LINK_TARGET_PATTERNS = (
    re.compile(r"https://[A-Za-z0-9.-]+(?::\d{1,5})?(?:[/?#][^\s\"'<>\\]*)?\Z"),
    re.compile(r"mailto:[^\s\"'<>\\@]+@[A-Za-z0-9.-]+(?:\?[^\s\"'<>\\]*)?\Z"),
    re.compile(r"tel:[+0-9().-]{3,30}\Z"),
    re.compile(r"/(?!/)[^\s\"'<>\\]*\Z"),
)
#: Splits a style sheet into tokens, as a browser does. Only tokens in named groups can do harm.
_CSS_TOKENS = re.compile(
    r"""
    /\*.*?\*/
  | "(?:[^"\\\n\r\f]|\\(?:[0-9a-fA-F]{1,6}|["'\\]))*"
  | '(?:[^'\\\n\r\f]|\\(?:[0-9a-fA-F]{1,6}|["'\\]))*'
  | url\(\s*+(?P<quote>["']?)(?P<url>[^"'()\\\s]*)(?P=quote)\s*+(?P<end>\))
  | @(?P<rule>[\w-]*)
  | (?P<function>[\w-]+)\(
  | (?P<open>[({\[]) | (?P<close>[)}\]])
  | (?P<forbidden>["'\\]|/\*|</|<!|[^\S \t\n\r]|[\x00-\x08\x0e-\x1f\x7f])
  | [\w-]+ | .
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_CSS_URL_FILE = re.compile(
    r"/(?!/)[A-Za-z0-9._~%+@/-]+\.(?:svg|png|jpe?g|webp|avif|gif|woff2?|[ot]tf)(?:\?[\w.=-]*)?\Z",
    re.IGNORECASE,
)
_ALLOWED_RULES = ("media", "supports", "container", "layer", "keyframes", "font-face")
#: CSS functions that load a URL from a quoted string, or run code.
_FORBIDDEN_FUNCTIONS = {"url", "src", "image", "image-set", "element", "paint", "expression"}
_OPENERS = {")": "(", "}": "{", "]": "["}
_TOKEN_PROBLEMS = {
    '"': "a quoted text does not end on its line, or has a backslash that is no escape",
    "'": "a quoted text does not end on its line, or has a backslash that is no escape",
    "\\": "write a backslash in a quoted text only",
    "/*": "a comment does not end",
}


def _check_colour(value: str) -> str:
    read_colour(value)
    return value


def _check_site_path(value: str) -> str:
    if not _SITE_PATH.match(value):
        raise ValueError("write a path on your site, such as /_waitroom/static/shop.svg")
    return value


def _check_font(value: str) -> str:
    if not (_FONT_FILE.match(value) if value.startswith("/") else format_font_families(value)):
        raise ValueError(
            'write families, such as "Inter, Helvetica Neue, sans-serif", or the path of a font '
            "on your site, such as /_waitroom/static/shop.woff2"
        )
    return value


def format_font_families(font: str) -> str:
    """Return a list of font families in CSS syntax, or "" if the string is no such list."""
    names = []
    for part in font.split(","):
        match = _FONT_FAMILY.match(part.strip())
        if match is None:
            return ""
        names.append(match[2] if _IDENTIFIER.match(match[2]) else f'"{match[2]}"')
    return ", ".join(names)


def _check_link_target(value: str) -> str:
    if not any(pattern.match(value) for pattern in _LINK_TARGET_PATTERNS):
        raise ValueError(
            "write an address that begins with https://, mailto: or tel:, or a path on your site"
        )
    return value


@lru_cache(maxsize=64)
def _check_style_sheet(css: str) -> str:
    """Return a safe style sheet. Raises ValueError for an unsafe one. The result is cached, because
    settings are validated each second."""
    if problems := dict.fromkeys(_find_css_problems(css)):
        raise ValueError("\n".join(problems))
    return css


def _find_css_problems(css: str) -> Iterator[str]:
    unclosed: list[str] = []
    for token in _CSS_TOKENS.finditer(css):
        kind, text = token.lastgroup, token[0]
        if kind in {"end", "rule", "function"}:
            yield from _find_token_problems(token)
        if kind in {"function", "open"}:
            unclosed.append(text[-1])
        elif kind == "forbidden" or (kind == "close" and [_OPENERS[text]] != unclosed[-1:]):
            line = css.count("\n", 0, token.start()) + 1
            default = f"{text} closes nothing" if kind == "close" else f"{text!r} is not allowed"
            yield f"line {line}: {_TOKEN_PROBLEMS.get(text, default)}"
            return  # a browser might split the rest into different tokens
        elif kind == "close":
            unclosed.pop()
    if unclosed:
        yield f"{unclosed[-1]} is not closed"


def _find_token_problems(token: re.Match[str]) -> Iterator[str]:
    name = token[0][:40]
    if token["rule"] is not None and token["rule"].lower() not in _ALLOWED_RULES:
        yield f"{name} is not allowed; these are: @{', @'.join(_ALLOWED_RULES)}"
    if token["end"] and not _CSS_URL_FILE.match(token["url"]):
        yield "url() takes a picture or a font on your site, such as /shop/sky.webp"
    if re.sub(r"^-[a-z]+-", "", (token["function"] or "").lower()) in _FORBIDDEN_FUNCTIONS:
        yield f"{name}) is not allowed; a picture is url(/shop/sky.webp)"


class Link(BaseModel):
    """A link in the footer of the waiting page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, max_length=60)
    """The text of the link."""
    address: Annotated[str, Field(max_length=500), AfterValidator(_check_link_target)]
    """The target: `https://…`, `mailto:…`, `tel:…`, or a path on your site outside of all rooms."""


def _find_link_count_problems(links: tuple[Link, ...]) -> list[str]:
    return [] if len(links) <= MAX_LINKS else [f"at most {MAX_LINKS} links, not {len(links)}"]


_LINK_EXAMPLE = '{"text": "Imprint", "address": "https://shop.example/imprint"}'
ColourText = Annotated[str, Field(max_length=80), AfterValidator(_check_colour)]
Font = Annotated[str, Field(max_length=300), AfterValidator(_check_font)]
Links = Annotated[
    tuple[Annotated[Link, table_validator(_LINK_EXAMPLE)], ...],
    list_validator(_LINK_EXAMPLE),
    problems_validator(_find_link_count_problems),
]
SitePath = Annotated[str, Field(max_length=500), AfterValidator(_check_site_path)]
StyleSheet = Annotated[str, Field(max_length=MAX_CSS_LENGTH), AfterValidator(_check_style_sheet)]
