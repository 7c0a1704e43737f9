"""What a room's page may look like, and that none of it loads anything from elsewhere."""

import json
import re

import pytest

from sidecar.kit.errors import InputError
from sidecar.kit.shorten import shorten_values
from sidecar.rooms.appearance import APPEARANCE, MAX_CSS_LENGTH, format_font_families
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from tests.support.rooms import new_room_name
from tests.support.site import ROOT

PLAIN = RoomSettings(total_active_users=1)
GOOD_CSS = """\
/* ours: url(//not.example) @import is a comment here */
@font-face { font-family: Rock; src: url("/fonts/rock.woff2?v=2") format("woff2") }
@media (width < 40rem) and (prefers-color-scheme: dark) {
	main:has(> h1)::before { content: "\\2713 it's @import url(//x) in quotes" }
	header { background: url( /shop/sky.webp ) , linear-gradient(rgb(0 0 0 / 50%), #fff) }
}
"""


def refused(name, value, match):
    with pytest.raises(InputError, match=match) as raised:
        PLAIN.with_overrides({name: value})
    assert all(problem.startswith(name) for problem in raised.value.problems)


@pytest.mark.parametrize("name", ["accent", "background"])
@pytest.mark.parametrize("value", ["tael", "#12", "red;} body{display:none", "url(//x)", ""])
def test_a_colour_is_one(name, value):
    refused(name, value, "write a colour such as #0f766e")


@pytest.mark.parametrize(
    ("font", "written"),
    [
        ("Inter", "Inter"),
        ("'Helvetica Neue', -apple-system, \"Noto Sans\", sans-serif",
         '"Helvetica Neue", -apple-system, "Noto Sans", sans-serif'),
        ("游ゴシック, 8bit", '"游ゴシック", "8bit"'),
        ("a; } body{", ""), ("x\\", ""), ("Inter,", ""), ("'Inter", ""), ("url(//x)", ""),
        ("a\n", "a"),
    ],
)  # fmt: skip
def test_a_font_is_a_list_of_families(font, written):
    """Each family is quoted again, so that it cannot be other CSS."""
    assert format_font_families(font) == written


@pytest.mark.parametrize("font", ["//x.example/a.woff2", "/a.svg", "/a.woff2')", "/a b.woff2"])
def test_a_font_file_is_on_the_site(font):
    assert PLAIN.with_overrides({"font": "/a.woff2?v=1"}).font == "/a.woff2?v=1"
    refused("font", font, "write families")


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("https://shop.example", True), ("https://shop.example:8443/a?b=c#d", True),
        ("mailto:help@shop.example?subject=x", True), ("tel:+41(0)44-123", True),
        ("/imprint", True), ("/", True),
        ("http://shop.example/", False), ("javascript:alert(1)", False), ("//x.example", False),
        ("/\\x.example", False), ("https://a@b.example/", False), ("data:text/html,x", False),
        ('https://x.example/"onclick=', False), ("https://x.example\n", False), ("imprint", False),
        (" javascript:alert(1)", False), ("https:///x", False), ("mailto:a b@x", False),
    ],
)  # fmt: skip
def test_where_a_link_may_lead(address, may):
    links = [{"text": "Imprint", "address": address}]
    if may:
        assert PLAIN.with_overrides({"footer": links}).footer[0].address == address
        assert PLAIN.with_overrides({"footer": json.dumps(links)}).footer[0].address == address
    else:
        refused("footer", links, "footer.0.address: write an address that begins with https://")


def test_links_are_few_and_short():
    link = {"text": "Imprint", "address": "/imprint"}
    refused("footer", [link] * 9, "at most 8 links, not 9")
    refused("footer", [{**link, "text": "x" * 61}], "footer.0.text")
    refused("footer", "imprint", "write JSON, such as")


