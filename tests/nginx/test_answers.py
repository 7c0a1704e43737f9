"""What a denied visitor gets: the page in place, at its own address, or a problem document."""

import html
import json
import re
from urllib.parse import urljoin, urlsplit

import pytest

from tests.support.events import make_opening_event
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import gated

CODES = (200, 202, 429, 503)
REDIRECT = "set $waitroom_mode redirect;"


ROOMS = {
    **{f"s{code}": {"total_active_users": 0, "queueing_status_code": code} for code in CODES},
    "shut": {"total_active_users": 0, "queueing_method": "reject"},
    "packed": {"total_active_users": 0, "max_waiting": 1},
    "moves": {"total_active_users": 100},
    "soon": {"total_active_users": 1, "events": json.dumps([make_opening_event(hours=48)])},
}
LOCATIONS = "".join(gated(f"/{room}/", room=room) for room in ROOMS)
LOCATIONS += "".join(gated(f"/r-{room}/", REDIRECT, room=room) for room in ROOMS)
SITE = {"rooms": ROOMS, "locations": LOCATIONS}


def no_store(reply):
    """Return True if a response has one Cache-Control line, no-store, and no Expires."""
    return reply.all("Cache-Control") == ["no-store"] and reply.headers["Expires"] is None


@pytest.mark.parametrize("code", CODES)
def test_the_page_has_the_rooms_status(site, code):
    """200, 202, 429 or 503, whole, never kept by a cache, and with a policy of its own."""
    reply = Visitor(site.url).get(f"/s{code}/")
    assert reply.status == code
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.text.rstrip().endswith("</html>")
    assert no_store(reply)
    assert int(reply.headers["Retry-After"]) >= 1
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "condition",
    [
        {"If-Match": "*"}, {"If-Match": '"a"'}, {"If-None-Match": "*"}, {"If-None-Match": '"a"'},
        {"If-Unmodified-Since": "Wed, 25 Nov 2026 08:00:00 GMT"},
        {"If-Modified-Since": "Wed, 25 Nov 2026 08:00:00 GMT"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", CODES)
def test_a_request_with_a_condition_gets_the_page(site, code, condition):
    """Where nginx would make a bare 304 or 412 of a 200, it is a 503."""
    reply = Visitor(site.url).get(f"/s{code}/", headers=condition)
    assert reply.waits
    assert reply.status in {code, 503}


@pytest.mark.parametrize("code", CODES)
def test_programs_get_a_problem_document(site, code):
    """RFC 9457 with the numbers, and never with a status of success."""
    program = Visitor(site.url, {"Accept": JSON})
    reply = program.get(f"/s{code}/api?x=1")
    assert reply.status == (429 if code == 429 else 503)
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert no_store(reply)
    document = reply.json()
    assert document["status"] == reply.status
    assert (document["room"], document["state"]) == (f"s{code}", "waiting")
    assert document["position"] >= 1
    assert document["wait_seconds"] is None or document["wait_seconds"] >= 0
    assert str(document["retry_after_seconds"]) == reply.headers["Retry-After"]
    status = program.get(document["status_url"])
    assert status.status == 200
    assert status.json()["position"] == document["position"]
    redirected = program.get(f"/r-s{code}/")  # a room with redirects sends the document too
    assert (redirected.status, redirected.json()["room"]) == (reply.status, f"s{code}")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("application/json", "problem"), ("application/json, text/plain, */*", "problem"),
        ("application/vnd.api+json", "problem"), ("application/problem+json", "problem"),
        ("APPLICATION/JSON", "problem"),
        ("text/html,application/xhtml+xml,application/json;q=0.5", "page"), ("*/*", "page"),
        (None, "page"),
    ],
)  # fmt: skip
def test_accept_decides_the_form(site, accept, form):
    """Whoever names JSON and not HTML gets JSON, all others the page."""
    reply = Visitor(site.url, {"Accept": accept}).get("/s503/")
    assert reply.waits == (form == "page")
    if form == "problem":
        assert reply.json()["status"] == 503


@pytest.mark.parametrize(("room", "state"), [("shut", "closed"), ("packed", "full")])
def test_the_refused(site, room, state):
    """A room that takes nobody more (403 of the sidecar) answers with its status as well."""
    Visitor(site.url).get("/packed/")
    reply = Visitor(site.url).get(f"/{room}/")
    assert (reply.status, reply.data("state")) == (503, state)
    document = Visitor(site.url, {"Accept": JSON}).get(f"/{room}/").json()
    assert (document["state"], document["position"]) == (state, None)


@pytest.mark.parametrize("sign", [*(chr(n) for n in range(0x21, 0x7F) if chr(n) != "%"), "%3C"])
def test_an_address_stays_within_its_place(site, sign):
    """The page holds any requested address five times, and nothing else changes."""

    def show(address):
        page = Visitor(site.url).get(address).text
        places = re.findall(r'data-next="([^"]*)"|\?next=([^"]*)"|"next" value="([^"]*)"', page)
        shown = ["".join(place) for place in places]
        assert [html.unescape(each) for each in shown] == [address] * 5
        return page.replace(shown[0], "")

    in_path = "" if sign == "\\" else sign  # no path has it (server.conf)
    assert show(f"/shut/a{in_path}b?c{sign}/{sign}") == show("/shut/plain")


def test_the_page_in_place_knows_the_position(site):
    """Before its script has asked."""
    visitor = Visitor(site.url)
    reply = visitor.get("/s503/")
    position = visitor.get("/_waitroom/s503/status").json()["position"]
    assert f'data-position="{position}"' in reply.text


