"""Parses CSS colours, mixes them, and computes their contrast (WCAG 2)."""

import colorsys
import math
import re
from collections.abc import Callable

#: Red, green and blue of sRGB, each from 0 to 1.
Colour = tuple[float, float, float]

BLACK: Colour = (0.0, 0.0, 0.0)
WHITE: Colour = (1.0, 1.0, 1.0)
_HINT = "write a colour such as #0f766e, rgb(15 118 110), hsl(175 77% 26%) or oklch(0.51 0.09 186)"
_HEX = re.compile(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})\Z")
_FUNCTION = re.compile(r"(rgb|hsl|oklch)\(\s*([^()]{1,60}?)\s*\)\Z", re.IGNORECASE)
_PART = re.compile(r"(-?\d{0,6}\.?\d{1,9})(%|deg)?\Z")
#: The number of tones that ensure_contrast tries.
_TONES = 50


def read_colour(text: str) -> Colour:
    """Parse an opaque colour in hex, rgb, hsl or oklch. Raises ValueError for any other text."""
    if match := _HEX.match(text):
        digits = match[1] if len(match[1]) == 6 else "".join(2 * digit for digit in match[1])
        red, green, blue = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
        return red, green, blue
    match = _FUNCTION.match(text)
    parts = [_PART.match(part) for part in re.split(r"\s*,\s*|\s+", match[2])] if match else []
    numbers = [(float(part[1]), part[2] or "") for part in parts if part is not None]
    if match is None or len(numbers) != 3 or len(parts) != 3:
        raise ValueError(_HINT)
    kinds: dict[str, Callable[..., Colour]] = {
        "rgb": _from_rgb,
        "hsl": _from_hsl,
        "oklch": _from_oklch,
    }
    red, green, blue = (min(1.0, max(0.0, each)) for each in kinds[match[1].lower()](*numbers))
    return red, green, blue


def to_hex(colour: Colour) -> str:
    return "#" + "".join(f"{round(255 * value):02x}" for value in colour)


def mix(colour: Colour, other: Colour, share: float) -> Colour:
    """Mix two colours. `share` is the proportion of `other`, from 0 to 1."""
    red, green, blue = (a + (b - a) * share for a, b in zip(colour, other, strict=True))
    return red, green, blue


def contrast(colour: Colour, other: Colour) -> float:
    """Return the contrast ratio of two colours, from 1 to 21."""
    low, high = sorted((_compute_luminance(colour), _compute_luminance(other)))
    return (high + 0.05) / (low + 0.05)


def choose_text_colour(colour: Colour) -> Colour:
    """Return black or white, whichever has more contrast to the colour: at least 4.5:1."""
    return max(WHITE, BLACK, key=lambda text: contrast(text, colour))


def ensure_contrast(colour: Colour, background: Colour, minimum: float) -> Colour:
    """Darken or lighten the colour until its contrast with the background is at least `minimum`."""
    extreme = choose_text_colour(background)
    tones = (mix(colour, extreme, step / _TONES) for step in range(_TONES))
    return next((tone for tone in tones if contrast(tone, background) >= minimum), extreme)


def _compute_luminance(colour: Colour) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


#: The number and the unit of one component of a colour.
_Part = tuple[float, str]


def _from_rgb(*parts: _Part) -> Colour:
    red, green, blue = (value / (100 if unit == "%" else 255) for value, unit in parts)
    return red, green, blue


def _from_hsl(hue: _Part, saturation: _Part, lightness: _Part) -> Colour:
    light, full = (min(1, max(0, value[0] / 100)) for value in (lightness, saturation))
    return colorsys.hls_to_rgb(hue[0] / 360 % 1, light, full)


def _from_oklch(lightness: _Part, chroma: _Part, hue: _Part) -> Colour:
    """Convert a colour with Ottosson's matrices. The caller clamps values outside sRGB."""
    light = lightness[0] / (100 if lightness[1] == "%" else 1)
    full = chroma[0] * (0.004 if chroma[1] == "%" else 1)
    a, b = (full * part(math.radians(hue[0])) for part in (math.cos, math.sin))
    long = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red, green, blue = (
        12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
        for value in (
            4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
        )
    )
    return red, green, blue
