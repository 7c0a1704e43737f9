"""The link that takes a place, or a turn, to another browser."""

import re
from urllib.parse import quote

import pytest
from yarl import URL

from sidecar.gate.claim_link import ClaimPage
from sidecar.gate.page.languages import Languages
from sidecar.gate.page.render import Page
from sidecar.kit.errors import StoreError
from sidecar.kit.share import find_share
from sidecar.visitors.model import TICKET_LIFETIME_MS
from sidecar.visitors.tokens import Tokens
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS
from tests.support.replica import HTML, KEYS, cookie_of

VIEWS = ("called", "waiting", "begun", "gone", "unknown", "away")


def as_is(link: str) -> URL:
    """No client of ours changes how it is encoded."""
    return URL(link, encoded=True)


class Site:
    """A replica whose one slot is taken, and one who waits; `link` is theirs."""

    def __init__(self, replica, first: str, ticket: str) -> None:
        self.replica, self.first, self.ticket = replica, first, ticket
        self.room = replica.room
        self.link = self.link_of(self.room.tokens.read(ticket.partition("=")[2]))

    def link_of(self, ticket) -> str:
        return f"/_waitroom/{self.room.name}/claim?token={self.room.tokens.write_claim(ticket)}"

    async def get(self, link: str | None = None, **headers):
        return await self.replica.edge.get(as_is(link or self.link), headers={**HTML, **headers})

    async def post(self, link: str | None = None, **headers):
        return await self.replica.edge.post(
            as_is(link or self.link), headers={**HTML, **headers}, allow_redirects=False
        )

    async def call(self) -> None:
        """The slot is free, and it is their turn."""
        await self.leave(self.first)
        self.replica.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
        await self.room.store.sweep()
        assert (await self.room.refresh()).provisional == 1

    async def leave(self, cookie: str) -> None:
        path = f"/_waitroom/{self.room.name}/leave"
        await self.replica.edge.post(path, headers={"Cookie": cookie})

    async def counts(self) -> dict[str, float]:
        counters = (await self.room.refresh()).counters
        for name in ("measured_at", "keys_at"):  # each script that writes moves them on
            counters.pop(name)
        return counters


@pytest.fixture
async def site(replica):
    made = await replica()
    first = cookie_of(await made.check())
    return Site(made, first, cookie_of(await made.check()))


def make_page(static) -> ClaimPage:
    return ClaimPage(static, Page(static))


def heading_of(text: str) -> str:
    return re.search(r"<h1>(.*?)</h1>", text)[1]


async def test_opening_the_link_changes_nothing(site):
    """Programs open links in mail: no cookie, no turn taken, no heartbeat; a page with a button."""
    await site.call()
    before = await site.counts()
    for method in ("GET", "HEAD", "GET"):
        reply = await site.replica.edge.request(method, site.link, headers=HTML)
        assert (reply.status, "Set-Cookie" in reply.headers) == (200, False)
    text = await reply.text()
    assert heading_of(text) == "It is your turn"
    assert re.search(r'<form method="post" ><button id="join">Continue</button></form>', text)
    assert re.search(r'<p class="box" hidden>', text)
    assert (await site.counts(), (await site.room.refresh()).provisional) == (before, 1)
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert "script-src 'self'" in reply.headers["Content-Security-Policy"]


async def test_the_page_says_how_long_the_turn_is_held(site):
    """The page counts down to the second; a place that is not called yet has no such time."""
    text = await (await site.get()).text()
    assert "held" not in text
    await site.call()
    held = re.compile(r'<p id="held" role="timer">Time left: <b data-seconds="(\d+)">(.*?)</b></p>')
    seconds, digits = held.search(await (await site.get()).text()).groups()
    assert f"{int(seconds) // 60}:{int(seconds) % 60:02}" == digits
    site.replica.turn.forward(7)
    later, _ = held.search(await (await site.get()).text()).groups()
    assert int(seconds) - int(later) == 7


async def test_the_button_takes_a_turn_to_another_browser(site):
    """The other browser gets the ticket, and its next request is admitted: one session for both."""
    await site.call()
    reply = await site.post(site.link + "&next=/cart?a=1&b=2")
    assert (reply.status, reply.headers["Location"]) == (303, "/cart?a=1&b=2")
    phone = cookie_of(reply)
    assert (await site.room.refresh()).provisional == 1  # nobody is inside by the button alone
    entered = await site.replica.check(phone)
    assert (entered.status, "=p~" in entered.headers["Set-Cookie"]) == (204, True)
    # I expect the browser that waited to get in too, with the same session.
    assert (await site.replica.check(site.ticket)).status == 204
    snapshot = await site.room.refresh()
    assert (snapshot.active, snapshot.provisional) == (1, 0)
    assert snapshot.counters["admitted"] == 2  # the first one, and this


