"""A room's own template, with nginx: in place, at the page's address, and where nobody answers."""

import json
import re
import shutil
import time

import pytest

from sidecar.gate.page.template import POLICY
from sidecar.visitors.tokens import JOIN_FROM_S
from tests.nginx.stub import make_reply
from tests.support.events import make_opening_event
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import ROOT, Site, gated

CODES = (200, 202, 429, 503)
ODD_LOCATIONS = gated("/")
MESSAGE = 'Back <soon> & "well" \'\\'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Copy the templates, so that a test can change them."""
    folder = tmp_path_factory.mktemp("own") / "templates"
    shutil.copytree(ROOT / "tests" / "support" / "templates", folder)
    return folder


@pytest.fixture(scope="module")
def site(folder):
    shop = {"total_active_users": 0, "template": "cloudflare.html"}
    own = {**shop, "template": "own.html", "message": MESSAGE, "site_name": "<Alpenrock>"}
    rooms = {f"s{code}": {**shop, "queueing_status_code": code} for code in CODES}
    rooms |= {
        "own": own,
        "turns": {**own, "total_active_users": 1},
        "packed": {**own, "max_waiting": 1},
        "rush": {**own, "total_active_users": 100, "shield_above": 1},
        "lots": {**shop, "events": json.dumps([make_opening_event(hours=1, prequeue_hours=2)])},
        "paused": {**shop, "queue_all": True, "total_active_users": 9},
        "changes": {**own},
        "scripted": {**shop, "template": "scripted.html"},
    }
    (folder / "scripted.html").write_text(
        '<html data-room="{{room}}" data-next="{{next}}" data-state="{{state}}">'
        '<h1 id="heading"></h1><script src="/_waitroom/static/waiting.js"></script>'
    )
    locations = "".join(gated(f"/{room}/", room=room) for room in rooms)
    locations += gated("/moved/", "set $waitroom_mode redirect;", room="own")
    with Site(rooms=rooms, locations=locations, settings={"template_dir": str(folder)}) as site:
        yield site


def shown(reply, name):
    found = re.search(rf'<\w+ id="{name}"[^>]*>(.*?)</\w+>', reply.text)
    assert found, reply.text
    return found[1]


@pytest.mark.parametrize("code", CODES)
def test_the_page_has_the_rooms_status(site, code):
    """In place, whole, never kept by a cache, and with a policy that lets its own script run."""
    visitor = Visitor(site.url)
    reply = visitor.get(f"/s{code}/a?b=1")
    assert (reply.status, reply.headers["Content-Type"]) == (code, "text/html; charset=utf-8")
    assert "Hang on, Alpenrock is busy" in reply.text
    assert reply.all("Cache-Control") == ["no-store"]
    assert reply.all("Content-Security-Policy") == [POLICY]
    assert len(reply.all("Set-Cookie")) == 1
    assert reply.headers["Refresh"] == reply.headers["Retry-After"]
    assert "var queue = { full: false, minutes: " in reply.text
    assert "{{" not in reply.text
    again = visitor.get(f"/s{code}/a?b=1")
    assert again.all("Set-Cookie") == []
    assert site.room(f"s{code}")["waiting"] == 1


def test_what_was_sent_is_never_asked_for_by_get(site):
    """The page says that the form has not arrived, and leads back to the form."""
    visitor = Visitor(site.url)
    reply = visitor.post("/own/sent", b"x=1", headers={"Referer": f"{site.url}/own/form?a=1"})
    assert shown(reply, "unsent").startswith("What you sent has not arrived")
    seconds, _, address = reply.headers["Refresh"].partition("; url=")
    assert (seconds.isdigit(), address) == (True, "/_waitroom/own/?unsent=1&next=/own/form?a=1")
    again = visitor.get(address)
    assert shown(again, "unsent") == shown(reply, "unsent")
    assert 'href="/own/form?a=1"' in again.text
    assert shown(visitor.get("/own/form"), "unsent") == ""


def test_refreshing_keeps_the_place_and_lets_in(site):
    holder, first, later = (Visitor(site.url) for _ in range(3))
    assert holder.get("/turns/").json()["path"] == "/turns/"
    assert [shown(each.get("/turns/"), "position") for each in (first, later, first, later)] == [
        "1", "2", "1", "2",
    ]  # fmt: skip
    assert shown(later.get("/turns/"), "ahead") == "1"
    assert shown(later.get("/turns/"), "state") == "waiting open w"
    assert shown(first.get("/turns/"), "state") == "waiting open n"
    number = shown(later.get("/turns/"), "number")
    assert re.fullmatch(r"[0-9A-Z]{4}-[0-9A-Z]{4}", number)
    site.admin("PATCH", "/rooms/turns", {"total_active_users": 2})
    wait_until(lambda: first.get("/turns/").status == 200, "the turn")
    assert shown(later.get("/turns/"), "number") == number


def test_the_pages_own_address_has_it_too(site):
    """Where the room is set to redirect; and it leads on from there."""
    visitor = Visitor(site.url)
    address = visitor.get("/moved/x?y=1").headers["Location"]
    page = visitor.get(address)
    assert (page.status, shown(page, "position").isdigit()) == (200, True)
    assert 'href="/moved/x?y=1"' in page.text
    assert page.headers["Refresh"].isdigit()


@pytest.mark.parametrize(
    "address",
    ["/own/?a=\"'><script>alert(1)</script>", "/own/?a=${alert(1)}`", "/own/?a=\\", "/own/'\"<>"],
)
def test_nothing_of_an_address_or_a_text_is_markup(site, address):
    """In a text, in an attribute, without quotes, and in a script, with two braces and three."""
    page = Visitor(site.url).get(address).text
    assert "<title>&lt;Alpenrock&gt;</title>" in page
    text = "Back &lt;soon&gt; &amp; &quot;well&quot; &#x27;&#92;"
    assert f"{text}|{text}|{text}" in page
    places = re.search(r'href="(.*?)" data-next=\'(.*?)\' title=(.*?)>on', page)
    script = re.search(r"var next = \"(.*?)\", also = '(.*?)';</script>", page)
    assert places
    assert script
    (one,) = {*places.groups(), *script.groups()}
    assert not re.search(r"[\"'<>`${}\\ ()]", one)
    assert one.startswith("/")


def test_languages(site):
    replies = [
        Visitor(site.url, {"Accept-Language": tag}).get("/own/") for tag in ("de-CH", "ar", "sv")
    ]
    assert [shown(reply, "language") for reply in replies] == ["Hallo", "Hello", "Hello"]
    assert [re.search(r'dir="(\w+)"', reply.text)[1] for reply in replies] == ["ltr", "rtl", "ltr"]
    assert "<h1>Sie " in replies[0].text


def test_a_full_queue(site):
    Visitor(site.url).get("/packed/")
    full = Visitor(site.url).get("/packed/secret")
    assert shown(full, "state") == "full open f"
    assert full.headers["Refresh"].isdigit()
    # It may be kept for others.
    assert "secret" not in full.text


def test_a_pre_queue_and_a_paused_room(site):
    page = Visitor(site.url).get("/lots/").text
    assert re.search(r"Doors open in <b>(59 minutes|1 hour)</b>", page)
    assert "takes part in a draw" in page
    assert "not known yet" in page
    assert "Nobody is let in at the moment." in Visitor(site.url).get("/paused/").text


def test_newcomers_of_a_rush_are_led_to_a_place(site):
    """nginx answers them without a place; the page's own address gives one, to who has waited."""
    wait_until(
        lambda: "url=" in (Visitor(site.url).get("/rush/a").headers["Refresh"] or ""), "a rush"
    )
    visitor = Visitor(site.url)
    refresh = visitor.get("/rush/a?b=1").headers["Refresh"]
    seconds, address = refresh.split("; url=")
    assert (int(seconds) >= 1, address) == (True, "/_waitroom/rush/?next=/rush/a?b=1")
    page = visitor.get(address)
    assert (page.status, visitor.cookies) == (200, {})
    seconds, address = page.headers["Refresh"].split("; url=")
    assert int(seconds) > JOIN_FROM_S
    assert address.endswith("&next=/rush/a?b=1")
    time.sleep(JOIN_FROM_S)
    onward = visitor.get(address)
    assert (onward.status, onward.headers["Location"]) == (303, "/rush/a?b=1")
    assert "waitroom_rush" in visitor.cookies


