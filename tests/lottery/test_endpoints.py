"""The endpoints of a draw: the commitment before, the secret and the places after."""

import asyncio
import functools
import json
import random
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from openapi_schema_validator import OAS31Validator

from sidecar.app.openapi.document import build_document
from sidecar.cli import main
from sidecar.lottery.commitment import (
    PublishedDraw,
    compute_commitment,
    compute_lot,
    derive_secret,
    sort_by_lot,
    verify,
)
from sidecar.lottery.service import Draws
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.redis_keys import room_key
from tests.support.draws import HOUR_MS, START_MS, make_event, make_ids
from tests.support.replica import HTML, KEYS, cookie_of
from tests.support.site import ROOT

PLAIN = RoomEvent(name="plain", opens_at=START_MS + 9 * HOUR_MS)


class Stage:
    """A room with events, and requests about its draw."""

    def __init__(self, site) -> None:
        self.site, self.room, self.turn = site, site.room, site.turn
        self.redis = site.room.store._redis
        self.path = f"/_waitroom/{self.room.name}/draw"

    async def get(self, what: str = "", **headers: str):
        return await self.site.edge.get(f"{self.path}{what}", headers=headers)

    async def draw(self, what: str = "") -> dict:
        reply = await self.get(what)
        assert (reply.status, reply.headers["Cache-Control"]) == (200, "no-store")
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        return is_as_described("/_waitroom/{room}/draw", await reply.json())

    async def places(self, what: str = "") -> dict:
        reply = await self.get(f"/places{what}")
        assert (reply.status, reply.headers["Cache-Control"]) == (200, "public, max-age=30")
        return is_as_described("/_waitroom/{room}/draw/places", await reply.json())

    async def at(self, ms: int) -> None:
        self.turn.now_ms = ms
        await self.room.refresh()

    def secret(self, event: RoomEvent) -> str:
        return derive_secret(KEYS[0], self.room.name, event)

    async def fill(self, event: RoomEvent, count: int) -> list[str]:
        """Fill the list as a pre-queue does. Return the ids in the order of their lots."""
        secret, ids = self.secret(event), make_ids(random.Random(event.name), count)
        key = room_key(self.room.name, "drawn")
        await self.redis.delete(key)
        await self.redis.zadd(key, {one: compute_lot(secret, one) - 2**53 for one in ids})
        stats = room_key(self.room.name, "stats")
        await self.redis.hset(stats, "drawn_from", event.begins_ms)
        await self.room.refresh()
        return sort_by_lot(secret, ids)


@pytest.fixture
def stage(replica):
    """Return a function that makes a room with these events, an hour before the first."""

    async def make(*events: RoomEvent, **settings) -> Stage:
        stage = Stage(await replica(events=events, **settings))
        stage.room.draws = Draws(stage.room.name, KEYS, stage.room.draws.store)
        await stage.at(START_MS - HOUR_MS)
        return stage

    return make


build_openapi = functools.cache(build_document)


