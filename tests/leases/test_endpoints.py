"""The endpoints of leases for programs."""

import asyncio
import random
from urllib.parse import urlencode

import pytest

from sidecar.http.long_poll import LONG_POLLS
from sidecar.http.problems import STORE_RETRY_S
from sidecar.leases import store
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.schemas import LETTERS
from sidecar.leases.service import LEASES
from sidecar.leases.store import LeaseStore
from tests.support.receiver import until
from tests.support.replica import ADMIN_TOKEN, SERVICE_TOKEN

NO_HOLDER = f"holder: {LETTERS}"
NO_RESOURCE = f"resource: {LETTERS}, and it begins with a letter or digit"
WHOLE = f"a whole number from 0 to {2**53}"
#: The turned clock's first time, µs, which is the first fencing number.
FIRST = 1_800_000_000_000_000
SEAT = "/leases/{name}/17"


async def take(site, holder: str, *, at: str = SEAT, status: int = 200, **more):
    return await site.fetch("POST", at, {"holder": holder, **more}, status=status)


async def look(site, holder: str):
    return await site.fetch("GET", f"{SEAT}?holder={holder}")


async def release(site, holder: str, *, token: str = SERVICE_TOKEN, **query: object) -> bool:
    """Release the holder's lease or place. Return whether there was anything to release."""
    path = f"{SEAT}?{urlencode({'holder': holder, **query})}"
    document = await site.fetch("DELETE", path, token=token)
    assert document.keys() == {"released"}
    return document["released"]


def counts(site) -> dict[tuple[str, str], float]:
    samples = site.metrics.of(LeaseMetrics).leases.collect()[0].samples
    return {(each.labels["act"], each.labels["outcome"]): each.value for each in samples}


async def test_a_lease_is_granted(service):
    """A lease has an end and a fencing number; asking again returns the same lease."""
    site = await service(lease={"term": "1m"})
    document = await take(site, "anna")
    assert document == {
        "state": "granted", "template": site.name, "resource": "17", "holder": "anna",
        "fence": FIRST, "granted_at": "2027-01-15T08:00:00.000+00:00",
        "expires_at": "2027-01-15T08:01:00.000+00:00", "expires_in_seconds": 60,
        "position": None, "ahead": None, "waiting": None, "wait_seconds": None, "order": None,
        "refresh_after_seconds": None, "updated_at": "2027-01-15T08:00:00.000+00:00",
    }  # fmt: skip
    site.turn.forward(20)
    again = await take(site, "anna")
    assert (again["fence"], again["expires_in_seconds"]) == (FIRST, 40)
    assert (await look(site, "anna"))["state"] == "granted"


async def test_others_queue(service):
    """202 has the place, the wait, and when to ask again; another resource is free."""
    site = await service(lease={"term": "1m"})
    await take(site, "anna")
    document = await take(site, "ben", status=202)
    assert document.pop("order") >= FIRST
    assert 0 < document.pop("refresh_after_seconds") <= 60
    assert document == {
        "state": "waiting", "template": site.name, "resource": "17", "holder": "ben",
        "fence": None, "granted_at": None, "expires_at": None, "expires_in_seconds": None,
        "position": 1, "ahead": 0, "waiting": 1, "wait_seconds": 60,
        "updated_at": "2027-01-15T08:00:00.000+00:00",
    }  # fmt: skip
    second = await take(site, "eva", status=202)
    assert (second["position"], second["ahead"], second["wait_seconds"]) == (2, 1, 120)
    answer = await site.ask("POST", "/leases/{name}/18", {"holder": "ben"})
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")


async def test_releasing(service):
    """A holder releases its own lease or place only. Idempotent."""
    site = await service(lease={"term": "1m"})
    await take(site, "anna")
    await take(site, "ben", status=202)
    assert not await release(site, "eva")
    assert await release(site, "ben")
    assert not await release(site, "ben")
    assert await release(site, "anna")
    assert not await release(site, "anna", fence=FIRST)
    # Another lease of the same holder stays.
    newer = await take(site, "anna")
    said = await site.fetch("DELETE", f"{SEAT}?holder=anna&fence={FIRST}", status=409)
    assert (said["title"], str(FIRST) in said["detail"]) == ("The lease is over", True)
    assert (await look(site, "anna"))["fence"] == newer["fence"]


