"""Attacks with cookies, at a replica whose clock the tests set. docs/attacks.md lists all attacks;
those with HTTP itself are in tests/nginx/test_abuse.py."""

import asyncio
import hmac
import re
from pathlib import Path

import pytest

from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key
from sidecar.settings.load import load
from sidecar.visitors.model import TICKET_LIFETIME_MS, Pass, QueueOutcome, Ticket
from sidecar.visitors.tokens import MAX_TOKEN_LENGTH, Tokens, new_visitor
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, SESSION_GRACE_MS
from tests.support.replica import KEYS, cookie_of
from tests.support.visitors import lose, queue

TESTS = Path(__file__).resolve().parents[1]
GRACE_S, HOLD_S = SESSION_GRACE_MS / 1000, RELEASE_HOLD_MS / 1000


def test_each_attack_has_a_test_that_exists():
    """tests/attacks.md says where each attack on docs/attacks.md is tested."""
    row = re.compile(r"(?m)^\| (?!attack \||attempt \|)(.+?) \| ")
    attacks = row.findall((TESTS.parent / "docs" / "attacks.md").read_text())
    table = (TESTS / "attacks.md").read_text()
    assert row.findall(table) == attacks
    assert len(attacks) > 20
    for file, name in re.findall(r"`([\w/]+)::(\w+)`", table):
        assert f"def test_{name}(" in (TESTS / f"{file}.py").read_text(), name


def visitor_of(cookie: str) -> str:
    return cookie.partition("~")[2].partition("~")[0]


async def leave(site, cookie: str) -> None:
    await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers={"Cookie": cookie})


async def is_newcomer(site, cookie: str) -> bool:
    """Whether its bearer is given a cookie as somebody else, at the end of the line."""
    before = await site.room.refresh()
    reply = await site.check(cookie)
    given = cookie_of(reply)
    position = reply.headers["X-Waitroom-Position"]
    return visitor_of(given) != visitor_of(cookie) and int(position) == before.waiting + 1


# The same cookie again.


async def test_a_ticket_after_leaving(replica):
    """The place is given up; the ticket does not bring it back."""
    site = await replica(total_active_users=0)
    ticket = cookie_of(await site.check())
    await site.check()
    await leave(site, ticket)
    assert await is_newcomer(site, ticket)


async def test_a_ticket_after_a_session(replica):
    """After the session, its ticket is used up: the visitor joins at the end."""
    site = await replica(session_duration=10)
    first = cookie_of(await site.check())
    ticket = cookie_of(await site.check())
    await leave(site, first)
    site.turn.forward(HOLD_S)
    assert (await site.check(ticket)).status == 204
    assert (await site.check(ticket)).status == 204
    assert (await site.room.refresh()).active == 1
    await site.check()
    site.turn.forward(10 + GRACE_S)
    assert await is_newcomer(site, ticket)
    # Not after the sweeps of a day either: by then the ticket itself is too old.
    site.turn.forward(TICKET_LIFETIME_MS / 1000 - 60)
    await site.room.store.sweep()
    assert visitor_of(cookie_of(await site.check(ticket))) != visitor_of(ticket)


async def test_a_ticket_of_who_left_in_an_emptied_store(replica):
    """The replicas remember who left, and tell a store that has forgotten."""
    site = await replica(total_active_users=0)
    ticket = cookie_of(await site.check())
    await leave(site, ticket)
    await site.room.refresh()
    site.turn.forward(1)
    await lose(site.room.store._redis, site.room.store)
    # At once, before the replica has noticed; then in the store, for all replicas.
    assert visitor_of(cookie_of(await site.check(ticket))) != visitor_of(ticket)
    await site.room.refresh()
    token = site.room.tokens.read(ticket.partition("=")[2])
    assert (await site.room.store.beat(token)).outcome is QueueOutcome.GONE


