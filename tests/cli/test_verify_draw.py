"""`waitroom verify-draw`, run as its user runs it, against what a room publishes."""

import asyncio
import hashlib
import random

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.cli import verify_draw as commands
from sidecar.lottery.commitment import compute_commitment, format_list, sort_by_lot
from tests.support.draws import make_ids, with_places
from tests.support.processes import run_command

SECRET = "5e" * 32
PATH = "/_waitroom/shop/draw"


class FakeRoom:
    """A room that publishes a draw of these ids; tests change what they like."""

    def __init__(self, ids: list[str]) -> None:
        self.order = sort_by_lot(SECRET, ids)
        self.places = [list(row) for row in with_places(self.order)]
        self.status = 200
        self.leads_to = ""
        self.is_endless = False
        self.pages = 0
        self.draw = {
            "room": "shop", "event": "autumn", "events": ["autumn"],
            "prequeue_from": "2027-01-15T08:00:00.000+00:00",
            "opens_at": "2027-01-15T09:00:00.000+00:00",
            "revealed_at": "2027-01-15T09:00:03.000+00:00",
            "updated_at": "2027-01-15T09:30:00.000+00:00",
            "commitment": compute_commitment(SECRET), "secret": SECRET, "count": len(ids),
            "places_sha256": hashlib.sha256(format_list(self.order)).hexdigest(),
            "places_url": f"{PATH}/places?event=autumn", "store_emptied_at": None,
        }  # fmt: skip

    async def show(self, request: web.Request) -> web.Response:
        assert "text/html" not in request.headers.get("Accept", "")
        if self.leads_to:
            raise web.HTTPFound(self.leads_to)
        return web.json_response(self.draw, status=self.status)

    async def page(self, request: web.Request) -> web.Response:
        """At most 100 places, as a room lists them."""
        offset, limit = int(request.query["after"]), min(100, int(request.query["limit"]))
        self.pages += 1
        rows = self.places[:limit] if self.is_endless else self.places[offset : offset + limit]
        following = offset + limit if len(rows) == limit else None
        return web.json_response({"places": rows, "next": following})