async def test_renewing(service):
    """A renewal starts the term again, up to max_term, and then says why not."""
    site = await service(lease={"term": "1m", "renewable": True, "max_term": "90s"})
    await take(site, "anna")
    site.turn.forward(20)
    body = {"holder": "anna", "fence": FIRST}
    document = await site.fetch("PUT", SEAT, body)
    assert (document["state"], document["expires_in_seconds"]) == ("granted", 60)
    site.turn.forward(20)
    assert (await site.fetch("PUT", SEAT, body))["expires_in_seconds"] == 50
    said = await site.fetch("PUT", SEAT, body, status=409)
    assert (said["title"], said["detail"]) == (
        "Not renewed", "max_term is reached. The end of the lease is unchanged.",
    )  # fmt: skip
    assert (await look(site, "anna"))["expires_in_seconds"] == 50


async def test_what_is_not_renewed(service):
    """409 for a lease that is not renewable or over, and for another's fencing number."""
    site = await service(lease={"term": "1m"})
    await take(site, "anna")
    said = await site.fetch("PUT", SEAT, {"holder": "anna", "fence": FIRST}, status=409)
    assert said["detail"] == "The template is not renewable. The end of the lease is unchanged."
    for holder, fence in (("anna", FIRST + 1), ("ben", FIRST), ("anna", 0)):
        body = {"holder": holder, "fence": fence}
        said = await site.fetch("PUT", SEAT, body, status=409)
        assert (said["title"], said["status"]) == ("The lease is over", 409)
        assert said["detail"].startswith(f"{fence} is not the fencing number of this holder's")
    site.turn.forward(61)
    said = await site.fetch("PUT", SEAT, {"holder": "anna", "fence": FIRST}, status=409)
    assert said["title"] == "The lease is over"
    assert counts(site) == {
        ("take", "granted"): 1, ("renew", "not_renewed"): 1, ("renew", "stale"): 4,
    }  # fmt: skip


async def test_a_line_that_is_full(service):
    """A full queue is a 429 that says when to ask again."""
    site = await service(lease={"term": "1m", "max_waiting": 1})
    await take(site, "anna")
    await take(site, "ben", status=202)
    answer = await site.ask("POST", SEAT, {"holder": "eva"})
    said = await answer.json(content_type=None)
    assert (answer.status, said["title"], said["state"]) == (429, "The queue is full", "full")
    assert said["detail"] == "The queue for 17 has max_waiting = 1 holders."
    assert int(answer.headers["Retry-After"]) == said["retry_after_seconds"] >= 1
    assert (said["waiting"], said["position"], said["order"]) == (1, None, None)


async def test_who_holds_what(service):
    """Resources are listed by name, in pages; a turn has no fencing number yet."""
    site = await service(lease={"term": "1m", "capacity": 2})
    for seat in ("b", "a", "c"):
        await take(site, "anna", at=f"/leases/{{name}}/{seat}")
    await take(site, "ben", at="/leases/{name}/a")
    await take(site, "eva", at="/leases/{name}/a", status=202)
    await site.fetch("DELETE", "/leases/{name}/a?holder=anna")
    page = await site.fetch("GET", "/leases/{name}?limit=2")
    assert [each["name"] for each in page["resources"]] == ["a", "b"]
    assert (page["template"], page["next"], page["count"]) == (site.name, "b", 3)
    holders = {each["holder"]: each for each in page["resources"][0]["holders"]}
    assert page["resources"][0]["waiting"] == 0
    assert holders["ben"]["expires_at"] == "2027-01-15T08:01:00.000+00:00"
    assert holders["ben"]["fence"] > FIRST
    assert (holders["eva"]["fence"], holders["eva"]["granted_at"]) == (None, None)
    rest = await site.fetch("GET", "/leases/{name}?limit=2&after=b")
    assert ([each["name"] for each in rest["resources"]], rest["next"]) == (["c"], None)
    (template,) = (await site.fetch("GET", "/leases"))["leases"]
    assert (template["name"], template["term"], template["in_use"]) == (site.name, 60, 3)
    assert template["max_waiting"] is None


