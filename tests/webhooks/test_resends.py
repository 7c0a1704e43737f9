"""What is kept of deliveries, and what an operator sends again: to a real receiver, from a real
store, by replicas that are moved by hand and killed at the worst moments."""

import asyncio
from dataclasses import dataclass

import pytest

from sidecar.http.metrics import Metrics
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.webhooks import deliveries as kept
from sidecar.webhooks.deliveries import Change, Deliveries, Delivery
from sidecar.webhooks.messages import legible
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.model import CallNotice, Invitation, Notice, new_test
from sidecar.webhooks.notifier import new_session
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.resends import Resender, Resending
from sidecar.webhooks.settings import Webhook
from tests.support.receiver import Pauses, until
from tests.support.rooms import attended, new_room_name


@dataclass
class Replica:
    """A replica's resender, of one webhook, moved by hand."""

    room: Room
    resender: Resender
    sender: Resending
    tasks: list[asyncio.Task[None]]

    async def look(self) -> None:
        await self.room.refresh()
        await self.resender.look()

    def die(self) -> None:
        """As killed: nothing that was begun ends."""
        for task in self.tasks:
            task.cancel()


class World:
    """One webhook in a real store, and replicas."""

    def __init__(self, redis, turn, session, url: str) -> None:
        self.redis, self.turn, self.session = redis, turn, session
        self.name, self.hook = new_room_name(), new_room_name()
        self.webhook = Webhook(url=url, secret="secret-that-nobody-sees")
        self.store = Deliveries(redis, self.hook, 5)
        self.pauses = Pauses()
        self.replicas: list[Replica] = []

    def replica(self, *, sends: bool = True) -> Replica:
        file = RoomSettings(total_active_users=1)
        clock = StoreClock()
        store = RoomStore(self.redis, self.name, settings=attended(file), clock=clock,
                          now_ms=self.turn, timeout_s=5)  # fmt: skip
        room = Room(self.name, file, Tokens(self.name, ["k" * 32], clock), store, clock)
        rooms, metrics = Rooms([room]), Metrics(WebhookMetrics)
        resender = Resender(rooms, metrics, self.redis, timeout_s=5)
        resender.lease_ms = 600_000
        pauses = self.pauses
        sender = resender.add(self.hook, self.webhook, self.session,
                              sleep=pauses.sleep, clock=pauses.clock)  # fmt: skip
        tasks = [asyncio.create_task(sender.run())] if sends else []
        self.replicas.append(Replica(room, resender, sender, tasks))
        return self.replicas[-1]

    async def lease_runs_out(self) -> None:
        assert await self.redis.delete(webhook_key(self.hook, "resending")) == 1

    async def fail(self, *ids: str, attempts: int = 8) -> None:
        """They were given up."""
        outcome = {"reason": "HTTP 503", "status": 503}
        changes = {
            id_: Change(notice(id_), "failed", attempts, dict(outcome)) for id_ in ids
        }  # fmt: skip
        await self.store.save(changes)

    async def states(self) -> dict[str, str]:
        return {d.notice.id: state for state, d in await self.store.page(limit=1000)}

    async def one(self, id_: str = "n1") -> Delivery:
        return (await self.store.find([id_]))[id_]


def notice(id_: str = "n1", at_ms: int | None = None) -> Notice:
    at_ms = new_test("shop", 1).at_ms if at_ms is None else at_ms
    return Notice(id_, "room_full", "shop", at_ms, waiting=1, active=1, cap=1)


@pytest.fixture
async def world(redis_socket, turn, receiver):
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    async with new_session() as session:
        world = World(redis, turn, session, receiver.url)
        yield world
        for replica in world.replicas:
            replica.die()
            await asyncio.gather(*replica.tasks, return_exceptions=True)
    await close(redis)


async def test_two_operators_who_press_together_send_one(world, receiver):
    """And again while it is on its way, and from an old look when it is over."""
    await world.fail("n1")
    said = await asyncio.gather(
        world.store.resend(["n1"], by="Ann", attempts=8),
        world.store.resend(["n1"], by="Ben", attempts=8),
    )
    assert sorted(words[0] for words in said) == ["queued", "waiting"]
    receiver.answers = [None]
    replica = world.replica()
    await replica.look()
    await until(lambda: receiver.ids == ["n1"], "the message")
    assert await world.store.resend(["n1"], by="Eve") == ["waiting"]
    receiver.let_go()
    await until(lambda: len(replica.sender) == 0, "the answer")
    # The answer has come, and is not saved yet.
    assert await world.store.resend(["n1"], by="Eve") == ["waiting"]
    await replica.look()
    assert await world.store.resend(["n1"], by="Eve", attempts=8) == ["changed"]
    await replica.look()
    assert receiver.ids == ["n1"]
    found = await world.one()
    assert (await world.states(), found.attempts, found.status) == ({"n1": "delivered"}, 9, 200)
    assert found.resent_by in {"Ann", "Ben"}
    # Who has seen that it was delivered may want it once more all the same.
    assert await world.store.resend(["n1"], by="Eve", attempts=9) == ["queued"]
    await replica.look()
    await until(lambda: receiver.ids == ["n1", "n1"], "the message once more")