def is_as_described(path: str, document: dict) -> dict:
    """Check a document against its OpenAPI schema, and return it."""
    whole = build_openapi()
    reply = whole["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    schema = {**reply["schema"], "components": whole["components"]}
    errors = [error.message for error in OAS31Validator(schema).iter_errors(document)]
    assert errors == []
    return document


def find_faults(draw: dict, places: list, **noted: str) -> list[str]:
    """Verify a draw with its places, and return what is wrong."""
    checks = verify(PublishedDraw(**draw), [tuple(row) for row in places], **noted)
    return [check.explanation for check in checks if not check.is_passed]


async def test_before_the_opening_there_is_the_commitment_alone(stage):
    """Until 3 s after the opening only the commitment is public, and it stays the same. A request
    for the list says when it is published."""
    event = make_event()
    room = await stage(event)
    said = []
    for ms in (START_MS - HOUR_MS, START_MS, event.opens_at, event.opens_at + 2999):
        await room.at(ms)
        document = await room.draw()
        hidden = ("secret", "count", "places_sha256", "places_url")
        assert [document[name] for name in hidden] == [None] * 4
        said.append(document["commitment"])
        refused = await room.get("/places")
        assert (refused.status, refused.content_type) == (404, "application/problem+json")
        assert document["revealed_at"] in (await refused.json())["detail"]
    assert document["revealed_at"] == "2027-01-15T09:00:03.000+00:00"
    assert set(said) == {compute_commitment(room.secret(event))}
    assert document["event"] == "autumn"


async def test_who_waits_has_the_place_that_was_drawn(stage):
    """Positions after the opening are those of the list, and unknown before. Latecomers are not in
    the list. Every check of the list passes."""
    event = make_event(opens_at=START_MS + 20_000)
    room = await stage(event, total_active_users=0)
    await room.at(START_MS)
    commitment = (await room.draw())["commitment"]
    cookies = {}
    for _ in range(30):
        reply = await room.site.edge.post(room.path.replace("/draw", "/join"))
        document = await reply.json()
        assert (document["state"], document["position"]) == ("waiting", None)
        cookies[document["visitor"]] = cookie_of(reply)
    await room.at(event.opens_at + 3000)
    late = await (await room.site.edge.post(room.path.replace("/draw", "/join"))).json()
    draw, places = await room.draw(), (await room.places())["places"]
    assert find_faults(draw, places, commitment=commitment) == []
    assert {visitor for visitor, _ in places} == set(cookies)
    for visitor, place in places:
        document = await (await room.site.status(cookies[visitor])).json()
        assert (document["visitor"], document["position"]) == (visitor, place)
    assert late["position"] == 31


async def test_the_secret_is_not_told_by_the_machines_clock(stage):
    """Until Redis' time is known the secret is not published."""
    event = make_event()
    room = await stage(event)
    room.turn.now_ms = event.opens_at + HOUR_MS
    room.room.snapshot = None
    assert (await room.draw())["secret"] is None
    assert (await room.get("/places")).status == 404


async def test_the_list_comes_in_pages(stage):
    """The list has pages from any place on, with `next`; wrong numbers are refused."""
    event = make_event()
    room = await stage(event)
    order = await room.fill(event, 25)
    await room.at(event.opens_at + 3000)
    found, offset = [], 0
    while offset is not None:
        page = await room.places(f"?after={offset}&limit=10")
        assert len(page["places"]) <= 10
        found += page["places"]
        offset = page["next"]
    assert found == [[visitor, place] for place, visitor in enumerate(order, 1)]
    whole = await room.places()
    assert (whole["places"], whole["next"]) == (found, None)
    assert (await room.places("?after=99"))["places"] == []
    assert (await room.places("?limit=0"))["next"] is None
    for odd in ("limit=10001", "limit=-1", "after=x", "after=" + "9" * 5000, "after=1.5"):
        reply = await room.get(f"/places?{odd}")
        assert (reply.status, reply.content_type) == (422, "application/problem+json")
        assert odd.partition("=")[0] in (await reply.json())["errors"][0]


async def test_a_list_from_which_a_store_was_emptied_is_said_to_be_one(stage):
    """After Redis was emptied no SHA-256 is published until places are back, and then one of the
    visitors who came back."""
    event = make_event()
    room = await stage(event)
    await room.at(START_MS)
    await room.fill(event, 9)
    await room.at(event.opens_at + 3000)
    assert (await room.draw())["count"] == 9
    await room.redis.delete(
        *[room_key(room.room.name, name) for name in ("drawn", "draws", "stats")]
    )
    await room.at(event.opens_at + 9000)
    document = await room.draw()
    assert (document["count"], document["places_sha256"]) == (None, None)
    assert document["store_emptied_at"] == "2027-01-15T09:00:09.000+00:00"
    assert document["commitment"] == compute_commitment(room.secret(event))
    await room.fill(event, 8)
    await room.at(event.opens_at + HOUR_MS // 2)
    document = await room.draw()
    assert document["count"] == 8
    assert document["store_emptied_at"] == "2027-01-15T09:00:09.000+00:00"


async def test_each_draw_can_be_asked_for(stage):
    """A draw is found by its event's name, by default by the time. Its list is kept until the first
    visitor of the next pre-queue, and its SHA-256 longer."""
    first, second = make_event("one"), make_event("two", START_MS + 20 * HOUR_MS)
    room = await stage(second, PLAIN, first)
    await room.fill(first, 3)
    await room.at(START_MS + 3 * HOUR_MS)
    document = await room.draw()
    assert (document["event"], document["events"]) == ("two", ["one", "two"])
    assert document["secret"] is None
    of_first = await room.draw("?event=one")
    assert (of_first["secret"], of_first["count"]) == (room.secret(first), 3)
    assert len((await room.places("?event=one"))["places"]) == 3
    await room.at(second.opens_at + 3000)  # and nobody came
    assert [(await room.draw())["count"], (await room.places())["places"]] == [0, []]
    await room.fill(second, 2)
    of_first = await room.draw("?event=one")
    assert (of_first["count"], of_first["places_url"]) == (3, None)
    gone = await room.get("/places?event=one")
    assert (gone.status, (await gone.json())["title"]) == (404, "The list is no longer kept")
    for odd in ("nope", "plain", "", "%00", "%ED%A0%80"):
        assert (await room.get(f"?event={odd}")).status == 404


async def test_a_room_without_a_pre_queue_has_no_draw(stage):
    """Without a pre-queue both endpoints are a 404, as for an unknown room."""
    room = await stage(PLAIN)
    for path in (room.path, f"{room.path}/places", "/_waitroom/nope/draw"):
        reply = await room.site.edge.get(path)
        assert (reply.status, reply.content_type) == (404, "application/problem+json")


async def test_no_commitment_is_told_that_might_be_taken_back(stage):
    """Until the published commitment is known the draw is a 503."""
    event = make_event()
    room = await stage(event)
    room.room.draws = Draws(room.room.name, KEYS, room.room.draws.store)
    reply = await room.get()
    assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
    await room.room.refresh()
    assert (await room.draw())["commitment"] == compute_commitment(room.secret(event))


async def test_a_browser_gets_the_page(stage):
    """A browser gets a page with a Content-Security-Policy, and without inline scripts."""
    room = await stage(make_event())
    reply = await room.get(**HTML)
    text = await reply.text()
    assert (reply.status, reply.content_type) == (200, "text/html")
    assert "script-src 'self'" in reply.headers["Content-Security-Policy"]
    assert re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL) == [""]
    assert not re.search(r"\son\w+=|style=|<style", text)
    for name in re.findall(r'"(/_waitroom/static/[^"]+)"', text):
        assert (await room.site.edge.get(name)).status == 200


async def test_the_command_understands_what_is_published(stage):
    """`waitroom verify-draw` reads the draw of a real room."""
    event = make_event()
    room = await stage(event)
    order = await room.fill(event, 1500)
    await room.at(event.opens_at + 3000)
    words = [str(room.site.edge.make_url(room.path)), "--visitor", order[1233]]
    done = await asyncio.to_thread(CliRunner().invoke, main, ["verify-draw", *words])
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{order[1233]} has place 1234 of 1500" in done.stdout


# docs/draw.md -------------------------------------------------------------------------------------


async def test_the_check_that_the_docs_show_checks(stage, tmp_path):
    """The code of docs/draw.md accepts a right list, and refuses one with two swapped places."""
    event = make_event()
    room = await stage(event)
    await room.fill(event, 300)
    await room.at(event.opens_at + 3000)
    text = (ROOT / "docs" / "draw.md").read_text(encoding="utf-8")
    shell = re.search(r"```sh\n(curl -fo .*?)```", text, re.DOTALL)[1]
    python = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    assert len([line for line in python.splitlines() if line]) <= 14
    site = str(room.site.edge.make_url("/")).rstrip("/")
    shell = shell.replace("https://www.example.com/_waitroom/shop/draw", f"{site}{room.path}")
    assert site in shell
    (tmp_path / "check.py").write_text(python)
    done, out = await run("sh", "-ec", shell, folder=tmp_path)
    assert done == 0, out
    done, out = await run(sys.executable, "check.py", folder=tmp_path)
    assert (done, "300 places" in out) == (0, True), out
    file = min(tmp_path.glob("places-*.json"))
    page = json.loads(file.read_text())
    rows = page["places"]
    rows[4][0], rows[5][0] = rows[5][0], rows[4][0]
    file.write_text(json.dumps(page))
    done, out = await run(sys.executable, "check.py", folder=tmp_path)
    assert (done, "AssertionError" in out) == (1, True), out


async def run(*command: str, folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, out.decode()