@pytest.fixture
async def room():
    room = FakeRoom(make_ids(random.Random(1), 250))
    app = web.Application()
    app.add_routes([web.get(PATH, room.show), web.get(f"{PATH}/places", room.page)])
    async with TestServer(app) as server:
        room.url = str(server.make_url(PATH))
        yield room


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `verify-draw` in a thread of this process; return its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    async def run(*words: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(CliRunner().invoke, main, ["verify-draw", *words])
        return done.exit_code, done.stdout, done.stderr

    return run


async def test_it_needs_no_settings(room, tmp_path):
    """The command verifies a draw in a folder without settings."""
    words = ["verify-draw", room.url, "--commitment", room.draw["commitment"]]
    done = await asyncio.to_thread(run_command, *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nright  ") == 7


async def test_a_draw_is_read_from_its_address_and_from_a_file(room, run, tmp_path):
    """All pages are read, each check has a line, and a saved file gives the same result."""
    code, out, err = await run(room.url, "--save", "autumn.json")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"shop, autumn: 250 places, commitment {room.draw['commitment']}"
    said = [line.split()[:2] for line in lines[1:]]
    whats = ["secret", "ids", "places", "lots", "count", "list"]
    assert said == [*(["right", what] for what in whats), ["note", "commitment"]]
    noted = ["--commitment", room.draw["commitment"], "--digest", room.draw["places_sha256"]]
    code, out, _ = await run("autumn.json", *noted, "--visitor", room.order[16])
    assert (code, "\nnote " in out, "WRONG" in out) == (0, False, False)
    assert f"right  visitor     {room.order[16]} has place 17 of 250" in out


async def test_the_first_wrong_place_is_named(room, run):
    """The first wrong place is named, and the exit code is 1."""
    room.places[29][0], room.places[30][0] = room.places[30][0], room.places[29][0]
    code, out, _ = await run(room.url)
    assert code == 1
    said = f"place 30 is listed as {room.order[30]}'s; by the lots it is {room.order[29]}'s"
    assert f"WRONG  lots        {said}" in out


async def test_what_was_noted_is_compared(room, run):
    """A noted commitment or digest reveals a list that was replaced as a whole."""
    for noted in ("--commitment", "--digest"):
        code, out, _ = await run(room.url, noted, "0" * 64)
        assert (code, out.count("WRONG")) == (1, 1)
        assert f"you noted {'0' * 64}" in out


async def test_before_the_opening_there_is_a_commitment_to_note(room, run):
    """Before the opening the exit code is 1: nothing is proven yet."""
    hidden = ("secret", "count", "places_sha256", "places_url")
    room.draw.update(dict.fromkeys(hidden))
    code, out, err = await run(room.url)
    assert code == 1
    assert room.draw["commitment"] in out
    assert "come back after 2027-01-15T09:00:03" in err


async def test_a_list_of_those_who_came_back_is_said_to_be_one(room, run):
    """A list made after Redis was emptied is right, with a note."""
    room.draw["store_emptied_at"] = "2027-01-15T08:30:00.000+00:00"
    code, out, _ = await run(room.url)
    assert (code, "the store was emptied at 2027-01-15T08:30" in out) == (0, True)


async def test_what_is_no_draw_is_an_error_in_words(room, run, tmp_path):
    """Each source that is no draw gets an error in words, without a traceback."""
    (tmp_path / "odd.json").write_text('{"draw": {"room": "shop"}, "places": [["a", "1"]]}')
    (tmp_path / "no.json").write_text("no")
    port = room.url.split(":")[2].partition("/")[0]
    cases = {
        "odd.json": "draw.commitment: is needed",
        "no.json": "this is no file of --save",
        "missing.json": "No such file",
        f"http://127.0.0.1:{port}/nope": "HTTP 404",
        "http://127.0.0.1:1/": "Cannot connect",
        "http://": "http://: write the whole address, https://…",
        "http://[": "write the whole address, https://…",
        "ftp://www.example.com/_waitroom/shop/draw": "write the whole address, https://…",
        "www.example.com/_waitroom/shop/draw": "write the whole address, https://…",
    }
    for source, said in cases.items():
        code, out, err = await run(source)
        assert (code, out) == (3 if source.endswith(":1/") else 1, ""), source
        assert said in err, (source, err)
        assert "Traceback" not in err
    for address, said in (("http://127.0.0.2/x", "elsewhere"), (None, "not published (any more)")):
        room.draw["places_url"] = address
        code, out, err = await run(room.url)
        assert (code, out, said in err) == (1, "", True), err
    room.status = 404
    room.draw.clear()
    room.draw.update({"title": "No draw", "detail": "Room shop has no event with a pre-queue."})
    code, _, err = await run(room.url)
    assert (code, err) == (1, "Error: No draw\nRoom shop has no event with a pre-queue.\n")


async def test_pages_that_do_not_end_are_read_no_further(room, run, monkeypatch):
    """An endless list is read up to the published count, or to the limit."""
    room.is_endless = True
    code, out, err = await run(room.url)
    assert (code, err, room.pages) == (1, "", 3)
    assert "300 places are listed, and 250 were published" in out
    monkeypatch.setattr(commands, "_MAX_PLACES", 500)
    monkeypatch.setattr(commands, "_ATTEMPTS", 1)
    monkeypatch.setattr(commands.time, "sleep", lambda _seconds: None)
    room.draw["count"] = None
    code, out, err = await run(room.url)
    assert (code, out, room.pages) == (1, "", 3 + 6)
    assert "more than 500 places are listed" in err
    monkeypatch.setattr(commands, "_MAX_RESPONSE_BYTES", 99)
    code, out, err = await run(room.url)
    assert (code, "this is no draw as a room publishes it" in err) == (1, True)


async def test_it_is_led_nowhere(room, run):
    """A redirect is not followed; the error names its target."""
    room.leads_to = f"{PATH}?there=\x1b[2J"
    code, out, err = await run(room.url)
    assert (code, out) == (1, "")
    assert f"leads on to {room.url}?there=" in err
    assert "say that one if you trust it" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("name", ["room", "event", "revealed_at", "store_emptied_at", "title"])
async def test_nothing_that_a_server_says_speaks_to_the_terminal(room, run, name):
    """A server's text is shown without control characters, and shortened."""
    for odd in ("\x1b[2J", "\ud800", "\x1b]0;right" + "x" * 9999):
        room.status = 404 if name == "title" else 200
        room.draw[name] = odd
        code, out, err = await run(room.url)
        assert (code, "\x1b" in out + err, len(out + err) < 1000) == (1, False, True)
        assert (err.startswith("Error: "), "Traceback" in err) == (True, False)
