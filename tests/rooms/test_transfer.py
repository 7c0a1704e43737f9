"""A room from one store to another, and back: nobody loses a place, nobody is called twice."""

import hashlib
import json
import os
import urllib.error
from contextlib import ExitStack
from threading import Thread
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.rooms.store.transfer import PAGE, READ_ORDER, WRITE_ORDER, make_stats_rows
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.support.nginx_client import Visitor
from tests.support.processes import Process, listens, wait_until
from tests.support.rooms import new_room_name, without_outages
from tests.support.site import Site, make_folder, redis_command
from tests.support.visitors import beat_all, go_in, queue

SETS = ("waiting", "active", "admitted", "spent", "revoked")


@pytest.fixture(scope="module")
def other_socket():
    """Start a second redis-server. Return its socket."""
    with ExitStack() as stack:
        folder = make_folder(stack)
        socket = folder / "redis.sock"
        stack.enter_context(Process(redis_command(socket), log=folder / "redis.log"))
        wait_until(lambda: listens(socket), "redis-server")
        yield socket


@pytest.fixture
async def stores(redis_socket, other_socket, turn):
    """Return a function that makes the stores of one room in two Redis servers."""
    clients = [connect(f"unix://{socket}", timeout_s=5) for socket in (redis_socket, other_socket)]

    def make(**settings):
        name = new_room_name()
        file = without_outages(RoomSettings(**{"total_active_users": 1, **settings}))
        return [
            RoomStore(one, name, settings=file, clock=StoreClock(), now_ms=turn, timeout_s=5)
            for one in clients
        ]

    yield make
    for client in clients:
        await close(client)


async def read(store, after_page=None):
    """Read all rows of a room, by kind, in lists of at most PAGE rows, and the snapshot. Call
    `after_page` with the kind after each page."""
    snapshot = await store.snapshot()
    found = {"stats": [make_stats_rows(snapshot.counters)]}
    for kind in READ_ORDER:
        cursor = 0
        while True:
            pages, cursor = await store.transfer.read_page(kind, cursor)
            found.setdefault(kind, []).extend(pages)
            if after_page is not None:
                await after_page(kind)
            if cursor == 0:
                break
    return found, snapshot


async def write(store, found, snapshot):
    """Write all rows. Return how many members were new."""
    assert await store.transfer.begin(snapshot.epoch, read_ms=snapshot.now_ms, by="test")
    added = 0
    for kind in WRITE_ORDER:
        for rows in found[kind]:
            added += await store.transfer.write(kind, rows, read_ms=snapshot.now_ms)
    changes = dict.fromkeys((await store.snapshot()).overrides) | snapshot.overrides
    await store.configure(changes)
    return added


async def move(source, target):
    """As the commands do it, but the source is paused."""
    await source.configure({"queue_all": True})
    added = await write(target, *await read(source))
    await target.configure({"queue_all": None})
    return added


async def held(store, *names):
    redis, room = store._redis, store._name
    return {
        name: dict(await redis.zrange(room_key(room, name), 0, -1, withscores=True))
        for name in names or SETS
    }


# Between two stores -----------------------------------------------------------------------------


async def test_a_room_comes_over_as_it_is(stores, turn):
    """Places, orders, sessions, revocations, settings and counters are the same."""
    old, new = stores(total_active_users=2, message="file")
    inside = [await go_in(old) for _ in range(2)]
    tickets = await queue(old, 5)
    await old.configure({"message": "hello", "poll_limit": 7})
    await new.configure({"heartbeat_timeout": 50})
    turn.forward(5)
    await beat_all(old, tickets)
    await old.leave(tickets[1].visitor)
    await old.leave(inside[0].visitor)
    turn.forward(10)  # one is called into the free slot, and claims it
    await beat_all(old, [tickets[0]])
    before, snapshot = await held(old), await old.snapshot()
    assert {name: len(members) for name, members in before.items()} == {
        "waiting": 3, "active": 2, "admitted": 2, "spent": 2, "revoked": 2,
    }  # fmt: skip
    await write(new, *await read(old))
    assert await held(new) == before
    after = await new.snapshot()
    assert after.overrides == {"message": "hello", "poll_limit": 7}
    assert after.counters["last_order"] == snapshot.counters["last_order"]
    assert after.counters["joined"] == 5
    assert after.counters["born"] == snapshot.counters["born"]


