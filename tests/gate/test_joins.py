"""Joins during a flood of newcomers: not at once, and only so many from one address."""

import pytest

from sidecar.rooms.shield import JOINS_BURST, JOINS_PER_S
from sidecar.visitors.tokens import JOIN_FROM_S, JOIN_UNTIL_S, Tokens
from tests.support.replica import HTML, KEYS

ADDRESS = "9.9.9.9"


async def join(site, url=None, *, address=ADDRESS, **headers):
    """The document."""
    url = url or f"/_waitroom/{site.room.name}/join"
    reply = await site.edge.post(url, headers={"X-Real-IP": address, **headers})
    assert reply.status == 200
    document = await reply.json()
    assert ("Set-Cookie" in reply.headers) == (document["state"] == "waiting")
    return document


async def places(site) -> int:
    return (await site.room.refresh()).waiting


@pytest.fixture
async def site(replica):
    """A full room before which the shield is up."""
    site = await replica(total_active_users=0, shield_above=20)
    while (await join(site))["state"] == "waiting":
        pass
    return site


async def told_to_join(site) -> str:
    url = (await join(site))["join_url"]
    site.turn.forward(JOIN_FROM_S)
    return url


async def test_a_flood_of_joins_takes_no_place(site):
    """They raised the shield: then 400 of them took 299 places within a fifth of a second."""
    before = await places(site)
    assert before == 20
    told = [await join(site) for _ in range(400)]
    assert {document["state"] for document in told} == {"not_queued"}
    assert await places(site) == before


async def test_who_has_waited_joins(site):
    """A token joins no sooner than the client was told, and not for ever."""
    url = (await join(site))["join_url"]
    site.turn.forward(1)
    early = await join(site, url)
    assert (early["state"], early["refresh_after_seconds"]) == ("not_queued", 5)
    site.turn.forward(JOIN_FROM_S - 1)
    assert (await join(site, url))["state"] == "waiting"
    site.turn.forward(JOIN_UNTIL_S)
    while (await join(site))["state"] == "waiting":
        pass
    assert (await join(site, url))["state"] == "not_queued"


async def test_the_status_says_where_to_join_while_the_shield_is_up(site):
    told = await (await site.edge.get(f"/_waitroom/{site.room.name}/status")).json()
    site.turn.forward(JOIN_FROM_S)
    assert (await join(site, told["join_url"]))["state"] == "waiting"
    site.turn.forward(JOIN_UNTIL_S)
    told = await (await site.edge.get(f"/_waitroom/{site.room.name}/status")).json()
    assert "join_url" not in told
    assert (await join(site))["state"] == "waiting"


async def test_other_tokens_are_none(site):
    """Neither a changed token nor one of another room joins."""
    foreign = Tokens("another", KEYS, site.room.clock).write_join()
    path, _, token = (await told_to_join(site)).partition("?token=")
    for changed in ("", "j.AAAA.x", "{}x", "x{}", "{}.", "\u00e9", "a" * 600, foreign):
        assert (await join(site, f"{path}?token={changed.format(token)}"))["state"] == "not_queued"


async def test_an_address_takes_so_many_places(site):
    """An IPv6 network of 64 bits counts as one address; other addresses do not wait for it."""
    url = await told_to_join(site)
    for address in ("9.9.9.9", "2620:fe::9"):
        before = await places(site)
        for _ in range(JOINS_BURST + 50):
            await join(site, url, address=address)
        assert await places(site) == before + JOINS_BURST
    assert (await join(site, url, address="2620:fe::1"))["state"] == "not_queued"
    assert (await join(site, url, address="2620:fe:0:1::1"))["state"] == "waiting"
    site.turn.forward(1)
    again = [await join(site, url) for _ in range(JOINS_PER_S + 5)]
    assert [document["state"] for document in again].count("waiting") == JOINS_PER_S


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "fd00::1", "unix:", ""])
async def test_what_may_be_a_proxy_is_not_limited(site, address):
    """Behind it anybody may be: where nginx names the balancer, not the visitor."""
    url = await told_to_join(site)
    before = await places(site)
    for _ in range(JOINS_BURST + 20):
        await join(site, url, address=address)
    assert await places(site) == before + JOINS_BURST + 20


async def test_the_page_without_scripts_takes_the_same_way(site):
    path = f"/_waitroom/{site.room.name}/"
    page = await site.edge.get(f"{path}?next=/a?token=b", headers=HTML)
    assert "Set-Cookie" not in page.headers
    text = await page.text()
    query = text.partition(f"url={path}?")[2].partition('"')[0].replace("&amp;", "&")
    assert query.endswith("&next=/a?token=b")
    site.turn.forward(JOIN_FROM_S)
    assert "Set-Cookie" in (await site.edge.get(f"{path}?{query}", headers=HTML)).headers