async def test_a_pass_after_leaving(replica):
    """Refused after two seconds, and not renewed by a store that was emptied."""
    site = await replica()
    pass_ = cookie_of(await site.check())
    await leave(site, pass_)
    await site.room.refresh()
    site.turn.forward(2)
    await lose(site.room.store._redis, site.room.store)
    await site.room.refresh()
    reply = await site.check(pass_)
    assert reply.status == 401
    assert visitor_of(cookie_of(reply)) != visitor_of(pass_)


async def test_a_ticket_of_an_earlier_line(replica):
    """A reset of the line is for all who were in it."""
    site = await replica(total_active_users=0)
    ticket = cookie_of(await site.check())
    await site.room.store.reset()
    await site.check()
    assert await is_newcomer(site, ticket)


async def test_a_ticket_that_two_show_is_one_slot(replica):
    """All who show a ticket during its session get a pass, also a bound one, in one slot."""
    site = await replica(bind_pass="user_agent")
    first = cookie_of(await site.check(headers={"User-Agent": "0"}))
    ticket = cookie_of(await site.check(headers={"User-Agent": "1"}))
    await leave(site, first)
    site.turn.forward(HOLD_S)
    for agent in ("1", "2"):
        assert (await site.check(ticket, {"User-Agent": agent})).status == 204
    assert (await site.room.refresh()).active == 1


# Another cookie than the one that was given.