async def test_two_replicas_send_one(world, receiver):
    """One of them has the leader lease, also while its sender has all there is."""
    first, second = world.replica(), world.replica()
    await world.fail(*(f"n{number}" for number in range(12)))
    await world.store.resend(await world.store.failed(), by="Ann")
    for _ in range(30):
        for replica in (first, second):
            await replica.look()
        await asyncio.sleep(0.01)
    await until(lambda: len(receiver.ids) == 12, "all")
    assert len(set(receiver.ids)) == 12
    await first.look()
    assert set((await world.states()).values()) == {"delivered"}


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_crash_between_sending_and_saving_loses_nothing(world, receiver, is_sent):
    """The next replica sends it, with the same id; and then it is over."""
    await world.fail("n1")
    await world.store.resend(["n1"], by="Ann")
    first = world.replica(sends=is_sent)
    await first.look()
    if is_sent:
        await until(lambda: receiver.ids == ["n1"], "the message")
    first.die()
    heir = world.replica()
    await heir.look()
    assert receiver.ids == ["n1"] * is_sent
    await world.lease_runs_out()
    await heir.look()
    await until(lambda: receiver.ids == ["n1"] * (1 + is_sent), "the repeat")
    await until(lambda: len(heir.sender) == 0, "the answer")
    for _ in range(3):
        await heir.look()
    assert await world.states() == {"n1": "delivered"}
    assert len(receiver.ids) == 1 + is_sent


async def test_a_slow_replica_ends_no_later_request(world):
    """What one that lost its lease has to say ends the request that it had, and no other."""
    await world.fail("n1")
    await world.store.resend(["n1"], by="Ann")
    (old,) = (await world.store.asked()).values()
    slow = {"n1": Change(notice(), "delivered", 1, {}, old)}
    await world.store.save(slow)
    await world.store.resend(["n1"], by="Ben")
    await world.store.save(slow)
    assert [text.partition(" ")[2] for text in (await world.store.asked()).values()] == ["Ben"]
    assert await world.states() == {"n1": "waiting"}


async def test_while_it_is_retried_by_itself_nothing_is_added(world):
    """It is on its way already; once it is given up it can be sent again."""
    await world.store.save({"n1": Change(notice(), "waiting", 3, {"status": 503})})
    assert await world.store.resend(["n1"], by="Ann") == ["waiting"]
    assert await world.store.asked() == {}
    await world.store.save({"n1": Change(notice(), "failed", 5)})
    assert await world.store.resend(["n1"], by="Ann", attempts=8) == ["queued"]
    # What the automatic one has to say later does not end the request.
    await world.store.save({"n1": Change(notice(), "failed", 1)})
    assert await world.states() == {"n1": "waiting"}


async def test_it_is_one_attempt_whose_answer_is_kept(world, receiver):
    """No retry: an operator sees the answer. It delays no message, and has its id."""
    receiver.answers = [503]
    await world.fail("n1")
    await world.store.resend(["n1"], by="Ann")
    replica = world.replica()
    await replica.look()
    await until(lambda: receiver.ids == ["n1"] and not len(replica.sender), "the answer")
    await replica.look()
    found = await world.one()
    assert (await world.states(), found.attempts) == ({"n1": "failed"}, 9)
    assert (found.status, found.reason, found.resent_by) == (503, "HTTP 503", "Ann")
    assert world.pauses.slept == []


async def test_a_test_is_sent_and_kept(world, receiver):
    """By its event a program can tell it."""
    test = new_test(world.name, 5)
    await world.store.add(test, by="Ann")
    assert await world.states() == {test.id: "waiting"}
    replica = world.replica()
    await replica.look()
    await until(lambda: receiver.events == ["test"] and not len(replica.sender), "the test")
    await replica.look()
    assert await world.states() == {test.id: "delivered"}


