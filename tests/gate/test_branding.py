"""A room's own name, logo, colours, font, links and rules."""

import html
import re

import pytest

from sidecar.gate.page.branding import build_style_sheet
from sidecar.kit.colours import WHITE, choose_text_colour, contrast, read_colour
from sidecar.kit.errors import InputError
from sidecar.rooms.settings import RoomSettings
from tests.support.replica import HTML, cookie_of

HOSTILE = "</span><script>alert(1)</script>\\1 \"'&"
LOGO = "/shop/logo.svg?v=2&w=1"


FOOTER = [
    {"text": "Imprint <&>", "address": "/imprint?a=1&b=2"},
    {"text": "Call us", "address": "tel:+41441234567"},
]


@pytest.mark.parametrize("page", ["", "claim?t=x"])
async def test_pages_show_the_rooms_own(replica, page):
    """Pages show the room's name, logo and links, which hold no markup. Websites open in their own
    tab: a page that is left stops polling."""
    site = await replica(site_name=HOSTILE, logo=LOGO, footer=FOOTER)
    await site.check()
    ticket = cookie_of(await site.check())
    headers = {**HTML, "Cookie": ticket}
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/{page}", headers=headers)
    text = await reply.text()
    assert f'<span id="site">{html.escape(HOSTILE)}</span>' in text
    assert f'<img src="{html.escape(LOGO)}" alt="">' in text
    assert "<script>" not in text
    footer = re.search(r'<footer id="footer">(.*?)</footer>', text, re.DOTALL)
    assert footer
    assert footer[1].splitlines() == [
        '<a href="/imprint?a=1&amp;b=2" target="_blank" rel="noopener">Imprint &lt;&amp;&gt;</a>',
        '<a href="tel:+41441234567">Call us</a>',
    ]


@pytest.mark.parametrize("given", [{}, {"site_name": HOSTILE, "logo": LOGO, "footer": FOOTER}])
async def test_the_page_can_ask_for_them(replica, given):
    """The page that nginx makes is the same for all rooms; its script fills them in."""
    site = await replica(**given)
    about = await (await site.edge.get(f"/_waitroom/{site.room.name}/about")).json()
    usual = {"site_name": None, "logo": None, "footer": []}
    assert {name: about[name] for name in usual} == {**usual, **given}


@pytest.mark.parametrize(
    "logo",
    [
        "logo.svg", "//else.example/a.svg", "/\\else.example/a.svg", "https://else.example/a.svg",
        "/a b", '/a"onerror=', "/a\n", "/a<", "javascript:alert(1)", "/",
    ],
)  # fmt: skip
def test_a_logo_is_a_path_on_the_site_and_a_name_is_short(logo):
    with pytest.raises(InputError, match="logo: write a path on your site"):
        RoomSettings(total_active_users=1).with_overrides({"logo": logo})
    for name in ("", "x" * 81):
        with pytest.raises(InputError, match="site_name"):
            RoomSettings(total_active_users=1).with_overrides({"site_name": name})


# The style sheet ------------------------------------------------------------------------------

LOOK = {
    "accent": "#ffd400", "background": "oklch(0.97 0.03 90)", "font": "Inter, Noto Sans, serif",
    "custom_css": "h1 { letter-spacing: 1px }",
}  # fmt: skip
CARDS = ["#ffffff", "#172120"]


def sheet(**own):
    return build_style_sheet(RoomSettings(total_active_users=1, **own))


def palettes(text):
    """The custom properties, in light and in dark."""
    return [dict(re.findall(r"--wr-([a-z-]+):([^;]+);", rule)) for rule in text.split("@media")]


async def test_a_room_has_a_style_sheet_of_its_own(replica):
    """The style sheet has its own type, and nginx and browsers keep it for ten seconds."""
    site = await replica(**LOOK)
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/style.css")
    assert reply.content_type == "text/css"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    kept = [reply.headers[name] for name in ("Cache-Control", "X-Accel-Expires")]
    assert kept == ["max-age=10", "10"]
    text = await reply.text()
    assert text == build_style_sheet(site.room.settings)
    assert text.endswith("h1 { letter-spacing: 1px }")
    assert '--wr-font:Inter, "Noto Sans", serif;' in text


async def test_a_room_without_one_has_an_empty_one(replica):
    """A room without a style has an empty sheet, an unknown room none."""
    site = await replica()
    path = f"/_waitroom/{site.room.name}/style.css"
    assert await (await site.edge.get(path)).text() == ""
    await site.room.store.configure({"accent": "#123456"})
    await site.room.refresh()
    assert "#123456" in await (await site.edge.get(path)).text()
    await site.room.store.configure({"accent": None})
    await site.room.refresh()
    assert await (await site.edge.get(path)).text() == ""
    assert (await site.edge.get("/_waitroom/nowhere/style.css")).status == 404


@pytest.mark.parametrize("colour", ["#ffd400", "#0f766e", "#000", "#fff", "#767676", "#e11d48"])
def test_all_text_can_be_read_in_light_and_in_dark(colour):
    """Text has a contrast of 4.5:1 on every colour, and so has the accent on the card."""
    shown = palettes(sheet(accent=colour, background=colour))
    for colours, usual in zip(shown, CARDS, strict=True):
        read = {name: read_colour(value) for name, value in colours.items()}
        assert contrast(read["accent"], read["on-accent"]) >= 4.5
        assert contrast(read["background"], read["on-background"]) >= 4.5
        card = read.get("surface", read_colour(usual))
        assert contrast(read["mark"], card) >= 4.5
        text = "#17211f #56635f" if card == read_colour("#fff") else "#e9f0ee #a0b0ac"
        for muted in text.split():  # of waiting.css
            assert contrast(read_colour(muted), card) >= 4.5


def test_a_pale_background_is_dark_in_the_dark():
    """A dark one stays what it is."""
    light, dark = palettes(sheet(background="#f7f0e0"))
    assert (light["background"], light["on-background"]) == ("#f7f0e0", "#000000")
    assert dark["on-background"] == "#ffffff"
    assert choose_text_colour(read_colour(dark["surface"])) == WHITE  # the card goes with it
    light, dark = palettes(sheet(background="#10243e"))
    assert light == {"background": "#10243e", "on-background": "#ffffff"}
    assert light.items() < dark.items()
    assert choose_text_colour(read_colour(dark["surface"])) == WHITE


def test_a_font_of_the_sites_own():
    """The font's file gets a name of ours, and the usual fonts follow."""
    text = sheet(font="/_waitroom/static/rock.woff2")
    assert 'src:url("/_waitroom/static/rock.woff2")' in text
    assert "--wr-font:wr-own, system-ui" in text