async def test_who_waits(service):
    """The queue is listed in its order, in pages, with a newcomer's wait; that is no heartbeat."""
    site = await service(lease={"term": "1m"})
    for holder in ("anna", "ben", "eva"):
        await take(site, holder, status=200 if holder == "anna" else 202)
        site.turn.forward(1)
    first = await site.fetch("GET", f"{SEAT}/queue?limit=1")
    assert [each["holder"] for each in first["holders"]] == ["anna"]
    assert (first["held"], first["waiting"], first["wait_seconds"]) == (1, 2, 57 + 2 * 60)
    assert first["oldest_at"] == "2027-01-15T08:00:00.000+00:00"
    (ben,) = first["queue"]
    assert (ben["holder"], ben["owner"], ben["position"]) == ("ben", "service", 1)
    assert ben["joined_at"] == "2027-01-15T08:00:01.000+00:00"
    rest = await site.fetch("GET", f"{SEAT}/queue?limit=1&after={first['next']}")
    assert [(each["holder"], each["position"]) for each in rest["queue"]] == [("eva", 2)]
    (listed,) = (await site.fetch("GET", "/leases/{name}"))["resources"]
    assert listed.items() <= first.items()
    site.turn.forward(600)  # nobody was heard of, whatever was looked at
    state = await site.fetch("GET", f"{SEAT}/queue")
    assert (state["holders"], state["oldest_at"]) == ([], None)
    await site.ops.app[LEASES].get(site.name).store.sweep()
    assert (await site.fetch("GET", f"{SEAT}/queue"))["waiting"] == 0
    free = await site.fetch("GET", "/leases/{name}/18/queue")
    assert (free["held"], free["wait_seconds"], free["queue"]) == (0, 0, [])


async def test_a_search(service):
    """Resources are found by the beginning of their names, by a holder of any token, and by a
    fencing number."""
    site = await service(**OF_TWO)
    fences = {}
    for at, holder, token in (("17", "anna", SHOP), ("18", "ben", PRESS), ("2", "anna", PRESS)):
        path = f"/leases/{{name}}/{at}"
        fences[at] = (await site.fetch("POST", path, {"holder": holder}, token=token))["fence"]
    await site.fetch("POST", "/leases/{name}/18", {"holder": "anna"}, token=SHOP, status=202)

    async def found(text: str, **more: str) -> list[str]:
        query = urlencode({"find": text, **more})
        page = await site.fetch("GET", f"/leases/{{name}}?{query}", token=ADMIN_TOKEN)
        assert page["next"] is None
        return [each["name"] for each in page["resources"]]

    assert await found("anna") == ["17", "18", "2"]
    assert await found("anna", after="17") == ["18", "2"]
    assert await found("ben") == ["18"]
    assert await found("1") == ["17", "18"]
    assert await found(str(fences["2"])) == ["2"]
    assert await found(str(fences["2"] + 1)) == []
    assert await found("an") == []
    path = "/leases/{name}?find=anna&limit=2"
    page = await site.fetch("GET", path)
    assert [each["name"] for each in page["resources"]] == ["17", "18"]
    page = await site.fetch("GET", f"{path}&after={page['next']}")
    assert ([each["name"] for each in page["resources"]], page["next"]) == (["2"], None)
    (few, *_) = (await site.fetch("GET", "/leases/{name}?holders=0"))["resources"]
    assert (few["holders"], few["held"]) == ([], 1)
    (said,) = await site.errors("GET", "/leases/{name}?find=a%20b")
    assert said.startswith("find: ")


async def test_one_search_looks_at_so_many(service, monkeypatch):
    """A search looks at a bounded number of resources, and `next` says where to go on."""
    monkeypatch.setattr(store, "SEARCH_LIMIT", 2)
    monkeypatch.setattr(store, "MAX_SEARCH_CALLS", 2)
    site = await service(lease={"term": "1m"})
    for number in range(10, 17):
        await take(site, f"h{number}", at=f"/leases/{{name}}/{number}")
    page = await site.fetch("GET", "/leases/{name}?find=h15")
    assert (page["resources"], page["next"]) == ([], "13")
    page = await site.fetch("GET", "/leases/{name}?find=h15&after=13")
    assert ([each["name"] for each in page["resources"]], page["next"]) == (["15"], None)