async def test_a_visitor_who_polls_all_the_while_keeps_the_place(stores, turn):
    """Nobody is called or admitted during the import. Afterwards the head is called, and newcomers
    are behind."""
    old, new = stores(total_active_users=1, session_duration=60, heartbeat_interval=2)
    inside = await go_in(old)
    tickets = await queue(old, 4)
    mine = tickets[2]
    assert (await old.beat(mine)).ahead == 2
    await old.configure({"queue_all": True})
    found, snapshot = await read(old)
    turn.forward(0.5)
    assert await new.transfer.begin(snapshot.epoch, read_ms=snapshot.now_ms, by="test")
    for kind in WRITE_ORDER:
        # I expect it to wait although nobody is inside or in line yet, and to know no position.
        during = await new.beat(mine)
        assert (during.outcome, during.order) == (QueueOutcome.WAITING, mine.order)
        assert during.recovery_stage > 0
        assert (await new.enter(new_visitor())).outcome is QueueOutcome.WAITING
        for rows in found[kind]:
            await new.transfer.write(kind, rows, read_ms=snapshot.now_ms)
    await new.configure({"queue_all": None})
    assert (await new.beat(mine)).ahead == 2
    assert (await new.renew(inside)).outcome is QueueOutcome.ADMITTED
    # The recovery: nobody is called, although the slot is given up.
    await new.leave(inside.visitor, why="unseen")
    turn.forward(4.9)
    standings = await beat_all(new, tickets)
    assert [(one.outcome, one.ahead) for one in standings] == [
        (QueueOutcome.WAITING, ahead) for ahead in range(4)
    ]
    turn.forward(1)
    standings = await beat_all(new, tickets)
    assert [one.outcome for one in standings] == [QueueOutcome.ADMITTED] + [
        QueueOutcome.WAITING
    ] * 3
    assert [one.ahead for one in standings[1:]] == [0, 1, 2]
    assert (await new.snapshot()).active == 1


async def test_doing_it_twice_equals_once(stores, turn):
    """A second import, at once or later, does not queue visitors again who were admitted since."""
    old, new = stores(total_active_users=2, heartbeat_interval=2)
    inside = [await go_in(old) for _ in range(2)]
    tickets = await queue(old, 3)
    await beat_all(old, tickets)
    await old.configure({"queue_all": True})
    found, snapshot = await read(old)
    assert await write(new, found, snapshot) == 5
    once = await held(new, *SETS, "due")
    assert await write(new, found, snapshot) == 0
    assert await held(new, *SETS, "due") == once
    await new.configure({"queue_all": None})
    turn.forward(6)
    await new.leave(inside[0].visitor, why="unseen")
    assert (await new.beat(tickets[0])).outcome is QueueOutcome.ADMITTED
    await new.leave(tickets[1].visitor)
    assert await write(new, found, snapshot) == 0
    now = await held(new)
    assert set(now["waiting"]) == {tickets[2].visitor.encode()}
    assert len(now["active"]) == 2


async def test_there_and_back(stores, turn):
    """Changes in the other Redis hold after the way back, and the old data brings nobody back."""
    old, new = stores(total_active_users=1, session_duration=60, heartbeat_interval=2)
    first = await go_in(old)
    tickets = await queue(old, 4)
    await beat_all(old, tickets)
    await move(old, new)
    turn.forward(6)
    await new.leave(first.visitor, why="unseen")
    await beat_all(new, tickets)
    await new.leave(tickets[1].visitor)
    [late] = await queue(new, 1)
    await new.beat(late)
    await move(new, old)
    now = await held(old)
    assert set(now["active"]) == {tickets[0].visitor.encode(), first.visitor.encode()}
    line = [tickets[2], tickets[3], late]
    assert list(now["waiting"]) == [ticket.visitor.encode() for ticket in line]
    turn.forward(6)  # the slot that `first` had given up is free in the old store too
    await old.configure({"total_active_users": 2})
    after = await beat_all(old, line)
    assert [standing.outcome for standing in after] == [
        QueueOutcome.ADMITTED, QueueOutcome.WAITING, QueueOutcome.WAITING,
    ]  # fmt: skip
    assert (await old.beat(tickets[1])).outcome is QueueOutcome.GONE