def test_a_template_with_our_script_polls(site):
    """And is not loaded again meanwhile."""
    reply = Visitor(site.url).get("/scripted/a")
    assert "Refresh" not in reply.headers
    assert (reply.data("room"), reply.data("next")) == ("scripted", "/scripted/a")


def test_programs_get_their_document(site):
    reply = Visitor(site.url, {"Accept": JSON}).get("/own/")
    assert (reply.status, reply.headers["Content-Type"]) == (503, "application/problem+json")


def test_a_change_of_the_file_is_seen_at_once(site, folder):
    """A faulty one is not: the last one that could be used stays."""
    site.admin("PATCH", "/rooms/changes", {"template": "cloudflare.html"})
    visitor = Visitor(site.url)
    wait_until(lambda: "Hang on" in visitor.get("/changes/").text, "the change")
    file = folder / "cloudflare.html"
    before = file.read_text()
    file.write_text("<p>New {{#queueAll}}</p>")
    assert "Hang on" in visitor.get("/changes/").text
    file.write_text("<p>New {{queueingMethod}}</p>")
    assert visitor.get("/changes/").text == "<p>New fifo</p>"
    file.unlink()
    assert visitor.get("/changes/").text == "<p>New fifo</p>"
    file.write_text(before)
    assert "Hang on" in visitor.get("/changes/").text


def test_while_no_replica_answers_it_is_our_page(site):
    """From nginx's memory. The last test: it stops the replica."""
    visitor = Visitor(site.url)
    assert not visitor.get("/own/").waits
    site.replicas[0].stop()
    reply = visitor.get("/own/a")
    assert (reply.status, reply.waits, reply.data("next")) == (503, True, "/own/a")


@pytest.mark.parametrize("page", [b"", make_reply(404), make_reply(500)])
def test_while_a_page_cannot_be_made_it_is_ours(odd, stub, page):
    """Between the verdict and the page the replica is gone."""
    said = ("X-Waitroom-State: waiting", "X-Waitroom-Status: 202", 'X-Waitroom-Document: {"a": 1}')
    stub.reply, stub.replies = make_reply(401, *said), {"/page": page}
    reply = Visitor(odd.url).get("/a?b=1")
    assert (reply.status, reply.waits, reply.data("next")) == (202, True, "/a?b=1")
    assert reply.all("Cache-Control") == ["no-store"]