async def test_an_unknown_template(service):
    """An unknown template is a 404 that names it, whatever it is called."""
    site = await service(lease={"term": "1m"})
    said = await site.fetch("POST", "/leases/sead/17", {"holder": "anna"}, status=404)
    assert (said["title"], said["detail"]) == ("Unknown lease", "no lease is named 'sead'")
    for name in ("%00", "%FF", "..", "{x}", "a%2Fb", "x" * 3000):
        for method in ("GET", "POST", "PUT", "DELETE"):
            path = f"/leases/{name}/17?holder=anna"
            answer = await site.ask(method, path, {"holder": "anna", "fence": 1})
            assert answer.status == 404, (method, name)
        assert (await site.ask("GET", f"/leases/{name}")).status == 404


async def test_names_that_are_not_allowed(service):
    """A wrong resource or holder is named, with what is allowed."""
    site = await service(lease={"term": "1m"})
    both = [f"{NO_RESOURCE} (got '-17')", f"{NO_HOLDER} (got 'a b')"]
    assert await site.errors("POST", "/leases/{name}/-17", {"holder": "a b"}) == both
    for name in ("%00", "%FF", "a%2Fb", "a~b", "a%20b", "%C3%A4", "a" * 129, "17%0A"):
        path = f"/leases/{{name}}/{name}"
        for method, body in (("GET", None), ("POST", {"holder": "a"}), ("DELETE", None),
                             ("PUT", {"holder": "a", "fence": 1})):  # fmt: skip
            (said,) = await site.errors(method, f"{path}?holder=a", body)
            assert said.startswith(NO_RESOURCE), (method, name)
    for holder in ("a b", "ä", "\x00", "\ud800", "a" * 129, "a\n", "a~b"):
        (said,) = await site.errors("POST", SEAT, {"holder": holder})
        assert said.startswith(NO_HOLDER), holder
    # What is odd, and allowed.
    for name in ("A.b_c-d:e@f+g", "0", "a" * 128):
        await take(site, "-:@+._", at=f"/leases/{{name}}/{name}")


BAD_BODIES = {
    "no holder": ({}, ["holder: is needed"]),
    **{f"the holder {bad!r}": ({"holder": bad}, [f"{NO_HOLDER} (got {bad!r})"]) for bad in ("", 7)},
    "all at once": ({"holder": [], "order": -1, "fence": "x", "y" * 99: 0},
                    ["fence: unknown member", "y" * 40 + ": unknown member",
                     NO_HOLDER, f"order: {WHOLE} (got -1)"]),
    **{f"the order {bad}": ({"holder": "a", "order": bad}, [f"order: {WHOLE} (got {bad})"])
       for bad in (1.5, True, 2**53 + 1)},
    "a name that was meant": ({"holder": "a", "odrer": 1},
                              ["odrer: unknown member; did you mean order?"]),
    "no object": (["a"], ["the body must be a JSON object"]),
}  # fmt: skip


async def test_bodies_that_are_not_allowed(service):
    """Each fault of a body is named, and nothing is granted."""
    site = await service(lease={"term": "1m"})
    for what, (body, said) in BAD_BODIES.items():
        assert await site.errors("POST", SEAT, body) == said, what
    for raw in (b"", b"{", b"\xff", b"[" * 9999):
        answer = await site.ask("POST", SEAT, data=raw)
        said = (answer.status, (await answer.json(content_type=None))["code"])
        assert said == (400, "unreadable_body"), raw
    assert await site.errors("PUT", SEAT, {"holder": "a"}) == ["fence: is needed"]
    assert await site.errors("PUT", SEAT, {"holder": "a", "fence": "1"}) == [
        f"fence: {WHOLE} (got '1')"
    ]
    assert (await site.fetch("GET", "/leases/{name}"))["count"] == 0
    # What is null is as if it was not there.
    await take(site, "anna", order=None)


