"""A room's own name and logo."""

import html

import pytest

from sidecar.kit.errors import ConfigError
from sidecar.rooms.settings import RoomSettings
from tests.support.replica import HTML, cookie_of

HOSTILE = "</span><script>alert(1)</script>\\1 \"'&"
SITE = "Alpenrock"
LOGO = "/shop/logo.svg?v=2&w=1"


@pytest.mark.parametrize("page", ["", "claim?t=x"])
@pytest.mark.parametrize("name", [SITE, HOSTILE])
async def test_pages_show_the_rooms_own(replica, page, name):
    """And nothing in a name is markup."""
    site = await replica(site_name=name, logo=LOGO)
    await site.check()
    ticket = cookie_of(await site.check())
    headers = {**HTML, "Cookie": ticket}
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/{page}", headers=headers)
    text = await reply.text()
    assert f'<span id="site">{html.escape(name)}</span>' in text
    assert f'<img src="{html.escape(LOGO)}" alt="">' in text
    assert "<script>" not in text


@pytest.mark.parametrize("given", [{}, {"site_name": HOSTILE, "logo": LOGO}])
async def test_the_page_can_ask_for_them(replica, given):
    """The page that nginx makes is the same for all rooms; its script fills them in."""
    site = await replica(**given)
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/about")
    about = await reply.json()
    assert (about["site_name"], about["logo"]) == (given.get("site_name"), given.get("logo"))


@pytest.mark.parametrize(
    "logo",
    [
        "logo.svg", "//else.example/a.svg", "/\\else.example/a.svg", "https://else.example/a.svg",
        "/a b", '/a"onerror=', "/a\n", "/a<", "javascript:alert(1)", "/",
    ],
)  # fmt: skip
def test_a_logo_is_a_path_on_the_site(logo):
    with pytest.raises(ConfigError, match="logo: write a path on your site"):
        RoomSettings(total_active_users=1).changed({"logo": logo})


@pytest.mark.parametrize("name", ["", "x" * 81])
def test_a_name_is_short(name):
    with pytest.raises(ConfigError, match="site_name"):
        RoomSettings(total_active_users=1).changed({"site_name": name})