@pytest.mark.parametrize("query", ["a=1&b=%26&next=//x", "q=a\\b", "q=%5c&r=\\"])
def test_the_redirect_variant(site, query):
    """A waiting page at its own address leads back to the deep link with its query, which may hold
    a backslash: browsers send it as it is."""
    site.admin("PATCH", "/rooms/moves", {"queue_all": True, "total_active_users": 0})
    visitor, asked = Visitor(site.url), f"/r-moves/deep?{query}"
    sent = visitor.get(asked)
    location = sent.headers["Location"]
    assert (sent.status, location) == (302, f"/_waitroom/moves/?next={asked}")
    waiting = visitor.get(location)
    assert (waiting.status, waiting.data("next")) == (200, html.escape(asked))
    site.admin("PATCH", "/rooms/moves", {"queue_all": False, "total_active_users": 100})
    wait_until(lambda: visitor.get(location).status == 303, "the turn")
    turn = visitor.get(location)
    assert turn.headers["Location"] == asked
    assert [no_store(reply) for reply in (sent, waiting, turn)] == [True] * 3
    assert visitor.get(asked).json()["path"] == asked


@pytest.mark.parametrize("asked", ["/r-moves/?q=caf\u00e9", f"/r-moves/?q={'x' * 5000}"])
def test_what_fits_into_no_address_keeps_its_own(site, asked):
    """What a program did not encode, and what is too long: the page in place."""
    site.admin("PATCH", "/rooms/moves", {"queue_all": True, "total_active_users": 0})
    visitor = Visitor(site.url)
    reply = visitor.get(asked.encode())
    assert (reply.status, reply.waits) == (503, True)
    assert "Location" not in reply.headers
    site.admin("PATCH", "/rooms/moves", {"queue_all": False, "total_active_users": 100})
    wait_until(lambda: not visitor.get(asked.encode()).waits, "the turn")


UNSAFE = [
    "//evil.test", "///evil.test", "/\\evil.test", "\\\\evil.test", "/%5cevil.test",
    "/%5c%5cevil.test", "https://evil.test", "https:evil.test", "javascript:alert(1)",
    "/%2fevil.test", "%2f%2fevil.test", "/%09/evil.test", "/\t/evil.test", "evil.test",
    "/%0d%0aLocation:%20//evil.test", "/%0d%0aSet-Cookie:%20a=b", "/.//evil.test",
    "/..//evil.test", "/%2e%2e//evil.test", "@evil.test", "//evil.test@x", "/;@evil.test", "",
    "/%00", "/%E3%80%82evil.test", "/\xe9vil", "/x#//evil.test", "//", "/",
]  # fmt: skip


@pytest.mark.parametrize("path", ["/_waitroom/moves/?next=", "/_waitroom/moves/?a=1&next="])
@pytest.mark.parametrize("following", UNSAFE)
def test_next_never_leaves_the_site(site, path, following):
    """Wherever `next` points, whoever is let in lands on the site, with no header added."""
    site.admin("PATCH", "/rooms/moves", {"queue_all": False, "total_active_users": 100})
    reply = Visitor(site.url).get((path + following).encode("latin-1"))
    if reply.status == 400:
        return
    assert reply.status == 303
    assert lands_on(site, reply)


@pytest.mark.parametrize("following", UNSAFE)
def test_next_of_a_form_never_leaves_the_site(site, following):
    """The same for the page's form, whose fields are encoded."""
    encoded = "".join(f"%{ord(c):02x}" for c in following)
    reply = Visitor(site.url).post(
        "/_waitroom/moves/join",
        f"next={encoded}".encode(),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert reply.status == 303
    assert lands_on(site, reply)


@pytest.mark.parametrize("following", UNSAFE)
def test_the_calendar_never_leads_off_the_site(site, following):
    """Wherever `next` points, the entry leads to the site, and has no field added."""

    def fetch(path):
        return Visitor(site.url).get(f"/_waitroom/soon/opening.ics?next={path}".encode("latin-1"))

    def read_fields(reply):
        unfolded = reply.text.replace("\r\n ", "").splitlines()
        return [tuple(line.partition(":")[::2]) for line in unfolded]

    reply = fetch(following)
    if reply.status == 400:
        return
    assert reply.status == 200
    fields, plain = read_fields(reply), read_fields(fetch("/plain"))
    assert [name for name, _ in fields] == [name for name, _ in plain]
    url = urlsplit(dict(fields)["URL"].replace("\\", "/"))
    assert f"http://{url.netloc}" == site.url


def lands_on(site, reply) -> bool:
    """Return True if a browser stays on the site. Browsers read \\ as /, and drop tabs."""
    location = reply.headers["Location"]
    assert "a=b" not in reply.headers.get("Set-Cookie", "")
    seen = re.sub(r"[\t\r\n]", "", location).replace("\\", "/")
    there = urlsplit(urljoin(f"{site.url}/_waitroom/", seen))
    return location.startswith("/") and f"http://{there.netloc}" == site.url


def test_assets_come_from_disk(site):
    """With their types, and kept by browsers for minutes."""
    for name, kind in {
        "waiting.css": "text/css",
        "waiting.js": "application/javascript",
        "logo.svg": "image/svg+xml",
        "i18n/ja.json": "application/json",
    }.items():
        reply = Visitor(site.url).get(f"/_waitroom/static/{name}")
        assert reply.status == 200
        assert reply.headers["Content-Type"].partition(";")[0] == kind
        assert "max-age=300" in reply.headers["Cache-Control"]
        etag = reply.headers["ETag"]
        assert (
            Visitor(site.url, {"If-None-Match": etag}).get(f"/_waitroom/static/{name}").status
            == 304
        )
    assert Visitor(site.url).get("/_waitroom/static/none.js").status == 404
