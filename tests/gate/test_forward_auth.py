"""/gate: the responses to proxies that pass a refusal on to the visitor."""

import re

import pytest

from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.shield import ShieldVerdict
from tests.support.replica import cookie_of

HTML = {"Accept": "text/html"}
PREFLIGHT = {
    "X_Forwarded_Method": "OPTIONS",
    "Access_Control_Request_Method": "PUT",
    "Origin": "https://app.example",
}


@pytest.fixture
async def gate(replica):
    """Asks the gate of a room with one slot; settings by name."""

    async def make(**settings):
        site = await replica(**settings)

        async def ask(cookie=None, *, asked="", method="GET", data=None, **headers):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            if cookie:
                named["Cookie"] = cookie
            path = f"/gate/{site.room.name}{asked}"
            return await site.edge.request(method, path, headers={**HTML, **named}, data=data)

        ask.site = site
        return ask

    return make


def data(text: str, name: str) -> str:
    return re.search(rf'data-{name}="([^"]*)"', text)[1]


async def test_who_is_admitted(gate):
    """200, which Envoy wants, a pass, no body; later the pass alone is enough. A request with a
    body closes the connection, because nobody reads the body."""
    ask = await gate()
    reply = await ask()
    assert (reply.status, await reply.read()) == (200, b"")
    assert reply.headers["X-Waitroom-State"] == "admitted"
    assert len(reply.headers.getall("Set-Cookie")) == 1
    again = await ask(cookie_of(reply))
    assert again.status == 200
    assert "Set-Cookie" not in again.headers
    reply = await ask(method="POST", data=b"GET /check HTTP/1.1\r\n\r\n")
    assert reply.headers["Connection"] == "close"


async def test_who_waits_gets_the_page(gate):
    """The page for this address and method, the place, a ticket; nobody may keep it."""
    ask = await gate()
    await ask()
    reply = await ask(X_Forwarded_Uri="/page?a=1&b=2", X_Forwarded_Method="GET")
    assert (reply.status, reply.content_type) == (503, "text/html")
    assert reply.headers["Cache-Control"] == "no-store"
    assert "script-src 'self'" in reply.headers["Content-Security-Policy"]
    assert 1 <= int(reply.headers["Retry-After"]) <= 60
    assert reply.headers["X-Waitroom-Position"] == "1"
    assert "=t~" in reply.headers["Set-Cookie"]
    text = await reply.text()
    assert data(text, "state") == "waiting"
    assert data(text, "next") == "/page?a=1&amp;b=2"
    assert data(text, "method") == "GET"
    assert '<dd id="ahead">0</dd>' in text


async def test_a_program_gets_its_numbers(gate):
    """A problem document that says where to ask again."""
    ask = await gate(queueing_status_code=202)
    await ask()
    reply = await ask(Accept="application/json")
    document = await reply.json()
    name = ask.site.room.name
    assert reply.content_type == "application/problem+json"
    assert (reply.status, document["status"]) == (503, 503)
    assert reply.headers["X-Waitroom-Status"] == "503"
    assert (document["state"], document["position"]) == ("waiting", 1)
    assert document["retry_after_seconds"] == int(reply.headers["Retry-After"])
    assert document["status_url"] == f"/_waitroom/{name}/status"
    assert document["join_url"] == f"/_waitroom/{name}/join"


@pytest.mark.parametrize(("wanted", "status"), [(200, 503), (202, 503), (429, 429), (503, 503)])
async def test_a_refusal_is_never_a_yes(gate, wanted, status):
    """A status that a proxy would admit is replaced, and sent in X-Waitroom-Status."""
    ask = await gate(queueing_status_code=wanted)
    await ask()
    reply = await ask()
    assert (reply.status, reply.headers["X-Waitroom-Status"]) == (status, str(wanted))


