"""A visitor's class: what nginx says, what a grant says, and the call that makes grants."""

import pytest

from sidecar.gate.visitor_request import VisitorRequest
from sidecar.rooms.bearer import NOBODY
from sidecar.rooms.metrics import RoomMetrics
from sidecar.visitors.grants import Grant, Grants
from tests.rooms.operator_calls import ask

GRANT_KEY = "g" * 32
CLASSES = {"vip": {"head_start": 300}, "partner": {"priority": 1}}


def bearer_of(site, uri, class_name="", *, is_from_nginx=True):
    """Return the client of a request with this class in nginx's header."""
    headers = {"X-Waitroom-Class": class_name}
    request = VisitorRequest(headers, "GET", uri=uri, is_from_nginx=is_from_nginx)
    return request.get_bearer(site.room, may_join=True)


@pytest.fixture
def hall(replica):
    """Return a function that makes a replica with classes and grant keys."""

    async def make(**settings):
        site = await replica(**{"classes": CLASSES, **settings})
        site.room.grants = Grants(site.room.name, [GRANT_KEY])
        return site

    return make


def signed(site, class_name="vip", *, room=None, life_s=60, id_="", key=GRANT_KEY) -> str:
    ends_s = site.turn.now_ms // 1000 + life_s
    return Grants(room or site.room.name, [key]).sign(Grant(class_name, ends_s, id_))


def counts(site) -> dict[str, float]:
    """Return how many grants were counted, by result."""
    samples = site.metrics.of(RoomMetrics).grants.collect()[0].samples
    return {each.labels["result"]: each.value for each in samples if each.labels["room"]}


# Who is of a class -------------------------------------------------------------------------------


async def test_a_grant_gives_its_class(hall):
    """The grant in the requested URL counts."""
    site = await hall()
    text = signed(site, id_="order-17")
    for way in ("/sale?a=b&", "/_waitroom/x/?next=/sale?"):
        bearer = bearer_of(site, (f"{way}waitroom_grant={text}"))
        assert (bearer.grant.class_name, bearer.grant.id) == ("vip", "order-17")
        assert (bearer.grant_result, bearer.class_name) == ("believed", "")


async def test_nginxs_word_goes_before_a_grant(hall):
    """With a class from nginx no grant is read, and an unknown class from nginx is no class."""
    site = await hall(class_header=True)
    asked = f"/?waitroom_grant={signed(site)}"
    bearer = bearer_of(site, asked, "partner")
    assert (bearer.class_name, bearer.grant, bearer.grant_result) == ("partner", None, "")
    for said in ("gold", "VIP", "vip ", "", "\xff"):
        bearer = bearer_of(site, asked, said)
        assert (bearer.class_name, bearer.grant.class_name) == ("", "vip")


async def test_nginxs_word_counts_where_the_room_says_so(hall):
    """Without the setting, another proxy could pass on a header of the visitor."""
    assert bearer_of(await hall(), "", "vip") is NOBODY


async def test_who_brings_no_class(hall):
    """A request without a class reads no grant."""
    site = await hall(class_header=True)
    assert bearer_of(site, "/sale?a=b", "vip", is_from_nginx=False) is NOBODY


async def test_a_room_without_classes_never_looks(hall):
    """Such a room neither reads nor counts grants."""
    site = await hall(classes={}, class_header=True)
    asked = f"/?waitroom_grant={signed(site)}"
    assert bearer_of(site, asked, "vip") is NOBODY
    await site.check(headers={"X-Original-URI": asked, "X-Waitroom-Class": "vip"})
    assert counts(site) == {}


# What is counted ---------------------------------------------------------------------------------


async def test_each_grant_is_counted(hall):
    """Grants are counted by result. A visitor with an invalid grant is treated as one without a
    grant."""
    site = await hall(total_active_users=100)
    texts = {
        "believed": signed(site),
        "forged": signed(site, room="another"),
        "expired": signed(site, life_s=0),
        "malformed": "vip.é\\",
        "unknown_class": signed(site, "gold"),
    }
    for number, (result, text) in enumerate(texts.items(), start=1):
        reply = await site.check(headers={"X-Original-URI": f"/?waitroom_grant={text}"})
        assert reply.status == 204
        assert len(counts(site)) == number
        assert counts(site)[result] == 1
    assert (await site.check(headers={"X-Original-URI": "/"})).status == 204
    assert sum(counts(site).values()) == len(texts)