async def test_sessions_come_in_above_the_cap(stores):
    """Their passes are valid, and nobody is called until the room is below the cap."""
    old, new = stores(total_active_users=3)
    [_, _, third] = [await go_in(old) for _ in range(3)]
    [waiting] = await queue(old, 1)
    await old.beat(waiting)
    found, snapshot = await read(old)
    found["stats"] = []
    await write(new, found, snapshot)
    await new.configure({"total_active_users": 1})
    assert (await new.snapshot()).active == 3
    assert (await new.renew(third)).outcome is QueueOutcome.ADMITTED
    assert (await new.beat(waiting)).outcome is QueueOutcome.WAITING


async def test_the_time_that_the_move_takes_is_nobodys_silence(stores, turn):
    """A visitor who polled is called ten minutes later, and a visitor who was silent is skipped."""
    old, new = stores(total_active_users=1, heartbeat_interval=2, claim_window=5)
    inside = await go_in(old)
    silent, alive, unpolled = await queue(old, 3)
    await beat_all(old, [silent, alive])
    turn.forward(60)
    await old.renew(inside)
    await beat_all(old, [alive, unpolled])
    await old.configure({"queue_all": True})
    found, snapshot = await read(old)
    turn.forward(600)
    await write(new, found, snapshot)
    await new.configure({"queue_all": None})
    turn.forward(4.9)
    assert (await new.snapshot()).recovery_stage == 2
    turn.forward(0.1)
    await new.snapshot()
    assert set((await held(new))["active"]) == {alive.visitor.encode()}


async def test_a_line_that_was_reset_takes_in_no_older_one(stores):
    """The tickets are void here, so nothing is changed. An empty room takes the epoch of the
    import."""
    old, new = stores()
    await go_in(old)
    [ticket] = await queue(old, 1)
    await new.reset()
    found, snapshot = await read(old)
    await go_in(new)
    before = await held(new)
    assert not await new.transfer.begin(snapshot.epoch, read_ms=snapshot.now_ms, by="test")
    assert await held(new) == before
    assert (await new.snapshot()).overrides == {}
    empty = stores()[1]
    await empty.reset()
    found["active"] = []
    await write(empty, found, snapshot)
    assert (await empty.beat(ticket)).outcome is QueueOutcome.WAITING


async def test_twenty_thousand(stores, turn):
    """Each page blocks Redis for some milliseconds, and the order stays."""
    old, new = stores(total_active_users=0)
    now_ms, number = turn(), 20_000
    ids = [new_visitor() for _ in range(number)]
    redis, room = old._redis, old._name
    for start in range(0, number, 5000):
        part = {ids[i]: now_ms * 1000 + i for i in range(start, start + 5000)}
        await redis.zadd(room_key(room, "waiting"), part)
        await redis.zadd(room_key(room, "due"), dict.fromkeys(part, now_ms + 2000))
    found, snapshot = await read(old)
    assert max(len(rows) for rows in found["waiting"]) <= PAGE
    await new._redis.config_resetstat()
    assert await write(new, found, snapshot) == number
    line = await new.lists.queue(offset=0, limit=number)
    assert [row.visitor for row in line] == ids
    assert (await new._redis.info("commandstats"))["cmdstat_fcall"]["calls"] >= number / PAGE


