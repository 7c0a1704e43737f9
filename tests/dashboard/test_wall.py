"""The wall display: a link that shows one room's figures, and lets nobody do anything."""

import json

import pytest

from sidecar.http.auth.operators import WALL_LIFETIME_S, Operators
from tests.support.replica import ADMIN_TOKEN, KEYS, cookie_of, log_in


async def link_of(site):
    cookie = cookie_of(await log_in(site))
    reply = await site.ops.get(
        f"/dashboard/wall?room={site.room.name}", headers={"Cookie": cookie}, allow_redirects=False
    )
    assert reply.status == 303
    return reply.headers["Location"]


async def test_the_link_shows_the_figures_and_nothing_else(site):
    """Without a session: the page, and the room's figures each second; no settings, no ids."""
    link = await link_of(site)
    page = await site.ops.get(link)
    assert (page.status, page.headers["Referrer-Policy"]) == (200, "no-referrer")
    assert "wall.js" in await page.text()
    async with site.ops.get(f"{link}/events") as stream:
        lines = [(await stream.content.readline()).decode() for _ in range(2)]
    assert lines[0] == "event: now\n"
    figures = json.loads(lines[1].removeprefix("data: "))
    assert (figures["room"], figures["cap"]) == (site.room.name, 3)
    assert {"waiting", "active", "wait_seconds"} <= figures.keys()
    assert {"settings", "changed", "file", "line", "log"}.isdisjoint(figures)


async def test_only_an_operator_makes_a_link(site):
    """Others are sent to the log-in; there is none to a room that there is not."""
    path = f"/dashboard/wall?room={site.room.name}"
    reply = await site.ops.get(path, allow_redirects=False)
    assert (reply.status, reply.headers["Location"]) == (303, "/dashboard")
    cookie = cookie_of(await log_in(site))
    for query in ("", "?room=nowhere"):
        reply = await site.ops.get(f"/dashboard/wall{query}", headers={"Cookie": cookie})
        assert reply.status == 404


async def test_the_link_opens_nothing_else(site):
    """As a session's cookie or as a token it is worth nothing."""
    link = (await link_of(site)).rpartition("/")[2]
    for headers in ({"Cookie": f"waitroom-desk={link}"}, {"Authorization": f"Bearer {link}"}):
        assert (await site.ops.get("/admin/rooms", headers=headers)).status == 401
        assert (await site.ops.get("/dashboard/session", headers=headers)).status == 401


@pytest.mark.parametrize("odd", ["x", "a.b", "é", "x" * 3000])
async def test_what_we_did_not_sign_shows_nothing(site, odd):
    for path in (f"/dashboard/wall/{odd}", f"/dashboard/wall/{odd}/events"):
        assert (await site.ops.get(path)).status == 410


def test_a_link_ends():
    """After its time, and with a new admin token."""
    now = [1_000_000.0]
    operators = Operators(KEYS, ADMIN_TOKEN, now_s=lambda: now[0])
    link = operators.sign_wall("shop", operators.read(operators.log_in("me")))
    assert operators.read_wall(link) == "shop"
    assert Operators(KEYS, "another " * 3, now_s=lambda: now[0]).read_wall(link) is None
    now[0] += WALL_LIFETIME_S
    assert operators.read_wall(link) is None
