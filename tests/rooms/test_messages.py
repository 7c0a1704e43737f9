"""An operator's message: in several languages, with an end, and as older replicas read it."""

import json

import pytest
from pydantic import ValidationError

from sidecar.kit.clock import iso
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from tests.rooms.operator_calls import ask, told
from tests.support.replica import HTML, cookie_of
from tests.support.rooms import new_room_name

TABLE = {"en": "Back at 9", "de": "Weiter um 9", "zh-CN": "九点继续"}
MINUTE_MS = 60_000


@pytest.fixture
async def site(replica):
    site = await replica()
    await site.check()
    return site


async def change(site, message, status=200, **more):
    return await ask(site, "PATCH", body={"message": message, **more}, status=status)


@pytest.fixture
async def ticket(site):
    return cookie_of(await site.check())


async def shown(site, ticket):
    """Return the message and its translations in a visitor's status document."""
    document = await (await site.status(ticket)).json()
    return document["message"], document.get("messages")


async def page(site, ticket, accept_language):
    headers = {**HTML, "Cookie": ticket, "Accept-Language": accept_language}
    return await (await site.edge.get(f"/_waitroom/{site.room.name}/", headers=headers)).text()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (7, "message: write a text, or a text by language"),
        ({}, "message: write a text, or a text by language"),
        ({"until": 5}, "message: write a text, or a text by language"),
        ({"german": "Bald"}, "message: german: write a language, such as de or pt-BR, or text"),
        ({"de": ""}, "message: de: is needed"),
        ({"de": 7}, "message: de: write a text"),
        ({"de": "x" * 501}, "message: de: must have at most 500 characters"),
        ("Bald\ud800", "message: has characters that no text has"),
        ({"de": "Bald\ud800"}, "message: de: has characters that no text has"),
        ({"\ud800": "Bald"}, r"message: \ud800: write a language, such as de or pt-BR, or text"),
        ({"de": "Bald", "until": "soon"}, "message: until: write a date and a time"),
        ({"de": "Bald", "for": "soon"}, "message: for: write a number of seconds"),
        ({"de": "Bald", "for": "0s"}, "message: write until, or for with a duration"),
        ({"de": "Bald", "for": "15m", "until": 5}, "message: write until, or for with a duration"),
    ],
)
async def test_a_faulty_message_is_refused(site, message, problem):
    """Each error names the entry that is wrong, and nothing is changed."""
    reply = await change(site, message, status=422)
    assert reply["errors"][0].startswith(problem)
    assert (await site.room.refresh()).overrides == {}


async def test_a_visitor_reads_the_message_in_their_language(site, ticket):
    """The status document has all texts. The page without JavaScript has the visitor's own, or the
    text for all others, by default the English one."""
    room = await change(site, TABLE)
    assert room["settings"]["message"] == room["changed"]["message"] == TABLE
    assert await shown(site, ticket) == ("Back at 9", TABLE)
    for wanted, text in (("de-CH,fr;q=0.9", "Weiter um 9"), ("fr", "Back at 9"),
                         ("sv;q=0.9, zh-Hant", "九点继续")):  # fmt: skip
        assert f'<p id="message" class="box" dir="auto">{text}</p>' in await page(
            site, ticket, wanted
        )
    await change(site, {"text": "9 h", "fr": "Retour à 9 h"})
    assert await shown(site, ticket) == ("9 h", {"fr": "Retour à 9 h"})
    await change(site, "Soon")
    assert await shown(site, ticket) == ("Soon", None)


async def test_a_message_ends_by_itself(site, ticket):
    """After the time that the operator chose, visitors no longer see it. The setting stays, so that
    the dashboard can say that it has ended."""
    room = await change(site, {"text": "Back soon", "for": "15m"})
    until = site.turn.now_ms + 15 * MINUTE_MS
    assert room["settings"]["message"] == {"text": "Back soon", "until": until}
    assert await shown(site, ticket) == ("Back soon", None)
    for _ in range(14):
        site.turn.forward(60)
        await site.status(ticket)
    site.turn.forward(59)
    assert await shown(site, ticket) == ("Back soon", None)
    site.turn.forward(1)
    assert await shown(site, ticket) == (None, None)
    assert "Back soon" not in await page(site, ticket, "en")
    await change(site, {"text": "Late", "until": iso(site.turn.now_ms + MINUTE_MS)})
    assert await shown(site, ticket) == ("Late", None)