async def test_queries_that_are_not_allowed(service):
    """Each fault of a query is named."""
    site = await service(lease={"term": "1m"})
    for method in ("GET", "DELETE"):
        for query in ("", "?Holder=a"):
            assert await site.errors(method, SEAT + query) == ["holder: is needed, in the query"]
        assert await site.errors(method, f"{SEAT}?holder=") == [f"{NO_HOLDER} (got '')"]
    for fence in ("", "x", "-1", "1.5", "%D9%A1", "9" * 16, "9" * 5000):
        (said,) = await site.errors("DELETE", f"{SEAT}?holder=a&fence={fence}")
        assert said.startswith(f"fence: {WHOLE} (got "), fence
    for limit in ("0", "1001", "-1"):
        said = await site.errors("GET", f"/leases/{{name}}?limit={limit}")
        assert said == [f"limit: a whole number from 1 to 1000 (got '{limit}')"]
    assert await site.errors("GET", "/leases/{name}?after=%00") == [
        "after: the name of a resource (got '\\x00')"
    ]


async def test_while_the_store_is_away(service, tmp_path):
    """While Redis is unavailable every endpoint answers 503, and when to ask again."""
    site = await service(lease={"term": "1m"}, store=f"unix://{tmp_path}/nobody.sock")
    for method, path, body in (
        ("POST", SEAT, {"holder": "a"}), ("GET", f"{SEAT}?holder=a", None),
        ("PUT", SEAT, {"holder": "a", "fence": 1}), ("DELETE", f"{SEAT}?holder=a", None),
        ("GET", "/leases/{name}", None), ("GET", "/leases", None),
    ):  # fmt: skip
        answer = await site.ask(method, path, body)
        assert (answer.status, answer.headers["Retry-After"]) == (503, str(STORE_RETRY_S)), path
    assert counts(site) == {}
    assert await site.errors("POST", SEAT, {})


TEXTS = ["", "a", "b", "a b", "\x00", "ä", "\ud800", "{", "~", "x" * 200]
VALUES = [None, True, 0, -1, FIRST, 2**53, 1.5, 1e300, 10**30, *TEXTS, [], {}, {"a": 1}]


@pytest.mark.parametrize("settings", [{}, {"renewable": True, "capacity": 2, "max_waiting": 0}])
async def test_no_request_is_a_server_error(service, settings):
    """No random request is answered with a server error."""
    site = await service(lease={"term": "1m", **settings})
    choose, seen = random.Random(7), set()
    for _ in range(150):
        names = choose.sample(["holder", "order", "fence", "\ud800"], choose.randrange(4))
        body = {name: choose.choice(VALUES) for name in names} | {"holder": choose.choice(TEXTS)}
        query = f"?holder={choose.choice('abc')}&fence={choose.choice(['', '1', FIRST])}"
        for method in ("POST", "PUT", "GET", "DELETE"):
            answer = await site.ask(method, f"/leases/{{name}}/r{query}", body)
            seen.add(answer.status)
            assert answer.status in {200, 202, 409, 422, 429}, (body, await answer.text())
    assert {200, 409, 422} <= seen


# Whose it is --------------------------------------------------------------------------------------

SHOP, PRESS = "shop-token-for-tests", "press-token-for-tests"
OF_TWO = {"lease": {"term": "1m", "renewable": True}, "tokens": {"shop": SHOP, "press": PRESS}}