PAGE = (ROOT / "docs" / "branding.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```css\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("css", [GOOD_CSS, "", "main { margin: calc(1rem*2) }", *SHOWN])
def test_rules_of_ones_own(css):
    """Text in comments and quotes is not checked as CSS rules."""
    assert PLAIN.with_overrides({"custom_css": css}).custom_css == css


@pytest.mark.parametrize(
    ("css", "why"),
    [
        ("@import '/x.css';", "@import is not allowed; these are: @media"),
        ("@IMPORT url(/x.png);", "@IMPORT is not allowed"),
        ("@\\69mport '//x';", "@ is not allowed"),
        ("@namespace 'x';", "@namespace is not allowed"),
        ("a { b: url(//x.example/y.png) }", "takes a picture or a font on your site"),
        ("a { b: url('https://x.example/y.png') }", "takes a picture or a font on your site"),
        ('a { b: URL(  "data:image/png,x") }', "takes a picture or a font on your site"),
        ("a { b: url(/logout) }", "takes a picture or a font on your site"),
        ("a { b: url(/cart/add?id=1&x=.png) }", "takes a picture or a font on your site"),
        ("a { b: url(/x.png", r"url\(\) is not allowed"),
        ("a { b: url('/x.png'//) }", r"url\(\) is not allowed"),
        ("a { b: u\\72l(//x.example) }", "a backslash in a quoted text only"),
        ("a { b: image-set('//x.example/y' 1x) }", r"image-set\(\) is not allowed"),
        ("a { b: -webkit-image-set('//x.example/y' 1x) }", "is not allowed"),
        ("a { b: src('//x.example') }", r"src\(\) is not allowed"),
        # A browser ends a quoted text at each of these, and reads on.
        ("a { b: '\f image-set(\"//x\")' }", "a quoted text does not end on its line"),
        ("a { b: '\r' }", "a quoted text does not end on its line"),
        ("a { b: '\n' }", "a quoted text does not end on its line"),
        ("a { b: 'x\\\ny' }", "a quoted text does not end on its line"),
        ("a\n{", r"\{ is not closed"), ("a }", "} closes nothing"),
        ("a { b: (] }", "] closes nothing"),
        ("a\n/* b", "line 2: a comment does not end"),
        ("</style><script>", "'</' is not allowed"), ("a { b: c }\0", "is not allowed"),
        ("a { b: c }\u00a0", "is not allowed"),
    ],
)  # fmt: skip
def test_rules_that_are_refused(css, why):
    """A style sheet loads nothing from other sites, and closes nothing that it did not open."""
    refused("custom_css", css, why)


def test_rules_have_an_end():
    """Each rule has to end, and no text takes long to check."""
    refused("custom_css", "x" * (MAX_CSS_LENGTH + 1), "at most 10000 characters")
    for part in ("url( ", "url(", "/*", "a{", "((", "\\", "\\'"):
        with pytest.raises(InputError):
            PLAIN.with_overrides({"custom_css": part * (MAX_CSS_LENGTH // len(part))})


def test_a_refusal_does_not_repeat_all_of_a_long_value():
    refused("custom_css", "a { b: c }" * 500 + "}", r"closes nothing \(got '.{119}…\)$")


def test_a_log_has_a_long_value_by_its_beginning():
    long = shorten_values({"custom_css": "a" * 600, "message": "b" * 500, "accent": None})
    assert long == {
        "custom_css": f"{'a' * 100}… (600 characters)",
        "message": "b" * 500,
        "accent": None,
    }


def test_scripts_do_not_get_them():
    """Scripts read the settings with each request, so appearance settings are left out."""
    settings = PLAIN.with_overrides({"accent": "#fff", "custom_css": GOOD_CSS, "font": "Inter"})
    assert APPEARANCE.isdisjoint(settings.get_script_settings())


# In the store ---------------------------------------------------------------------------------

OWN = {
    "accent": "#fff",
    "custom_css": "a { b: c }" * 80,
    "footer": [{"text": "a", "address": "/b"}],
}


async def test_the_store_keeps_them_apart(redis, make_room_store):
    """Appearance settings have a hash of their own, and a reset removes them from it."""
    room = new_room_name()
    store = make_room_store(room=room)
    await store.configure({**OWN, "message": "soon"}, by="alice")
    assert (await store.snapshot()).overrides == {**OWN, "message": "soon"}
    kept = await redis.hkeys(room_key(room, "config"))
    assert APPEARANCE.isdisjoint(name.decode() for name in kept)
    await store.configure({"accent": None})
    assert APPEARANCE & (await store.snapshot()).overrides.keys() == OWN.keys() - {"accent"}
    [change] = await store.lists.log()
    assert "(800 characters)" in change["detail"]


async def test_an_emptied_store_is_reminded_of_them(make_room_store):
    """After Redis was emptied the settings are written again, except those that were changed
    since."""
    store = make_room_store()
    await store.configure({"accent": "#000"})
    await store.restore_lost_data({}, {**OWN, "message": "soon"}, epoch=0)
    assert (await store.snapshot()).overrides == {**OWN, "accent": "#000", "message": "soon"}
