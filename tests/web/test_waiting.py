"""Status, join, leave and the page."""

from __future__ import annotations

import re

import pytest

from sidecar.base.model import RELEASE_HOLD_MS
from sidecar.web.page import LANGUAGES, Page, choose_language, find_static
from sidecar.web.waiting import safe_next
from tests.web.conftest import HTML, cookie_of


@pytest.fixture
async def full(replica):
    """A replica whose one slot is taken."""
    site = await replica()
    site.first = cookie_of(await site.check())
    return site


async def test_the_status_document(full):
    """Every member of the contract, and a heartbeat."""
    ticket = cookie_of(await full.check())
    reply = await full.status(ticket)
    document = await reply.json()
    assert reply.headers["Cache-Control"] == "no-store"
    assert set(document) == {
        "state", "position", "waiting", "ahead", "wait_seconds", "wait_seconds_low",
        "wait_seconds_high", "joined_at", "updated_at", "refresh_after_seconds", "message", "room",
    }  # fmt: skip
    assert document["state"] == "waiting"
    assert (document["position"], document["ahead"], document["waiting"]) == (1, 0, 1)
    assert document["wait_seconds_low"] <= document["wait_seconds"] <= document["wait_seconds_high"]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$", document["joined_at"])
    assert 2 <= document["refresh_after_seconds"] <= 60


async def test_asking_without_a_place_takes_none(full):
    """State not_queued."""
    document = await (await full.status("x=1")).json()
    assert (document["state"], document["position"]) == ("not_queued", None)
    assert (await full.room.refresh()).waiting == 0


async def test_joining_twice_equals_once(full):
    """The second join, with the first one's cookie, finds the same place."""
    path = f"/_waitroom/{full.room.name}/join"
    first = await full.edge.post(path)
    again = await full.edge.post(path, headers={"Cookie": cookie_of(first)})
    assert (await first.json())["position"] == (await again.json())["position"] == 1
    assert (await full.room.refresh()).waiting == 1


async def test_leaving_gives_up_the_place(full):
    """And leaving again changes nothing; the old ticket is worth nothing."""
    ticket = cookie_of(await full.check())
    for _ in range(2):
        reply = await full.edge.post(
            f"/_waitroom/{full.room.name}/leave", headers={"Cookie": ticket}
        )
        assert (await reply.json())["state"] == "not_queued"
    assert (await (await full.status(ticket)).json())["state"] == "not_queued"
    assert (await full.room.refresh()).counters["left"] == 1


async def test_the_called_is_admitted_by_its_poll(full):
    """The poll claims: state admitted, and the pass comes with it."""
    ticket = cookie_of(await full.check())
    await full.edge.post(f"/_waitroom/{full.room.name}/leave", headers={"Cookie": full.first})
    full.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
    reply = await full.status(ticket)
    assert (await reply.json())["state"] == "admitted"
    assert (await full.check(cookie_of(reply))).status == 204
    # Another tab that still has the ticket gets the same session.
    again = await full.status(ticket)
    assert (await again.json())["state"] == "admitted"
    assert (await full.room.refresh()).active == 1


async def test_too_many_polls_keep_the_place(replica):
    """429 with Retry-After after poll_limit polls before their time; still a heartbeat."""
    site = await replica(poll_limit=10)
    site.turn.now_ms -= site.turn.now_ms % 60_000
    await site.check()
    ticket = cookie_of(await site.check())
    statuses = [(await site.status(ticket)).status for _ in range(12)]
    assert statuses == [200] * 11 + [429]  # the first came when it should
    limited = await site.status(ticket)
    assert limited.content_type == "application/problem+json"
    assert 1 <= int(limited.headers["Retry-After"]) <= 60
    site.turn.forward(61)
    reply = await site.status(ticket)
    assert (reply.status, (await reply.json())["position"]) == (200, 1)


