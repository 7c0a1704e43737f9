"""The page without JavaScript: it asks again, lets in, lets leave, in the visitor's language."""

import html
import json
import os
import re
import signal

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.gate.page.languages import Languages
from tests.support.events import make_opening_event
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import ROOT, Site, gated

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def opening(**hours):
    return json.dumps([make_opening_event(**hours)])


ROOMS = {
    "full": {"total_active_users": 0, "message": "Back <soon> & well"},
    "tongues": {"total_active_users": 0},
    "crowded": {"total_active_users": 0, "max_waiting": 1},
    "held": {"total_active_users": 1, "queue_all": True},
    "shut": {"total_active_users": 0, "queueing_method": "reject"},
    "bounded": {"total_active_users": 0, "rank_limit": 1},
    "soon": {"total_active_users": 1, "events": opening(hours=48)},
    "lots": {"total_active_users": 0, "events": opening(hours=1, prequeue_hours=2)},
    "later": {"total_active_users": 0, "events": opening(hours=48, prequeue_hours=1)},
}
SITE = {"rooms": ROOMS, "locations": "".join(gated(f"/{room}/", room=room) for room in ROOMS)}


def refresh(reply):
    """Return seconds and address of the page's <meta> refresh, which works without scripts."""
    inside = re.search(r"<noscript>(.*?)</noscript>", reply.text, re.DOTALL)
    assert inside
    found = re.search(r'http-equiv="refresh" content="(\d+); url=([^"]*)"', inside[1])
    assert found
    return int(found[1]), found[2].replace("&amp;", "&")


def shown(reply, name):
    found = re.search(rf'<dd id="{name}">([^<]*)</dd>', reply.text)
    assert found
    return found[1]


def test_the_page_in_place_leads_to_the_page_with_numbers(site):
    """At once, and with the address that was asked for."""
    visitor = Visitor(site.url)
    seconds, address = refresh(visitor.get("/full/a?b=1&c=2"))
    assert (seconds, address) == (0, "/_waitroom/full/?next=/full/a?b=1&c=2")
    page = visitor.get(address)
    assert page.status == 200
    status = visitor.get("/_waitroom/full/status").json()
    assert shown(page, "ahead") == str(status["ahead"])
    assert shown(page, "waiting") == str(status["waiting"])
    assert "Back &lt;soon&gt; &amp; well" in page.text
    seconds, again = refresh(page)
    assert (seconds >= 1, again) == (True, address)


def test_leaving_by_the_form(site):
    """The place is given up, the page says so and offers to join again; that takes a new one."""
    visitor = Visitor(site.url)
    visitor.get("/full/")
    before = site.room("full")["waiting"]
    left = visitor.post("/_waitroom/full/leave", b"next=%2Ffull%2Fx%3Fa%3D1", headers=FORM)
    assert (left.status, left.data("state"), left.data("next")) == (
        200,
        "not_queued",
        "/full/x?a=1",
    )
    assert left.headers["Cache-Control"] == "no-store"
    assert site.room("full")["waiting"] == before - 1
    assert 'formaction="/_waitroom/full/join"' in left.text
    again = visitor.post("/_waitroom/full/join", b"next=%2Ffull%2Fx%3Fa%3D1", headers=FORM)
    assert (again.data("state"), again.data("next")) == ("waiting", "/full/x?a=1")
    assert site.room("full")["waiting"] == before


#: For each room, the texts of the heading and of the paragraph below it in nginx's page.
FIRST_TEXTS = {
    "crowded": ("full", "stay"),
    "held": ("heading", "intro"),
    "shut": ("closed", "closed_intro"),
    "soon": ("not_open", "opens_intro"),
    "later": ("not_open", "opens_draw"),
    "lots": ("prequeue", "opens_intro"),
    "full": ("heading", "intro"),
}