async def test_envoy_asks_with_the_address_itself(gate):
    """What stands behind the room's name is the visitor's address, and the method is theirs."""
    ask = await gate()
    await ask(asked="/")
    for method, following in (("GET", "/a%20b//c?x=/gate/"), ("POST", "/")):
        reply = await ask(asked="/a%20b//c?x=/gate/", method=method, data=b"")
        assert reply.status == 503
        text = await reply.text()
        assert (data(text, "next"), data(text, "method")) == (following, method)


@pytest.mark.parametrize(
    "asked", ["//elsewhere.example/", "/" + "x" * 3_000, "/?" + "&" * 1_000, "/\\elsewhere"]
)
async def test_no_address_leads_elsewhere(gate, asked):
    """An address of another site, or one that is too long, becomes the front page."""
    ask = await gate()
    await ask()
    reply = await ask(X_Original_URI=asked)
    assert data(await reply.text(), "next") == "/"


async def test_the_address_alone_names_the_room(gate):
    """No header names a room or holds a token, and an unknown room refuses everybody."""
    ask = await gate()
    first = cookie_of(await ask())
    reply = await ask(X_Waitroom_Room="elsewhere", X_Waitroom_Given=first)
    assert reply.status == 503
    assert data(await reply.text(), "room") == ask.site.room.name
    reply = await ask.site.edge.get("/gate/shoop", headers=HTML)
    assert (reply.status, reply.headers["X-Waitroom-State"]) == (503, "unknown-room")
    assert "'shoop'" in (await reply.json())["detail"]


@pytest.mark.parametrize("header", [{"X_Waitroom_Exempt": "staff"}, {"X_Original_URI": "/free"}])
async def test_no_header_exempts(gate, header):
    """Only nginx's /check may say that a request is exempt, or which path it is for."""
    ask = await gate(exempt_header=True, exempt_paths=("/free",))
    await ask()
    assert (await ask(**header)).status == 503
    nginx = {name.replace("_", "-"): value for name, value in header.items()}
    assert (await ask.site.check(headers=nginx)).status == 204


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (PREFLIGHT, 200),
        ({"X_Forwarded_Method": "OPTIONS"}, 503),
        ({name: said for name, said in PREFLIGHT.items() if name != "Origin"}, 503),
        (PREFLIGHT | {"Cookie": "session=1"}, 503),
    ],
)
async def test_a_preflight_passes(gate, headers, status):
    """A preflight has an Origin and no cookie."""
    ask = await gate()
    await ask()
    assert (await ask(**headers)).status == status


@pytest.mark.parametrize(
    ("referer", "leads_to"),
    [
        ("https://shop.example/form?a=1", "/form?a=1"), ("https://elsewhere.example/form", "/"),
        ("https://shop.example//elsewhere.example/", "/"), ("https://shop.example", "/"),
        ("nonsense", "/"), (f"https://shop.example/{'a' * 3000}", "/"),
    ],
)  # fmt: skip
async def test_what_was_sent_is_never_asked_for_by_get(gate, referer, leads_to):
    """The page says that it has not arrived, and leads back to where it was sent from."""
    ask = await gate()
    await ask()
    reply = await ask(
        X_Forwarded_Method="POST",
        X_Forwarded_Uri="/sent",
        X_Forwarded_Host="shop.example",
        Referer=referer,
    )
    text = await reply.text()
    assert (reply.status, data(text, "next")) == (503, leads_to)
    assert "What you sent has not arrived" in text
    assert "unsent=1" in text
    assert "/sent" not in text


async def test_behind_the_shield_the_page_takes_the_place(gate, monkeypatch):
    """While the shield is up the page joins, by its script or by its refresh."""
    ask = await gate()
    monkeypatch.setattr(WaitingRoom, "_apply_shield", lambda *_: ShieldVerdict.UP)
    reply = await ask()
    text = await reply.text()
    assert (reply.status, data(text, "state")) == (503, "not_queued")
    assert "Set-Cookie" not in reply.headers
    assert ">Joining…</h1>" in text
    assert re.search(r'http-equiv="refresh" content="\d+; url=/_waitroom/', text)