async def test_the_button_takes_a_place_in_line_to_another_browser(site):
    """Before the turn has come both browsers have the same place."""
    text = await (await site.get()).text()
    assert heading_of(text) == "You are in line"
    reply = await site.post(**{"X-Forwarded-Proto": "https"})
    assert reply.headers["Set-Cookie"].startswith(site.room.tokens.cookie_name + "=t~")
    rest = f"; Max-Age={TICKET_LIFETIME_MS // 1000}; Path=/; HttpOnly; SameSite=Lax; Secure"
    assert reply.headers["Set-Cookie"].endswith(rest)
    phone = cookie_of(reply)
    for cookie in (phone, site.ticket):
        document = await (await site.replica.status(cookie)).json()
        assert (document["state"], document["position"]) == ("waiting", 1)
    assert (await site.room.refresh()).waiting == 1


async def test_who_is_inside_already_needs_no_link(site):
    """The page says so, on whatever browser, and sets nothing."""
    await site.call()
    await site.replica.check(site.ticket)
    for reply in (await site.get(), await site.post()):
        assert (reply.status, "Set-Cookie" in reply.headers) == (410, False)
        text = await reply.text()
        assert heading_of(text) == "You are inside already"
        assert '<form method="post" hidden>' in text
        assert '<p class="box" ><a href="/">' in text


async def left(site: Site) -> None:
    await site.leave(site.ticket)


async def reset(site: Site) -> None:
    await site.room.store.reset()


async def came_too_late(site: Site) -> None:
    await site.call()
    site.replica.turn.forward(300)  # and no script has run since


async def ended(site: Site) -> None:
    await site.call()
    await site.replica.check(site.ticket)
    site.replica.turn.forward(3600)


async def left_from_inside(site: Site) -> None:
    await site.call()
    await site.leave(cookie_of(await site.replica.check(site.ticket)))


@pytest.mark.parametrize("happened", [left, reset, came_too_late, ended, left_from_inside])
async def test_a_place_that_is_gone_is_not_taken(site, happened):
    """For a place that is gone the page says so, leads to the site, and sets no cookie."""
    await happened(site)
    for reply in (await site.get(site.link + "&next=/shop"), await site.post()):
        assert (reply.status, "Set-Cookie" in reply.headers) == (410, False)
        assert heading_of(await reply.text()) == "This place is gone"
    assert 'href="/shop"' in await (await site.get(site.link + "&next=/shop")).text()


async def test_what_does_not_verify_is_a_page_that_says_so(site):
    """400, never 500, and no cookie: cut off, of another room, a cookie's own text, anything."""
    path, _, token = site.link.partition("?token=")
    ticket = site.room.tokens.read_claim(token)
    another = Tokens("another", KEYS, site.room.clock).write_claim(ticket)
    forged = Tokens(site.room.name, ["f" * 32], site.room.clock).write_claim(ticket)
    cookie = site.ticket.partition("=")[2]
    for odd in (
        "", "?", "?token", "?token=", "?token=%", "?token=%ff%fe", "?token=%00", "?token=%C3%A9",
        f"?token={token[:-4]}", f"?token={another}", f"?token={forged}", f"?token={cookie}",
        f"?token={'c~' * 4000}", f"?x={token}", "?token=c~a~b~c", f"?next=/&token={token[1:]}",
        "?token[]=1&token=2", "?" + quote(token),
    ):  # fmt: skip
        for reply in (await site.get(path + odd), await site.post(path + odd)):
            assert (odd, reply.status, "Set-Cookie" in reply.headers) == (odd, 400, False)
            assert heading_of(await reply.text()) == "This link does not work"


async def test_a_link_is_too_old_after_a_day(site):
    """A link is invalid after a day, like a ticket."""
    site.replica.turn.forward(TICKET_LIFETIME_MS / 1000 + 1)
    assert (await site.post()).status == 400


@pytest.mark.parametrize(
    ("asked", "goes"),
    [
        ("", "/"), ("&next=", "/"), ("&next=/a?b=c&d=e", "/a?b=c&d=e"), ("&next=/a%20b", "/a%20b"),
        ("&next=%2Fa%3Fb%3Dc%26d%3D%C3%A9", "/a?b=c&d=%C3%A9"), ("&next=%2fa%2520b", "/a%20b"),
        ("&next=//evil.test", "/"), ("&next=%2F%2Fevil.test", "/"), ("&next=%2F%5Cevil.test", "/"),
        ("&next=https://evil.test/", "/"), ("&next=%2Fa%0D%0ASet-Cookie:x", "/"),
        ("&next=javascript:alert(1)", "/"),
    ],
)  # fmt: skip
async def test_next_is_a_path_of_the_site(site, asked, goes):
    """Written as it is, or encoded; nothing leads elsewhere, and nothing breaks out of a header."""
    reply = await site.post(site.link + asked)
    assert (reply.status, reply.headers["Location"]) == (303, goes)
    assert len(reply.headers.getall("Set-Cookie")) == 1


