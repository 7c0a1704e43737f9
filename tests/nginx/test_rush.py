"""500 at once: the cap is exact, and places are in the order of arrival."""

import asyncio
import time

import aiohttp

CAP, CLIENTS, ROUNDS = 50, 500, 20
#: Connections at a time, so that many requests are sent after others were answered.
CONNECTIONS = 200

LOCATIONS = """
location ~ ^/(?<named>r\\d+)/ {
    set $waitroom_room $named;
    include waitroom/location.conf;
    proxy_pass http://origin;
}
"""


ROOMS = {f"r{number}": {"total_active_users": CAP} for number in range(ROUNDS)}
SITE = {"rooms": ROOMS, "replicas": 2, "locations": LOCATIONS}


async def arrive(session, url, free):
    async with free:
        sent = time.monotonic()
        async with session.get(url) as reply:
            body = await reply.json(content_type=None)
            return sent, time.monotonic(), reply.status, body.get("position")


async def test_never_more_than_the_cap_and_everyone_in_order(site):
    """Twenty times: 50 inside, 450 places in the order of joining, no error."""
    for number in range(ROUNDS):
        free = asyncio.Semaphore(CONNECTIONS)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json"},
        ) as session:
            url = f"{site.url}/r{number}/x"
            answers = await asyncio.gather(*(arrive(session, url, free) for _ in range(CLIENTS)))
        room = site.room(f"r{number}")
        assert room["active"] == CAP
        assert room["waiting"] == CLIENTS - CAP
        assert sorted({status for _, _, status, _ in answers}) == [200, 503]
        inside = [answer for answer in answers if answer[2] == 200]
        line = sorted((a for a in answers if a[2] == 503), key=lambda a: a[3])
        assert len(inside) == CAP
        assert [position for *_, position in line] == list(range(1, CLIENTS - CAP + 1))
        # Real-time order: nobody was answered before somebody ahead of them even asked.
        latest_sent = 0.0
        for sent, answered, _, position in line:
            assert answered > latest_sent, f"round {number}: place {position} is out of order"
            latest_sent = max(latest_sent, sent)
        assert max(sent for sent, *_ in inside) < min(answered for _, answered, *_ in line)
