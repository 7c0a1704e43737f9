"""Colours: read as browsers read them, and held to a contrast."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kit.colours import (
    BLACK,
    WHITE,
    choose_text_colour,
    contrast,
    ensure_contrast,
    read_colour,
    to_hex,
)

CARDS = [WHITE, read_colour("#172120")]
ANY = st.tuples(*[st.floats(0, 1)] * 3)


@pytest.mark.parametrize(
    ("text", "colour"),
    [
        ("#0f766e", "#0f766e"), ("#ABC", "#aabbcc"), ("rgb(15 118 110)", "#0f766e"),
        ("rgb(100%, 0%, 50%)", "#ff0080"), ("hsl(120deg 100% 25%)", "#008000"),
        ("hsl(-120, 100%, 50%)", "#0000ff"), ("oklch(0.6279 0.2577 29.23)", "#ff0000"),
        ("teal", "#008080"), ("oklch(100% 0 0)", "#ffffff"), ("oklch(70% 0.5 30)", "#ff0000"),
        ("rgb(1e9 2 3)", "#ff0203"), ("hsl(none 0% 50%)", "#808080"),
    ],
)  # fmt: skip
def test_a_colour_is_read(text, colour):
    """By the values that CSS Color 4 gives; what no screen has is cut off."""
    assert to_hex(read_colour(text)) == colour


@pytest.mark.parametrize(
    "text",
    [
        "", "tael", "#12", "#12345", "#1234567", "#0f766e80", "rgb(1 2)", "rgb(1 2 3 / 50%)",
        "rgb(1 2 3 4)", "hsl(1 2 x)", "rgb(1 2 3", "red;}", "var(--x)", "rgb(1 2 3)\n",
        "#fff url(x)",
        "oklch(nan 0 0)", f"rgb(1 2 3{' ' * 100})",
    ],
)  # fmt: skip
def test_what_is_no_colour_is_refused(text):
    with pytest.raises(ValueError, match="write a colour such as #0f766e"):
        read_colour(text)


def test_contrast_is_that_of_the_guidelines():
    """WCAG's own ends, and a grey that just holds on white."""
    assert contrast(BLACK, WHITE) == 21
    assert contrast(WHITE, WHITE) == 1
    assert 4.5 < contrast(read_colour("#767676"), WHITE) < 4.6


@given(ANY, st.sampled_from(CARDS))
def test_every_colour_can_be_read_on_and_seen(colour, card):
    """Text on it has 4.5:1, and so has the shade of it that stands on a card."""
    assert contrast(choose_text_colour(colour), colour) >= 4.5
    assert contrast(ensure_contrast(colour, card, 4.5), card) >= 4.5


def test_a_colour_that_is_strong_enough_stays_what_it_is():
    assert ensure_contrast(read_colour("#0f766e"), WHITE, 4.5) == read_colour("#0f766e")