async def test_what_stands_in_the_page_is_escaped(site):
    """An address may hold what HTML takes for its own."""
    await left(site)
    text = await (await site.get(site.link + '&next=/"><script>&')).text()
    assert "<script>" not in text


async def test_another_site_cannot_press_the_button(site):
    """A POST from another site gets the page without a cookie."""
    reply = await site.post(**{"Sec-Fetch-Site": "cross-site"})
    assert (reply.status, "Set-Cookie" in reply.headers) == (200, False)
    assert (await site.post(**{"Sec-Fetch-Site": "same-origin"})).status == 303


async def test_while_the_store_is_away_the_page_asks_for_patience(site, monkeypatch):
    """503 with Retry-After; nothing is set, because nobody knows whether the place is there."""

    async def fail(_visitor):
        raise StoreError("gone")

    monkeypatch.setattr(type(site.room.store.lists), "find", staticmethod(fail))
    for reply in (await site.get(), await site.post()):
        assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
        assert "Set-Cookie" not in reply.headers
        assert heading_of(await reply.text()) == "Please try again in a moment"


async def test_after_the_store_was_emptied_the_link_brings_the_place_back(site, redis_socket):
    """While places come back a link restores its place like any ticket."""
    from redis.asyncio import Redis

    await site.room.refresh()
    redis = Redis(unix_socket_path=str(redis_socket))
    await redis.delete(*[key async for key in redis.scan_iter(f"*{{{site.room.name}}}*")])
    await redis.aclose()
    site.replica.turn.forward(1)
    await site.room.refresh()
    assert site.room.snapshot.recovery_stage == 2
    phone = cookie_of(await site.post())
    assert (await (await site.replica.status(phone)).json())["state"] == "waiting"
    assert (await site.room.refresh()).waiting == 1


async def test_what_was_shown_is_counted(site):
    """Each view of the page is counted, and each press of the button."""
    await site.get()
    await site.post()
    await site.get(f"/_waitroom/{site.room.name}/claim")
    registry = site.replica.metrics.registry

    def counted(state):
        labels = {"room": site.room.name, "door": "claim", "state": state}
        return registry.get_sample_value("waitroom_requests_total", labels)

    assert [counted(state) for state in ("waiting", "taken", "unknown")] == [1, 1, 1]


@pytest.mark.parametrize("language", Languages(find_share("static")).tags)
def test_every_language_has_every_text(language):
    """Each language has its own texts, and no place in the template is left open."""
    page = make_page(find_share("static"))
    shown = [page.render(language=language, view=view, next_url="/", left_s=65) for view in VIEWS]
    assert not [text for text in shown if "$" in text]
    assert all(f'lang="{language}"' in text for text in shown)
    assert ('dir="rtl"' in shown[0]) == (language == "ar")
    headings = {heading_of(text) for text in shown}
    assert len(headings) == len(VIEWS)
    assert '<b data-seconds="65">1:05</b>' in shown[0]
    if language != "en":
        english = [page.render(language="en", view=view, next_url="/") for view in VIEWS]
        assert headings.isdisjoint(map(heading_of, english))


async def test_the_page_speaks_the_visitors_language(site):
    """The page is in the visitor's language, and says which one that is."""
    reply = await site.get(**{"Accept-Language": "de-CH"})
    assert reply.headers["Content-Language"] == "de"
    assert heading_of(await reply.text()) == "Sie sind in der Warteschlange"


def test_the_sites_name_is_the_waiting_pages(tmp_path):
    """People write it there; static files of an older version lack our page, and need none."""
    own = (find_share("static") / "waiting.html").read_text()
    own = own.replace('<span id="site">Waitroom</span>', '<span id="site">Shop &amp; Co</span>')
    (tmp_path / "waiting.html").write_text(own)
    text = make_page(tmp_path).render(language="en", view="called", next_url="/")
    assert '<span id="site">Shop &amp; Co</span>' in text
    assert "<title>It is your turn – Shop &amp; Co</title>" in text
    (tmp_path / "waiting.html").write_text("<p>")
    text = make_page(tmp_path).render(language="en", view="called", next_url="/")
    assert "It is your turn" in text