async def test_polls_as_advised_are_never_too_many(replica):
    """Ten minutes of polling when told to."""
    site = await replica(poll_limit=30)
    first = cookie_of(await site.check())
    ticket = cookie_of(await site.check())
    for _ in range(200):
        reply = await site.status(ticket)
        assert reply.status == 200
        site.turn.forward((await reply.json())["refresh_after_seconds"] + 0.001)
        kept = await site.check(first)
        first = cookie_of(kept) if "Set-Cookie" in kept.headers else first


async def test_queue_all_has_no_estimate(replica):
    """Nobody can know when it ends."""
    site = await replica(queue_all=True)
    ticket = cookie_of(await site.check())
    document = await (await site.status(ticket)).json()
    assert document["wait_seconds"] is document["wait_seconds_low"] is None


async def test_an_unknown_room_is_a_problem(replica):
    """404 as a problem document, for every door."""
    site = await replica()
    for method, door in (("GET", "status"), ("POST", "join"), ("POST", "leave"), ("GET", "")):
        reply = await site.edge.request(method, f"/_waitroom/nope/{door}")
        assert (reply.status, reply.content_type) == (404, "application/problem+json")


async def test_the_wrong_method_is_a_problem(replica):
    """405 and Allow."""
    site = await replica()
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/join")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")


async def test_the_page_has_the_numbers(full):
    """In the visitor's language, with the refresh of those without JavaScript."""
    ticket = cookie_of(await full.check())
    path = f"/_waitroom/{full.room.name}/?next=/a?b=1&c=%22%3E"
    reply = await full.edge.get(
        path, headers={**HTML, "Cookie": ticket, "Accept-Language": "de-CH, en;q=0.5"}
    )
    text = await reply.text()
    assert reply.status == 200
    assert '<html lang="de" dir="ltr"' in text
    assert '<dd id="position">1</dd>' in text
    assert re.search(rf'content="[23]; url=/_waitroom/{full.room.name}/\?next=/a\?b=1&amp;c=', text)
    assert "<!--#" not in text
    assert '">"' not in text
    assert "script-src 'self'" in reply.headers["Content-Security-Policy"]


async def test_the_page_takes_a_place_and_later_enters(full):
    """For browsers that have nothing but this page."""
    path = f"/_waitroom/{full.room.name}/?next=/deep/link?x=1&y=2"
    ticket = cookie_of(await full.edge.get(path, headers=HTML))
    await full.edge.post(f"/_waitroom/{full.room.name}/leave", headers={"Cookie": full.first})
    full.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
    reply = await full.edge.get(path, headers={**HTML, "Cookie": ticket}, allow_redirects=False)
    assert (reply.status, reply.headers["Location"]) == (303, "/deep/link?x=1&y=2")
    assert "=p~" in reply.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "value",
    ["", "x", "//evil", "/\\evil", "https://evil", "/\t/evil", "/a\r\nSet-Cookie: x", "\\\\evil",
     "/a\\b", "javascript:alert(1)", "/\x00"],
)  # fmt: skip
def test_next_never_leads_elsewhere(value):
    """Whatever is not plainly a path of this site becomes "/"."""
    assert safe_next(value) == "/"


def test_languages_are_chosen_by_quality():
    """The best that the page has; English for oddities."""
    assert choose_language("fr;q=0.3, ja;q=0.9, xx") == "ja"
    assert choose_language("zh-TW") == "zh-CN"
    for odd in (None, "", "*", ";;;", "de;q=0", "q=1,=", "é", "a" * 5000):
        assert choose_language(odd) == "en"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text(language):
    """No key is missing, no place in the template is left open."""
    page = Page(find_static())
    for view in ("waiting", "full", "closed", "not_queued", "left", "admitted"):
        text = page.render(language=language, view=view, values={"room": "r"})
        assert "<!--#" not in text
        assert f'lang="{language}"' in text


async def test_the_page_is_small():
    """Under 25 KB in all, every language included."""
    files = [file for file in find_static().rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 25_000
