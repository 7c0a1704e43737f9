"""The story, through real nginx: in, wait, called, in; over and free for the next."""

import aiohttp
import pytest

from tests.support.site import Site

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def site(stamps):
    with Site(rooms={"shop": {"total_active_users": 1}}, replicas=2, stamps=stamps) as site:
        yield site


def visitor() -> aiohttp.ClientSession:
    jar = aiohttp.CookieJar(unsafe=True)
    return aiohttp.ClientSession(cookie_jar=jar, headers=HTML, timeout=aiohttp.ClientTimeout(10))


async def test_the_second_waits_and_enters_when_the_first_is_done(site):
    """One slot: the second gets the page in place, and the slot when it is released."""
    import asyncio

    async with visitor() as first, visitor() as second:
        async with first.get(f"{site.url}/page?a=1") as reply:
            assert reply.status == 200
        async with second.get(f"{site.url}/page?b=2") as reply:
            assert reply.status == 503
            assert reply.headers["Retry-After"]
            assert 'data-room="shop"' in await reply.text()
        async with second.get(f"{site.url}/_waitroom/shop/status") as reply:
            document = await reply.json()
            assert (document["state"], document["position"]) == ("waiting", 1)
        async with first.get(f"{site.url}/done") as reply:
            assert reply.status == 200
        for _ in range(60):
            await asyncio.sleep(0.25)
            async with second.get(f"{site.url}/_waitroom/shop/status") as reply:
                document = await reply.json()
            if document["state"] == "admitted":
                break
        async with second.get(f"{site.url}/page?b=2") as reply:
            assert reply.status == 200
            assert "b=2" in await reply.text()