async def test_a_program_gives_up_only_its_own(service):
    """A token's holder of the same name is another holder, who can neither release, renew nor see
    the first one's lease or place."""
    site = await service(**OF_TWO)
    held = await site.fetch("POST", SEAT, {"holder": "a"}, token=SHOP)
    await site.fetch("POST", SEAT, {"holder": "b"}, token=SHOP, status=202)
    assert not await release(site, "a", fence=held["fence"], token=PRESS)
    for holder in "ab":
        assert not await release(site, holder, token=PRESS)
        path = f"{SEAT}?holder={holder}"
        assert (await site.fetch("GET", path, token=PRESS))["state"] == "gone"
    body = {"holder": "a", "fence": held["fence"]}
    await site.fetch("PUT", SEAT, body, token=PRESS, status=409)
    own = await site.fetch("POST", SEAT, {"holder": "a"}, token=PRESS, status=202)
    assert (own["state"], own["fence"]) == ("waiting", None)
    assert (await site.fetch("PUT", SEAT, body, token=SHOP))["fence"] == held["fence"]
    assert (await site.fetch("GET", f"{SEAT}?holder=b", token=SHOP))["state"] == "waiting"
    assert await release(site, "a", token=SHOP)


async def test_a_browsers_lease_is_no_programs(service):
    """A program that knows a visitor's id cannot release the visitor's lease; the operator can."""
    site = await service(**OF_TWO)
    template = site.ops.app[LEASES].get(site.name)
    hold = await template.take("17", "visitor")
    for query in ({}, {"fence": hold.fence}):
        assert not await release(site, "visitor", **query, token=SHOP)
    assert (await template.poll("17", "visitor")).fence == hold.fence
    assert await release(site, "visitor", token=ADMIN_TOKEN)


async def test_the_operator_releases_anybodys(service):
    """The operator releases a holder of any token, or of one token alone."""
    site = await service(lease={"term": "1m", "capacity": 3}, tokens={"shop": SHOP, "press": PRESS})
    for token in (SHOP, PRESS, SERVICE_TOKEN):
        await site.fetch("POST", SEAT, {"holder": "a"}, token=token)
    page = await site.fetch("GET", "/leases/{name}", token=ADMIN_TOKEN)
    held = [(each["holder"], each["owner"]) for each in page["resources"][0]["holders"]]
    assert sorted(held) == [("a", "press"), ("a", "service"), ("a", "shop")]
    path = f"{SEAT}?holder=a"
    for is_released in (True, False):
        assert await release(site, "a", owner="press", token=ADMIN_TOKEN) is is_released
    assert (await site.fetch("GET", path, token=SHOP))["state"] == "granted"
    assert await release(site, "a", token=ADMIN_TOKEN)
    for token in (SHOP, SERVICE_TOKEN):
        assert (await site.fetch("GET", path, token=token))["state"] == "gone"
    # A program that says another owner is not asked.
    await site.fetch("POST", SEAT, {"holder": "a"}, token=SHOP)
    assert not await release(site, "a", owner="shop", token=PRESS)
    (said,) = await site.errors("DELETE", f"{path}&owner=a%20b", token=ADMIN_TOKEN)
    assert said.startswith("owner: the name of a token")


# Long polls -------------------------------------------------------------------------------------


def hold(site, holder: str, *, method: str = "GET", wait: object = 60, status: int = 200):
    """Start a request that is kept open while the holder waits. Return a task of its document."""
    query = f"?wait={wait}" if method == "POST" else f"?holder={holder}&wait={wait}"
    body = {"holder": holder} if method == "POST" else None
    return asyncio.create_task(site.fetch(method, SEAT + query, body, status=status))


async def are_open(site, number: int) -> None:
    """Wait until so many requests are kept open, and have been answered by Redis once."""
    polls = site.ops.server.app[LONG_POLLS]
    await until(lambda: len(polls) == number, "the requests")
    await look(site, "nobody")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_held_request_is_answered_when_the_holder_is_called(service, method):
    """By the release, although no heartbeat is due for another minute."""
    site = await service(lease={"term": "1h", "heartbeat_interval": "60s"})
    first = await take(site, "anna")
    if method == "GET":
        await take(site, "ben", status=202)
    held = hold(site, "ben", method=method)
    await are_open(site, 1)
    assert await release(site, "anna")
    async with asyncio.timeout(10):
        document = await held
    assert document["state"] == "granted"
    assert document["fence"] > first["fence"]