@pytest.mark.parametrize("room", FIRST_TEXTS)
def test_nginx_serves_the_texts_of_the_state(site, room):
    """nginx's page has the heading of the state that it serves, and all of its texts are in the
    visitor's language."""
    Visitor(site.url).get(f"/{room}/")  # is ahead of the others, where there are places
    for tag in ("en", "ar", "zh-TW"):
        texts = Languages(ROOT / "static").texts(tag)
        page = Visitor(site.url, {"Accept-Language": f"xx,{tag};q=0.9"}).get(f"/{room}/")
        assert page.status == 503
        assert f'<html lang="{tag}" dir="{"rtl" if tag == "ar" else "ltr"}"' in page.text
        heading, intro = (html.escape(texts[key]) for key in FIRST_TEXTS[room])
        assert (
            f'<h1 id="heading" tabindex="-1">{heading}</h1>\n<p id="intro">{intro}</p>' in page.text
        )
        paused = html.escape(texts["paused"]) if room == "held" else ""
        assert f'<p id="paused" class="box">{paused}</p>' in page.text
        for key in ("ahead", "waiting", "wait", "leave", "leave_sure", "offline_new", "join"):
            assert f">{html.escape(texts[key])}<" in page.text


def test_nginx_chooses_the_language_as_a_replica_does(site):
    """nginx and replicas choose the same language by Accept-Language."""
    languages = Languages(ROOT / "static")
    for accepted in (
        "de-AT,de;q=0.9,en;q=0.8", "xx-YY, DE;q=0.5", "pt-BR", "zh", "zh-SG", "zh-TW",
        "zh-Hant-HK;q=0.8", "ZH-hk,en", "zh-Hans-CN", "den,ja", "xx", "*", "", None, ";;,=q",
        "en-GB,de", "a" * 3000, "x-de,ko", ",fr",
    ):  # fmt: skip
        page = Visitor(site.url, {"Accept-Language": accepted}).get("/tongues/")
        assert f'<html lang="{languages.choose(accepted)}"' in page.text, accepted


def test_the_page_is_safe_to_show(site):
    """Never cached, never framed, no script but its own; nginx's page has the same policy."""
    reply = Visitor(site.url).get("/_waitroom/full/?next=/full/")
    assert reply.headers["Cache-Control"] == "no-store"
    policy = reply.headers["Content-Security-Policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ):
        assert rule in policy
    for each in (reply, Visitor(site.url).get("/full/")):
        assert each.all("Content-Security-Policy") == [policy]


def test_a_page_of_ones_own(tmp_path):
    """Longer than nginx takes at once, with all that nginx's own language knows."""
    odd = r"""It's "ours": 5 $ in $waitroom_room, a\b\n, {braces}; naïve <!-- not --> é"""
    page = (ROOT / "static" / "waiting.html").read_text(encoding="utf-8")
    line = f"<p>{odd}</p>\n"
    file = tmp_path / "waiting.html"
    file.write_text(page.replace("<dl>\n", "<dl>\n" + line * 100), encoding="utf-8")
    made = CliRunner().invoke(main, ["page", str(file)])
    assert made.exit_code == 0
    with Site(rooms={"shop": {"total_active_users": 0}}) as site:
        shipped = Visitor(site.url).get("/?a=<b>")
        (site.folder / "waitroom" / "waiting.conf").write_text(made.output, encoding="utf-8")
        os.kill(site.nginx.pid, signal.SIGHUP)
        pages = []  # the old worker may still answer after the new one did

        def is_new():
            pages.append(Visitor(site.url).get("/?a=<b>"))
            return "ours" in pages[-1].text

        wait_until(is_new, "the new page")
        shown = pages[-1]
    assert shown.text.count(line.replace("$", "&#36;")) == 100
    assert shown.data("next") == "/?a=&lt;b&gt;"
    assert shown.text.split('<div id="time">')[1] == shipped.text.split('<div id="time">')[1]


def test_a_position_that_is_not_told_is_told_nowhere(site):
    """Above the rank limit, and in a pre-queue: not in place, not by the page, not to programs."""
    first = Visitor(site.url)
    assert shown(first.get(refresh(first.get("/bounded/"))[1]), "ahead") == "0"
    for room, text in (("bounded", "1+"), ("lots", "")):
        visitor = Visitor(site.url)
        denied = visitor.get(f"/{room}/")
        assert shown(visitor.get(refresh(denied)[1]), "ahead") == text
        problem = Visitor(site.url, {"Accept": JSON}).get(f"/{room}/").json()
        assert (problem["state"], problem["position"]) == ("waiting", None)