async def test_calls_that_are_over_are_not_sent_again(world, receiver):
    """Their addresses are not kept either: they are made anew for whoever may still come."""
    call = Invitation("v" * 22, 1, 2, "https://shop.example/token-that-nobody-sees")
    called = CallNotice("c1", world.name, notice().at_ms, (call,))
    replica = world.replica()
    replica.sender.journal.began(called)
    replica.sender.journal.ended(called, "failed", "HTTP 503")
    await replica.look()
    assert "nobody-sees" not in (await world.one("c1")).text()
    await world.store.resend(["c1"], by="Ann")
    await replica.look()
    await until(lambda: not len(replica.sender), "the end")
    await replica.look()
    assert (await world.states(), receiver.came) == ({"c1": "failed"}, [])
    assert (await world.one("c1")).reason.startswith("not sent: its calls are over")


async def test_calls_are_sent_again_to_those_who_may_still_come(world, receiver):
    """With an address that is made anew."""
    replica = world.replica()
    gone, here = new_visitor(), new_visitor()
    for visitor in (gone, here):
        await replica.room.store.enter(visitor)
    await replica.room.store.leave(gone)
    world.turn.forward(6)  # the slot is free
    await replica.room.store.sweep()
    calls = (Invitation(here, notice().at_ms, 2, ""), Invitation(gone, 1, 2, ""))
    called = CallNotice("c1", world.name, notice().at_ms, calls)
    await world.store.save({"c1": Change(called, "failed")})
    await world.store.resend(["c1"], by="Ann")
    await replica.look()
    await until(lambda: receiver.ids == ["c1"], "the calls")
    (call,) = receiver.came[0][1]["calls"]
    assert call["visitor"] == here
    assert call["claim_url"].startswith(f"/_waitroom/{world.name}/claim?token=")


async def test_what_cannot_be_saved_is_saved_later(world, monkeypatch):
    """With what came meanwhile; nothing is counted twice."""
    journal = world.replica(sends=False).sender.journal

    async def refuse(_: object) -> None:
        journal.tried(notice(), 500, "HTTP 500", "", took_s=0.2)
        raise StoreError("away")

    journal.tried(notice(), 503, "HTTP 503", "", took_s=0.1)
    with monkeypatch.context() as away:
        away.setattr(world.store, "save", refuse)
        with pytest.raises(StoreError):
            await journal.save(world.store)
    await journal.save(world.store)
    found = await world.one()
    assert (found.attempts, found.status, found.took_ms) == (2, 500, 200)
    await journal.save(world.store)
    assert (await world.one()).attempts == 2


async def test_bounds(world, monkeypatch):
    """The oldest give way, of those that failed and of the others; a week later, all."""
    monkeypatch.setattr(kept, "DELIVERED_KEPT", 3)
    monkeypatch.setattr(kept, "FAILED_KEPT", 5)
    at_ms = notice().at_ms
    for number in range(20):
        state, id_ = "failed" if number % 2 else "delivered", f"n{number:02}"
        await world.store.save({id_: Change(notice(id_, at_ms + number), state)})
    latest = ["n19", "n18", "n17", "n16", "n15", "n14", "n13", "n11"]
    assert [*await world.states()] == latest
    assert await world.redis.hlen(webhook_key(world.hook, "deliveries")) == len(latest)
    page = await world.store.page(("failed",), start=1, limit=2)
    assert [found.notice.id for _, found in page] == ["n17", "n15"]
    await world.store.save({"old": Change(notice("old", at_ms - 8 * 86_400_000), "failed")})
    assert "old" not in await world.states()
    for name in ("deliveries", "failed"):
        assert 0 < await world.redis.ttl(webhook_key(world.hook, name)) <= kept.KEPT_S


async def test_one_that_nobody_sends_any_more_has_failed(world):
    """Such as one that was to go when its replica was killed, and its room left the settings."""
    long_ago = notice().at_ms - 3 * 3_600_000
    await world.store.save({i: Change(notice(i, long_ago), "waiting") for i in ("n1", "n2")})
    assert await world.states() == {"n1": "failed", "n2": "failed"}
    await world.store.resend(["n1"], by="Ann")
    await world.store.save({})
    assert await world.states() == {"n1": "waiting", "n2": "failed"}


def test_what_a_receiver_says_shows_no_secret():
    """Whatever it repeats; on one line, and not too long."""
    url = "https://user:pass-word@chat.test/hook/T0KEN-a%2Fb?key=qu%C3%A9ry&x=1#frag"
    hook = Webhook(url=url, secret="s" * 16)
    said = f"Cannot POST {url}\n/hook/T0KEN-a%2Fb T0KEN-a/b quéry {'s' * 16} <b>no</b>\x00"
    text = legible(hook, said.encode() + b"\xff" + b"x" * 4000)
    assert not any(word in text for word in ("T0KEN", "qu", "pass-word", "ssss", "\n", "\x00"))
    assert text.startswith("Cannot POST …")
    assert "<b>no</b>" in text
    assert len(text) == 500