async def test_only_the_next_is_woken(service, monkeypatch):
    """A release asks Redis about the holder who is called, and about no other."""
    site = await service(lease={"term": "1h", "heartbeat_interval": "60s"})
    await take(site, "anna")
    held = {}
    for number in range(20):
        held[f"h{number}"] = hold(site, f"h{number}", method="POST")
        await are_open(site, number + 1)
    asked, template = [], site.ops.server.app[LEASES].get(site.name)
    ask = template.store.ask

    async def count(resource, holder, **more):
        asked.append(holder.split()[-1])
        return await ask(resource, holder, **more)

    monkeypatch.setattr(LeaseStore, "ask", lambda _, *args, **more: count(*args, **more))
    fences = []
    for number in range(20):
        assert await release(site, "anna" if not number else f"h{number - 1}")
        async with asyncio.timeout(10):
            fences.append((await held.pop(f"h{number}"))["fence"])
    assert fences == sorted(fences)
    assert asked == [f"h{number}" for number in range(20)]


async def test_a_missed_message_costs_a_heartbeat(service):
    """A replica that hears no messages takes the lease when the next heartbeat is due."""
    site = await service(lease={"term": "1h", "heartbeat_interval": "0.3s"}, is_deaf=True)
    await take(site, "anna")
    held = hold(site, "ben", method="POST")
    await are_open(site, 1)
    assert await release(site, "anna")
    async with asyncio.timeout(10):
        assert (await held)["state"] == "granted"


async def test_the_wait_ends(service):
    """Then the response has the place, as without `wait`; a fraction of a second counts."""
    site = await service(lease={"term": "1h"})
    await take(site, "anna")
    answer = await site.ask("POST", f"{SEAT}?wait=0.2", {"holder": "ben"})
    document = await answer.json()
    assert (answer.status, document["state"], document["position"]) == (202, "waiting", 1)
    assert (await hold(site, "ben", wait=0.1))["refresh_after_seconds"] == 2


async def test_a_heartbeat_is_sent_for_a_held_request(service):
    """A holder whose request is kept open does not count as silent."""
    rules = {"term": "1h", "heartbeat_interval": "0.2s", "heartbeat_timeout": "5s"}
    site = await service(lease={**rules, "claim_window": "1s"})
    await take(site, "anna")
    held = hold(site, "ben", method="POST", status=202)
    await are_open(site, 1)
    for _ in range(4):
        site.turn.forward(4)
        sent = counts(site).get(("look", "waiting"), 0)
        await until(
            lambda sent=sent: counts(site).get(("look", "waiting"), 0) > sent + 1, "two heartbeats"
        )
    assert not held.done()
    template = site.ops.server.app[LEASES].get(site.name)
    await template.store.sweep()
    assert (await template.store.show("17")).waiting == 1
    assert await release(site, "ben")
    async with asyncio.timeout(10):
        assert (await held)["state"] == "gone"


async def test_who_is_gone_takes_no_lease(service):
    """The client of a held request disconnected: the called holder's reservation stays."""
    site = await service(lease={"term": "1h", "heartbeat_interval": "60s"})
    await take(site, "anna")
    await site.hang_up(f"{SEAT}?wait=60", {"holder": "ben"})
    assert await release(site, "anna")
    shown = await site.fetch("GET", f"{SEAT}/queue")
    assert [(each["holder"], each["fence"]) for each in shown["holders"]] == [("ben", None)]


async def test_a_replica_that_stops_holds_no_holder(service):
    """It answers held requests at once, with their places."""
    site = await service(lease={"term": "1h"})
    await take(site, "anna")
    for holder in ("ben", "eva"):
        await take(site, holder, status=202)
    held = [hold(site, holder) for holder in ("ben", "eva")]
    await are_open(site, 2)
    stopping = asyncio.create_task(site.ops.server.close())
    assert [(await each)["state"] for each in held] == ["waiting"] * 2
    await stopping


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "soon", ""])
async def test_a_wait_that_is_none(service, wait):
    site = await service(lease={"term": "1h"})
    told = f"wait: seconds from 0 to 60, such as 20 or 0.5 (got {wait!r})"
    assert await site.errors("GET", f"{SEAT}?holder=ben&wait={wait}") == [told]
    assert await site.errors("POST", f"{SEAT}?wait={wait}", {"holder": "ben"}) == [told]
