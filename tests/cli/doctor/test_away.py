"""The doctor, sent to a site of which some servers are away."""

import json

from tests.cli.doctor.ward import bad, examine, read, said
from tests.support.processes import wait_until
from tests.support.site import PLAIN_LOCATION, SECRET, Site, answers

ADMITTING = """
location /admitting {
    set $waitroom_on_failure admit;
    set $waitroom_room shop;
    include waitroom/location.conf;
    proxy_pass http://origin;
}
"""


async def test_servers_that_are_away_are_told_apart():
    """Replicas with different secrets, a wrong upstream, no Redis, no replica: one by one."""
    rooms = {"shop": {"total_active_users": 1000}}
    with Site(rooms=rooms, replicas=2, locations=PLAIN_LOCATION + ADMITTING) as site:
        page = f"{site.url}/page"

        assert not bad(await examine(page))

        site.admin("PATCH", "/rooms/shop", {"queue_all": True})  # a paused room has its store
        assert not bad(await examine(page))
        site.admin("PATCH", "/rooms/shop", {"queue_all": None})

        config = site.folder / "replica-1.toml"
        config.write_text(config.read_text().replace(SECRET, SECRET[::-1]))
        site.replicas[1].kill()
        site.replicas[1].start()
        wait_until(lambda: answers(f"{site.ops[1]}/readyz"), "the replica")
        assert "secret_keys" in bad(await examine(page))[0]

        site.redis.stop()
        # At once nobody can see it; three seconds later who asks for no room by its name does.
        wait_until(lambda: store_of(site) is None, "the replicas' silence")
        problems = bad(await examine(page))
        assert "its store does not answer" in problems[0]
        problems = bad(await examine(page, room="shop"))
        assert "its store does not answer" in problems[0]
        assert "Redis" in problems[0]

        for replica in site.replicas:
            replica.kill()
        findings = await examine(page)
        assert "nginx reaches no sidecar" in bad(findings)[0]
        assert "the page is behind room 'shop'" in said(findings)
        assert len(bad(findings)) == 1
        (problem,) = bad(await examine(f"{site.url}/admitting"))
        assert "nginx reaches no sidecar" in problem

        settings = site.folder / "waitroom" / "settings.conf"
        settings.write_text(settings.read_text().replace(site.edges[0][7:], site.ops[0][7:]))
        site.replicas[0].start()
        wait_until(lambda: answers(f"{site.ops[0]}/healthz"), "the replica")
        site.nginx.stop()
        site.nginx.start()
        wait_until(lambda: read(site.url) != b"", "nginx")
        problems = bad(await examine(page))
        assert "nginx proxies to something that is not the sidecar (404" in problems[0]
        assert "ops_listen" in problems[0]


def store_of(site) -> str | None:
    """As all replicas name it, or one of them does not."""
    names = {
        json.loads(read(f"{site.url}/_waitroom/shop/status?client")).get("store") for _ in range(4)
    }
    return None if None in names else names.pop()