def forgeries(cookie: str) -> dict[str, str]:
    """The token's text with a field changed, and the signature that it had."""
    value, stamp, signature = cookie.rsplit(".", 2)
    kind, visitor, order, joined, epoch, *rest = value.split("~")

    def token(*fields: str) -> str:
        return ".".join(("~".join(fields), stamp, signature))

    return {
        "an earlier order": token(kind, visitor, "1", joined, epoch, *rest),
        "a negative order": token(kind, visitor, "-1", joined, epoch, *rest),
        "a later epoch": token(kind, visitor, order, joined, "9999999999999", *rest),
        "another visitor": token(kind, new_visitor(), order, joined, epoch, *rest),
        "an earlier joining": token(kind, visitor, order, "0", epoch, *rest),
        "another kind": token("p" if kind == "t" else "t", visitor, order, joined, epoch, *rest),
        "a bound kind": token("m", visitor, order, joined, epoch, *rest),
        "a pass's fields": token("p", visitor, order, joined, epoch, joined, joined, "9" * 13),
        "one field more": token(kind, visitor, order, joined, epoch, *rest, "1"),
        "one field less": token(kind, visitor, order, joined, *rest),
        "signed later": f"{value}.zzzzzz.{signature}",
        "no signature": f"{value}.{stamp}.",
        "no stamp": f"{value}.{signature}",
        "half": cookie[: len(cookie) // 2],
        "twice": f"{cookie}.{stamp}.{signature}",
        "too long": cookie + "A" * MAX_TOKEN_LENGTH,
    }


@pytest.mark.parametrize("what", forgeries("t~v~1~1~0.s.x"))
@pytest.mark.parametrize("kind", "tp")
async def test_a_forged_cookie_is_as_none(replica, what, kind):
    """The bearer of a forged cookie is a newcomer with a new cookie, and real visitors stay."""
    site = await replica()
    own = {"p": cookie_of(await site.check()), "t": cookie_of(await site.check())}
    await queue(site.room.store, 2)
    name, _, token = own[kind].partition("=")
    assert site.room.tokens.read(token) is not None
    assert await is_newcomer(site, f"{name}={forgeries(token)[what]}")
    assert (await site.check(own["p"])).status == 204
    assert (await site.check(own["t"])).headers["X-Waitroom-Position"] == "1"


async def test_a_cookie_of_another_room(replica):
    """Another room's ticket is no place here, and its pass no pass, under either name."""
    site, other = await replica(), await replica()
    await site.check()
    for foreign in (cookie_of(await other.check()), cookie_of(await other.check())):
        token = foreign.partition("=")[2]
        assert await is_newcomer(site, f"{site.room.tokens.cookie_name}={token}")
        assert await is_newcomer(site, foreign)


@pytest.mark.parametrize("extra", [[], ["1"], ["1", "2"], ["x"], ["x", "y"], ["1"] * 9])
def test_fields_of_another_version(extra):
    """A signed cookie of another version is void: an unknown field may bind the pass."""
    tokens = Tokens("shop", KEYS, StoreClock())
    known = {"t": 3, "k": 4, "p": 6, "m": 7}
    for kind, signer in tokens._signers.items():
        for count in range(9):
            fields = [kind, "v" * 22, *["1"] * count, *extra]
            token = tokens.read(signer.sign("~".join(fields), 1_800_000_000))
            if token is None:
                continue
            assert len(fields) - 2 == known[kind]
            assert isinstance(token, Ticket if kind in "tk" else Pass)


def test_signatures_are_compared_in_constant_time(monkeypatch):
    """hmac.compare_digest decides, once for each key, so that timing tells a forger nothing."""
    tokens = Tokens("shop", ["a" * 32, "b" * 32], StoreClock())
    good = tokens.write(Ticket(new_visitor(), 1, 1, 0))
    bad = good[:-20] + "A" * 20
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert tokens.read(bad) is None
    assert compared == [(43, 43)] * 2
    assert tokens.read(good) is None
    monkeypatch.setattr(hmac, "compare_digest", lambda _one, _other: True)
    assert tokens.read(bad) is not None


# A pass that is bound.


async def test_a_bound_verdict_is_not_kept(replica):
    """nginx knows a verdict by the cookie alone, so it is told to keep none."""
    for bind_pass, kept in (("none", True), ("user_agent", False), ("ip", False)):
        site = await replica(bind_pass=bind_pass)
        pass_ = cookie_of(await site.check())
        reply = await site.check(pass_)
        assert reply.status == 204
        assert ("X-Accel-Expires" in reply.headers) is kept


@pytest.mark.parametrize("bind_pass", ["none", "ip"])
async def test_a_valid_pass_needs_no_store(replica, bind_pass):
    """The signature holds the mark of a bound pass too: from its second use until it is due, Redis
    is not asked, and the cookie stays."""
    site = await replica(bind_pass=bind_pass)
    who = {"X-Real-IP": "192.0.2.1"}
    pass_ = cookie_of(await site.check(headers=who))
    await site.check(pass_, who)
    calls = []
    site.room.store.renew = calls.append
    site.turn.forward(49)
    reply = await site.check(pass_, who)
    assert (reply.status, "Set-Cookie" in reply.headers, calls) == (204, False, [])


async def test_one_visitor_at_two_addresses_has_one_slot(replica):
    """A connection that changes between IPv4 and IPv6 starts anew, and leaves no slot behind."""
    site = await replica(bind_pass="ip", total_active_users=5)
    cookie = ""
    for address in ("192.0.2.1", "2001:db8::1", "2001:db8::2", "192.0.2.1", "2001:db8::1"):
        reply = await site.check(cookie, {"X-Real-IP": address})
        assert reply.status == 204
        cookie = cookie_of(reply) if "Set-Cookie" in reply.headers else cookie
        site.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
    assert (await site.room.refresh()).active == 1


@pytest.mark.parametrize("before", ["none", "user_agent", "ip"])
@pytest.mark.parametrize("after", ["none", "user_agent", "ip"])
async def test_binding_is_changed_while_people_are_inside(replica, before, after):
    """Visitors stay inside when `bind_pass` changes, and are bound by the new value."""
    site = await replica(bind_pass=before)
    who = {"X-Real-IP": "192.0.2.1", "User-Agent": "Ann's"}
    pass_ = cookie_of(await site.check(headers=who))
    await site.room.store.configure({"bind_pass": after})
    await site.room.refresh()
    reply = await site.check(pass_, who)
    assert reply.status == 204
    if before != after:
        pass_ = cookie_of(reply)
    assert (await site.check(pass_, who)).status == 204
    for other, opens in (
        ({**who, "User-Agent": "Bob's"}, after != "user_agent"),
        ({**who, "X-Real-IP": "192.0.2.2"}, after != "ip"),
    ):
        assert ((await site.check(pass_, other)).status == 204) is opens
    assert (await site.room.refresh()).active == 1


async def test_a_bound_pass_while_the_store_is_away(replica):
    """While Redis is unavailable a bound pass, also a prolonged one, admits its bearer alone."""
    site = await replica(bind_pass="user_agent", on_store_failure="wait")
    who, other = {"User-Agent": "Ann's"}, {"User-Agent": "Bob's"}
    pass_ = cookie_of(await site.check(headers=who))
    site.turn.forward(200)
    for _ in range(3):
        site.room.store._scripts.breaker.record_failure()
    reply = await site.check(pass_, who)
    assert reply.status == 204
    for cookie in (pass_, cookie_of(reply)):
        assert (await site.check(cookie, other)).status == 401
    assert (await site.check(cookie_of(reply), who)).status == 204


# Places by the dozen.


async def join(site, address: str) -> str:
    reply = await site.check(headers={"X-Real-IP": address})
    return reply.headers["X-Waitroom-State"]


async def test_a_flood_from_one_address_is_counted_once(replica):
    """A flood from one address costs one count, and not one for each request."""
    site = await replica(total_active_users=0, max_places_per_address=50)
    store = site.room.store
    await asyncio.gather(*(store.enter(new_visitor(), address="a") for _ in range(50)))

    async def looked_up() -> int:
        commands = await store._redis.info("commandstats")
        return commands["cmdstat_zscore"]["calls"]

    before = await looked_up()
    told = await asyncio.gather(*(store.enter(new_visitor(), address="a") for _ in range(128)))
    assert {standing.outcome for standing in told} == {QueueOutcome.FULL}
    assert await looked_up() - before < 1000  # two batches, of one and of the others


async def test_places_that_ran_out_are_no_places(replica):
    """A silent place and a session that ended do not count, even before a sweep."""
    site = await replica(max_places_per_address=1, session_duration=10)
    assert [await join(site, "192.0.2.1") for _ in range(2)] == ["admitted", "full"]
    site.turn.forward(10 + GRACE_S + 0.001)
    assert [await join(site, "192.0.2.1") for _ in range(2)] == ["admitted", "full"]


async def test_places_are_counted_from_when_it_is_switched_on(replica):
    """Those of before are nobody's hoard; switched off, nobody is counted or refused."""
    site = await replica(total_active_users=0)
    assert [await join(site, "192.0.2.1") for _ in range(3)] == ["waiting"] * 3
    for limit, told in ((1, ["waiting", "full"]), (None, ["waiting", "waiting"])):
        await site.room.store.configure({"max_places_per_address": limit})
        await site.room.refresh()
        assert [await join(site, "192.0.2.1") for _ in range(2)] == told
    assert (await site.room.refresh()).waiting == 6


async def test_an_address_is_not_kept_in_clear(replica):
    """The store holds a digest of it, the cookie not even that."""
    site = await replica(max_places_per_address=3)
    reply = await site.check(headers={"X-Real-IP": "192.0.2.123"})
    redis, room = site.room.store._redis, site.room.store._name
    [member] = await redis.zrange(room_key(room, "addresses"), 0, -1)
    for text in (member.decode(), reply.headers["Set-Cookie"]):
        assert "192.0.2" not in text


# Changing the key, as the page says.


def test_the_page_has_three_steps():
    """Verify, sign, forget. tests/visitors/test_tokens.py: all keys verify, and the last signs."""
    old, new = "o" * 64, "n" * 64
    page = (TESTS.parent / "docs" / "security.md").read_text()
    section = page.split("\n## Changing the key\n")[1].split("\n## ")[0]
    keys = []
    for names in re.findall(r"printf '%s\\n' (.+) \| sudo tee", section):
        value = ",".join({'"$OLD"': old, '"$NEW"': new}[name] for name in names.split())
        environment = {"WAITROOM_SECRET_KEYS": value,
                       "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "1"}  # fmt: skip
        keys.append(load(None, environment).secret_keys)
    assert keys == [[new, old], [old, new], [new]]
