"""Parses CSS colours, mixes them, and computes their contrast (WCAG 2)."""

#: Red, green and blue of sRGB, each from 0 to 1.
Colour = tuple[float, float, float]

BLACK: Colour = (0.0, 0.0, 0.0)
WHITE: Colour = (1.0, 1.0, 1.0)
_HINT = "write a colour such as #0f766e, teal, rgb(15 118 110) or oklch(0.51 0.09 186)"
#: The longest text that is parsed, in characters.
_MAX_LENGTH = 100
#: The number of tones that ensure_contrast tries.
_TONES = 50


def read_colour(text: str) -> Colour:
    """Parse an opaque CSS colour, clipped to sRGB. Raises ValueError for any other text."""
    from coloraide import Color  # noqa: PLC0415 - commands that read settings start faster

    match = Color.match(text, fullmatch=True) if len(text) <= _MAX_LENGTH else None
    if match is None or match.color.alpha(nans=False) != 1:
        raise ValueError(_HINT)
    red, green, blue = match.color.convert("srgb").clip().coords(nans=False)
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
    """Return the colour, darkened or lightened until the contrast is at least `minimum`."""
    extreme = choose_text_colour(background)
    tones = (mix(colour, extreme, step / _TONES) for step in range(_TONES))
    return next((tone for tone in tones if contrast(tone, background) >= minimum), extreme)


def _compute_luminance(colour: Colour) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