async def test_a_page_read_while_the_line_moves_misses_nobody(stores, turn):
    """A visitor who is called meanwhile is read as waiting or active, and imported once."""
    old, new = stores(total_active_users=300, heartbeat_interval=2)
    await old.configure({"total_active_users": 0})
    tickets = await queue(old, 1200)
    await beat_all(old, tickets)

    async def call(kind):
        if kind == "waiting":
            await old.configure({"total_active_users": 300})

    await write(new, *await read(old, after_page=call))
    here = await held(new)
    assert set(here["waiting"]) | set(here["active"]) == {t.visitor.encode() for t in tickets}
    assert not set(here["waiting"]) & set(here["active"])


# The commands -----------------------------------------------------------------------------------

SHOP = {"shop": {"total_active_users": 2, "heartbeat_interval": 1}}


@pytest.fixture(scope="module")
def sites():
    """Start the same room twice, each with a Redis and an nginx of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(Site(rooms=SHOP)) for _ in range(2)]


def command(site, *words, stdin: bytes = b""):
    config = str(site.folder / "replica-0.toml")
    return CliRunner().invoke(main, ["rooms", "--config", config, *words], input=stdin)


def position(site, visitor):
    visitor.url = site.url
    return visitor.get("/_waitroom/shop/status").json()["position"]


def test_a_site_moves_to_another_store(sites, tmp_path):
    """After export and import cookies, places and passes are the same, and the cap holds."""
    old, new = sites
    visitors = [Visitor(old.url) for _ in range(6)]
    replies = [visitor.get("/") for visitor in visitors]
    assert [reply.status for reply in replies] == [200, 200, 503, 503, 503, 503]
    assert [position(old, visitor) for visitor in visitors[2:]] == [1, 2, 3, 4]
    assert command(old, "set", "shop", "queue_all=true").exit_code == 0
    file = tmp_path / "shop.jsonl"
    done = command(old, "export", "shop", "--output", str(file))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "shop: 4 place(s) and 2 session(s) exported\n"
    assert [path.name for path in tmp_path.iterdir()] == ["shop.jsonl"]
    assert file.stat().st_mode & 0o077 == 0

    assert Visitor(new.url).get("/").status == 200  # somebody is there already
    done = command(new, "import", "shop", "--input", str(file))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "4 place(s) and 2 session(s) new here" in done.stdout
    assert "rooms set shop queue_all=null" in done.stdout
    os.mkfifo(pipe := tmp_path / "pipe")
    Thread(target=pipe.write_bytes, args=(file.read_bytes(),), daemon=True).start()
    again = command(new, "import", "shop", "--input", str(pipe))
    assert "0 place(s) and 0 session(s) new here" in again.stdout
    room = new.room()
    assert (room["waiting"], room["active"], room["changed"]) == (4, 3, {"queue_all": True})

    for visitor in visitors:
        visitor.url = new.url
    assert [visitor.get("/").status for visitor in visitors] == [200, 200, 503, 503, 503, 503]
    assert command(new, "set", "shop", "queue_all=null").exit_code == 0
    # Who was told a place is told the same when the store has recovered.
    wait_until(lambda: position(new, visitors[2]) is not None, "positions")
    assert [position(new, visitor) for visitor in visitors[2:]] == [1, 2, 3, 4]
    assert new.room()["active"] == 3


def signed(lines):
    """Return a file's bytes with a valid last line."""
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"end": {"lines": len(lines), "sha256": hashlib.sha256(text).hexdigest()}}
    return text + json.dumps(end).encode() + b"\n"