async def test_a_message_with_a_length_has_a_forecast(site):
    """As every change that is allowed."""
    await ask(site, "POST", "/forecast", {"message": {"de": "Bald", "for": "15m"}})


async def test_an_events_message_has_languages_too(replica):
    event = {"name": "sale", "opens_at": 0, "message": TABLE}
    site = await replica(events=[event], message="Hello")
    await site.check()
    assert await shown(site, cookie_of(await site.check())) == ("Back at 9", TABLE)


@pytest.mark.parametrize("message", [{"for": "15m"}, {"de": "Bald", "for": "15m"}])
def test_a_message_in_a_file_has_no_length(message):
    """Nothing says when it began. `for` is no language either, with "15m" as its text."""
    event = {"name": "sale", "opens_at": 0, "message": message}
    for values in ({"message": message}, {"events": [event]}):
        with pytest.raises(ValidationError, match="for: only a change of the room's message may"):
            RoomSettings(total_active_users=1, **values)


def test_a_file_has_them_as_a_table():
    """As in waitroom.toml, and as JSON of the settings in force."""
    settings = RoomSettings(total_active_users=1, message={**TABLE, "until": "2027-01-15 09:00"})
    assert settings.message == {**TABLE, "until": 1_800_003_600_000}
    assert RoomSettings.model_validate(settings.model_dump()) == settings


async def test_older_replicas_read_the_text(redis, make_room_store):
    """In Redis, `message` is always a text, as 0.1.0 stores and reads it. A text that 0.1.0 wrote
    since replaces a table, also for new replicas."""
    room = new_room_name()
    store = make_room_store(room=room)
    await store.configure({"message": TABLE})
    config = room_key(room, "config")
    assert json.loads(await redis.hget(config, "message")) == "Back at 9"
    assert (await store.snapshot()).overrides == {"message": TABLE}
    # As the script of 0.1.0 changes a message.
    await redis.hset(config, "message", json.dumps("Now at 10"))
    assert (await store.snapshot()).overrides == {"message": "Now at 10"}
    await redis.hdel(config, "message")
    assert (await store.snapshot()).overrides == {}
    await store.configure({"message": TABLE})
    await store.configure({"message": "Soon"})
    assert (await store.snapshot()).overrides == {"message": "Soon"}
    assert await redis.hkeys(room_key(room, "look")) == []


async def test_an_emptied_store_is_reminded_of_a_table(make_room_store):
    store = make_room_store()
    await store.restore_lost_data({}, {"message": TABLE}, epoch=0)
    assert (await store.snapshot()).overrides == {"message": TABLE}


async def test_a_change_of_languages_is_undone(site):
    """The log has the message as it was set, and an undo restores it as it was."""
    await change(site, "Soon")
    first = await change(site, TABLE, total_active_users=2)
    room = await ask(site, "POST", "/undo", {"revision": first["change"]})
    assert room["changed"] == {"message": "Soon"}
    second = await change(site, TABLE)
    third = await change(site, None)
    entries = (await told(site, "/log"))["log"]
    assert [entry["changes"]["message"] for entry in entries[:3]] == [
        {"from": TABLE, "to": None},
        {"from": "Soon", "to": TABLE},
        {"from": TABLE, "to": "Soon"},
    ]
    room = await ask(site, "POST", "/undo", {"revision": third["change"]})
    assert room["changed"] == {"message": TABLE}
    # The same text with another translation is another message.
    await change(site, {**TABLE, "de": "Um 9 Uhr"})
    problem = await ask(site, "POST", "/undo", {"revision": second["change"]}, status=409)
    assert "changed message at" in problem["detail"]


async def test_a_long_message_in_other_letters_is_undone(site):
    """Redis has the default text twice, and six bytes for a letter."""
    await change(site, {"text": "Я" * 150, "zh-CN": "九" * 120})
    revision = (await change(site, None))["change"]
    room = await ask(site, "POST", "/undo", {"revision": revision})
    assert room["changed"]["message"]["zh-CN"] == "九" * 120


async def test_resume_takes_the_message_away(site):
    """In one change, which one undo takes back."""
    await ask(site, "POST", "/pause")
    await change(site, "We are looking into it")
    room = await ask(site, "POST", "/resume?clear_message=true")
    assert (room["mode"], room["changed"]) == ("running", {})
    room = await ask(site, "POST", "/undo", {"revision": room["change"]})
    assert room["changed"] == {"queue_all": True, "message": "We are looking into it"}
    assert (await ask(site, "POST", "/resume"))["changed"] == {"message": "We are looking into it"}