async def test_only_nginx_says_a_class(hall, monkeypatch):
    """At /check only nginx's header gives a class."""
    site = await hall(class_header=True)
    seen = []
    check = type(site.room).check

    async def spy(room, token, **options):
        seen.append(options["bearer"])
        return await check(room, token, **options)

    monkeypatch.setattr(type(site.room), "check", spy)
    await site.check(headers={"X-Waitroom-Class": "vip"})
    await site.check(headers={"X-Original-URI": f"/?waitroom_grant={signed(site, id_='a')}"})
    for headers in (
        {"X-Original-URI": "/?class=vip&waitroom_class=vip"},
        {"Cookie": f"waitroom_grant={signed(site)}"},
        {"Referer": f"https://shop.example/?waitroom_grant={signed(site)}"},
    ):
        await site.check(headers=headers)
    assert [bearer.class_name for bearer in seen] == ["vip", "", "", "", ""]
    assert [bearer.grant and bearer.grant.id for bearer in seen] == [None, "a", None, None, None]


# The call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "count", "life_s"),
    [
        ({"class": "vip"}, 1, 86_400),
        ({"class": "vip", "expires_in": "2h", "once": False, "count": 1.0}, 1, 7200),
        ({"class": "vip", "expires_in": 90.5, "once": True}, 1, 91),
        ({"class": "vip", "once": True, "count": 1000}, 1000, 86_400),
    ],
)
async def test_grants_are_made(hall, body, count, life_s):
    """The room accepts each issued grant."""
    site = await hall()
    told = await ask(site, "POST", "/grants", body)
    assert (told["room"], told["class"]) == (site.room.name, "vip")
    made = [site.room.grants.read(text, site.turn.now_ms) for text in told["grants"]]
    assert {(each.class_name, each.expires_s) for each in made} == {
        ("vip", site.turn.now_ms // 1000 + life_s)
    }
    ids = {each.id for each in made}
    assert (len(ids), "" in ids) == (count, not body.get("once"))
    assert told["expires_at"].startswith("2027-01-15T" if life_s < 86_400 else "2027-01-16T")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "class: is needed"),
        ({"class": 5}, "class: is needed"),
        ({"class": "vip", "expires_in": "soon"}, "expires_in: write a number of seconds, or text"),
        ({"class": "vip", "expires_in": True}, "expires_in: write a number of seconds, or text"),
        ({"class": "vip", "expires_in": None}, "expires_in: write a number of seconds, or text"),
        ({"class": "vip", "expires_in": [1]}, "expires_in: write a number of seconds, or text"),
        ({"class": "vip", "expires_in": 0}, "a grant ends after now, and within 366 days"),
        ({"class": "vip", "expires_in": float("nan")}, "the number NaN, which JSON cannot hold"),
        ({"class": "vip", "expires_in": 10**400}, "a grant ends after now, and within 366 days"),
        ({"class": "vip", "expires_in": "367d"}, "a grant ends after now, and within 366 days"),
        ({"class": "vip", "count": 0, "once": True}, "count: a whole number from 1 to 1000"),
        ({"class": "vip", "count": 1001, "once": True}, "count: a whole number from 1 to 1000"),
        ({"class": "vip", "count": True}, "count: a whole number from 1 to 1000"),
        ({"class": "vip", "count": 1.5, "once": True}, "count: a whole number from 1 to 1000"),
        ({"class": "vip", "count": 2}, "count: all would be the same; say once too"),
        ({"class": "vip", "once": "yes"}, "once: true or false"),
        ({"class": "vip", "id": "a"}, "id: unknown member"),
        ([], "the body must be a JSON object"),
    ],
)
async def test_what_is_wrong_is_said(hall, body, said):
    """An invalid request gets a 422 and no grant."""
    problem = await ask(await hall(), "POST", "/grants", body, status=422)
    assert said in "\n".join(problem["errors"])


async def test_who_is_unknown(hall, replica):
    """An unknown class is refused, also in a room without classes."""
    site = await hall()
    problem = await ask(site, "POST", "/grants", {"class": "\ud800"}, status=404)
    assert problem["detail"] == f"The classes of {site.room.name}: vip, partner."
    problem = await ask(await replica(), "POST", "/grants", {"class": "vip"}, status=404)
    assert problem["detail"].endswith(": it has none.")
