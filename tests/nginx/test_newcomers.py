"""Requests without our cookie: who takes a place, and how often."""

import asyncio
import html

import aiohttp
import pytest

from tests.support.nginx_client import HTML, JSON, Visitor, room_cookies
from tests.support.site import Site, gated

FILES = """
    location /files {{
        set $waitroom_room {room};
        include waitroom/location.conf;
        root {folder};
        index index.html;
    }}
"""

INTERNAL_REDIRECTS = {
    "index": "/{room}/index/",
    "try_files": "/{room}/tried",
    "rewrite": "/{room}/rewritten",
    "error_page": "/{room}/status/404",
    "named location": "/{room}/named",
}


def all_ways(room: str) -> str:
    """Build locations that redirect a request internally to another one with the same room."""
    return (
        gated(f"/{room}/", room=room)
        + gated(f"/{room}/index/", "root $site_files;", room=room, to="")
        + gated(f"/{room}/tried", f"try_files /none /{room}/page?tried=1;", room=room, to="")
        + gated(f"/{room}/status/", "proxy_intercept_errors on;", "include waitroom/errors.conf;",
                f"error_page 404 /{room}/page?missing=1;", room=room)
        + gated(f"/{room}/named", f"error_page 418 = @{room};", "include waitroom/errors.conf;",
                "try_files /none =418;", room=room, to="")
        + gated(f"@{room}", f"rewrite ^ /{room}/page?named=1 last;", room=room, to="")
        + f"rewrite ^/{room}/rewritten$ /{room}/page?rewritten=1 last;\n"
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    files.chmod(0o755)
    for room in ("open", "full"):
        (files / room / "index").mkdir(parents=True)
        (files / room / "index" / "index.html").write_text("<h1>index</h1>")
    rooms = {"open": {"total_active_users": 1000}, "full": {"total_active_users": 0}}
    locations = "".join(all_ways(room) for room in rooms)
    http = f'map "" $site_files {{ default {files}; }}'
    with Site(rooms=rooms, locations=locations, http=http) as site:
        yield site


@pytest.mark.parametrize("path", INTERNAL_REDIRECTS.values(), ids=INTERNAL_REDIRECTS)
@pytest.mark.parametrize("room", ["open", "full"])
def test_an_internal_redirect_counts_once(site, room, path):
    """nginx asks again for the same request: one person, whose cookie arrives and counts."""
    before = site.count_visitors(room)
    visitor = Visitor(site.url)
    first = visitor.get(path.format(room=room))
    assert first.waits == (room == "full")
    assert site.count_visitors(room) == before + 1
    assert len(room_cookies(first, room)) == 1
    second = visitor.get(path.format(room=room))
    assert second.waits == (room == "full")
    assert site.count_visitors(room) == before + 1
    assert room_cookies(second, room) == []


def fetches(accept: str, mode: str, dest: str) -> dict[str, str]:
    return {"Accept": accept, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}


#: A request for each header by which a replica decides. tests/gate/test_check.py has more.
BACKGROUND = {
    "image": fetches("image/avif,image/*;q=0.8", "no-cors", "image"),
    "fetch of JSON": fetches(JSON, "cors", "empty"),
    "fetch of HTML": fetches("text/html", "cors", "empty"),
    "prefetch": {**fetches(HTML, "navigate", "document"), "Sec-Purpose": "prefetch"},
    "older prefetch": {"Accept": HTML, "Purpose": "prefetch"},
    "oldest prefetch": {"Accept": HTML, "X-Moz": "prefetch"},
    "image of an old browser": {"Accept": "image/*", "User-Agent": "Mozilla/5.0"},
    "script of an old browser": {
        "Accept": "*/*",
        "User-Agent": "Mozilla/5.0",
        "Referer": "http://site/",
    },
}


@pytest.mark.parametrize("headers", BACKGROUND.values(), ids=BACKGROUND)
def test_what_comes_along_takes_none(site, headers):
    """Images, scripts and prefetches are denied without a place, a cookie or a slot."""
    before = site.count_visitors("full"), site.count_visitors("open")
    for path, room in (("/full/x", "full"), ("/open/x", "open")):
        reply = Visitor(site.url, headers).get(path)
        assert (reply.status, room_cookies(reply, room)) == (503, [])
    assert (site.count_visitors("full"), site.count_visitors("open")) == before


def test_a_script_is_told_where_to_join(site):
    """Six calls at a time would be six places: by POST to `join_url` they are one."""
    before = site.count_visitors("full")
    headers = fetches(JSON, "cors", "empty")
    document = Visitor(site.url, headers).get("/full/x").json()
    assert (document["state"], document["position"]) == ("not_queued", None)
    assert site.count_visitors("full") == before
    program = Visitor(site.url, headers)
    assert program.post(document["join_url"]).json()["state"] == "waiting"


@pytest.mark.parametrize("room", ["full", "open"])
def test_a_frame_on_another_site(site, room):
    """Each load would be a new visitor: the page opens in a tab of its own."""
    before = site.count_visitors(room)
    frame = {**fetches(HTML, "navigate", "iframe"), "Sec-Fetch-Site": "cross-site"}
    reply = Visitor(site.url, frame).get(f"/{room}/x?a=<b&c")
    assert (reply.status, room_cookies(reply, room), reply.waits) == (503, [], False)
    assert f'<a href="/{room}/x?a=&lt;b&amp;c" target="_top">' in reply.text
    assert "frame-ancestors" not in reply.headers["Content-Security-Policy"]
    assert site.count_visitors(room) == before


@pytest.mark.parametrize(
    ("origin", "gives"),
    [("https://bank.example", False), ("null", False), ("", True), ("own", True)],
)
def test_an_old_browser_sends_a_banks_form(site, origin, gives):
    """A form of another site gets no cookie; the page takes a place."""
    visitor = Visitor(site.url, {"Accept": HTML})
    headers = {"Origin": site.url if origin == "own" else origin} if origin else {}
    reply = visitor.post("/open/x", headers=headers)
    assert (reply.status, bool(room_cookies(reply, "open"))) == (200 if gives else 503, gives)
    assert reply.waits != gives


SENT = {"Accept": HTML, "Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("referer", "leads_to"),
    [
        ("{own}/full/form?a=1", "/full/form?a=1"), ("{own}//elsewhere.example/", "/"),
        ("{own}.elsewhere.example/full/form", "/"), ("https://elsewhere.example/full/form", "/"),
        ("https://elsewhere.example/?{own}/full/form", "/"),
        ("{own}/_waitroom/full/?next=/full/form", "/full/form"), ("", "/"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_what_was_sent_is_never_asked_for_by_get(site, referer, leads_to, method):
    """The way in leads to the page that it was sent from, if that is of this site."""
    headers = {**SENT, "Referer": referer.format(own=site.url)} if referer else SENT
    reply = Visitor(site.url).send(method, "/full/sent", headers=headers)
    assert (reply.status, reply.waits) == (503, True)
    assert f'data-next="{leads_to}"' in reply.text
    assert f'url=/_waitroom/full/?unsent=1&next={leads_to}"' in html.unescape(reply.text)
    assert "What you sent has not arrived" in reply.text
    assert "/full/sent" not in reply.text


@pytest.mark.parametrize("headers", BACKGROUND.values(), ids=BACKGROUND)
def test_with_a_pass_everything_passes(site, headers):
    """A visitor inside gets images, scripts and data as ever."""
    visitor = Visitor(site.url)
    visitor.get("/open/")
    assert visitor.get("/open/x", headers=headers).status == 200


async def test_parallel_first_requests(site):
    """Ten simultaneous first requests are answered, and then one cookie counts."""
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), headers={"Accept": HTML}
    ) as session:
        for room, status in (("open", 200), ("full", 503)):
            replies = await asyncio.gather(
                *(fetch(session, f"{site.url}/{room}/") for _ in range(10))
            )
            assert [each[0] for each in replies] == [status] * 10
            before = site.count_visitors(room)
            again = await asyncio.gather(
                *(fetch(session, f"{site.url}/{room}/") for _ in range(10))
            )
            assert [each[0] for each in again] == [status] * 10
            assert [each[1] for each in again] == [0] * 10
            assert site.count_visitors(room) == before


async def fetch(session, url):
    async with session.get(url) as reply:
        ours = [c for c in reply.headers.getall("Set-Cookie", []) if c.startswith("waitroom_")]
        return reply.status, len(ours)


async def test_a_page_and_its_assets_at_once(site):
    """A page's twenty images, asked for while the page itself is on its way, take no place."""
    before = site.count_visitors("full")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        image = session.get(f"{site.url}/full/i", headers=BACKGROUND["image"])
        page = session.get(f"{site.url}/full/", headers={"Accept": HTML})
        images = [
            session.get(f"{site.url}/full/{n}", headers=BACKGROUND["image"]) for n in range(20)
        ]
        for reply in await asyncio.gather(image, page, *images):
            assert reply.status == 503
            await reply.read()
    assert site.count_visitors("full") == before + 1