def test_what_is_no_whole_file_of_this_room_changes_nothing(sites):
    """A file that is incomplete, changed, or of another room, version or key is refused with the
    reason."""
    old, new = sites
    for _ in range(3):  # somebody waits, whichever test came before
        Visitor(old.url).get("/")
    whole = command(old, "export", "shop").stdout_bytes
    head, *rest = [json.loads(line) for line in whole.splitlines()][:-1]
    before = new.room()
    visitor = [new_visitor(), 1, 2]
    wrong = {
        "cut off": whole[: whole.rindex(b'{"end"')],
        "in the middle": whole[: whole.index(b"\n") + 20],
        "another checksum": whole.replace(b'"kind":"waiting"', b'"kind":"Waiting"'),
        "more behind": whole + b"{}\n",
        "empty": b"",
        "text": b"hello\n",
        "no head": signed(rest),
        "no object": b"[]\n",
        "this version reads": signed([{**head, "format": "waitroom-room/2"}, *rest]),
        "both must be called the same": signed([{**head, "room": "other"}, *rest]),
        "other secret_keys": signed([{**head, "proof": "o~0.YQ.x"}, *rest]),
        "unknown setting": signed([{**head, "settings": {"colour": 1}}, *rest]),
        "claim_window": signed([{**head, "settings": {"claim_window": "5m"}}, *rest]),
        "whole number": signed([{**head, "epoch": "x"}, *rest]),
    }
    said = {"in the middle": "cut off", "another checksum": "checksum", "more behind": "checksum"}
    said |= dict.fromkeys(("empty", "text", "no head", "no object"), "this is no file of")
    for name, data in wrong.items():
        done = command(new, "import", "shop", stdin=data)
        assert done.exit_code in {1, 2}, name  # the replica refused it: 2
        assert said.get(name, name) in done.stderr, done.stderr
        assert isinstance(done.exception, SystemExit)
    after = new.room()
    for what in ("changed", "revision", "waiting", "active"):
        assert after[what] == before[what]
    # What is wrong in a line is found when it comes: the room stays paused, and it says so.
    broken = signed([head, *rest, {"kind": "waiting", "rows": [visitor, [5]]}])
    done = command(new, "import", "shop", stdin=broken)
    assert done.exit_code == 1
    for text in ("rows[1]", "is paused", "Run the same command again", "queue_all=null"):
        assert text in done.stderr
    assert new.room()["changed"]["queue_all"] is True
    assert command(new, "import", "shop", stdin=whole).exit_code == 0
    assert new.room()["changed"] == head["settings"]


@pytest.mark.parametrize(
    "step",
    [
        {}, {"kind": "waiting"}, {"kind": "waiting", "exported_at_ms": 1, "rows": {}},
        {"kind": "waiting", "exported_at_ms": 1, "rows": [["x", 1, 2]]},
        {"kind": "waiting", "exported_at_ms": 1, "rows": [["a" * 22, 1]]},
        {"kind": "waiting", "exported_at_ms": 1, "rows": [["a" * 22, 1e300, 2]]},
        {"kind": "waiting", "exported_at_ms": 1, "rows": [["a" * 22, True, 2]]},
        {"kind": "active", "exported_at_ms": 1, "rows": [["a" * 22, "", ""]]},
        {"kind": "addresses", "exported_at_ms": 1, "rows": [["a" * 22, 0]]},
        {"kind": "stats", "exported_at_ms": 1, "rows": [["A", 0]]},
        {"kind": "revoked", "exported_at_ms": -1, "rows": []},
        {"kind": "spent", "exported_at_ms": 1, "rows": [["a" * 22, 1]] * (PAGE + 1)},
        {"kind": "config", "exported_at_ms": 1, "rows": []}, {"kind": []}, {"kind": "end"},
        {"kind": "begin", "head": 5},
    ],
)  # fmt: skip
def test_a_wrong_step_is_refused(sites, step):
    """The response is a 422, and nothing is changed."""
    before = sites[1].room()["revision"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        sites[1].admin("POST", "/rooms/shop/import", step)
    assert caught.value.code == 422
    caught.value.close()
    assert sites[1].room()["revision"] == before


@pytest.mark.parametrize("cursor", ["", "x", "waiting", "waiting-x", "config-0", "waiting--1",
                                    "waiting-99999999999999999999", "waiting-\u0661"])  # fmt: skip
def test_a_cursor_of_ones_own_making_is_refused(sites, cursor):
    """The response is a 422, and Redis is not asked."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        sites[0].admin("GET", f"/rooms/shop/export?cursor={quote(cursor)}")
    assert caught.value.code == 422
    caught.value.close()
