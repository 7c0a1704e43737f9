"""Callbacks of jobs: one slow receiver holds up no other."""

import asyncio
import time
from base64 import b64encode
from collections.abc import Iterator

import pytest

from sidecar.http.metrics import Metrics
from sidecar.jobs.model import AttemptEnd, State
from sidecar.jobs.service import Jobs
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.worker.callbacks import MAX_IN_FLIGHT, MAX_PER_RECEIVER, call_back_forever
from sidecar.kit.egress import open_session
from sidecar.storage.sql import database as sql
from tests.support.jobs import job
from tests.support.receiver import Receiver, TwiceReceiver, until

#: Secrets of Standard Webhooks: the base64 of 24 to 64 bytes.
NEW, OLD = ("whsec_" + b64encode(byte * 32).decode() for byte in (b"n", b"o"))


class Hooks:
    """Receivers of the target `images`, and its jobs."""

    def __init__(self, store: JobStore, receivers: list[Receiver | TwiceReceiver]) -> None:
        self.store, self.receivers = store, receivers
        urls = [receiver.url.rpartition("/")[0] + "/" for receiver in receivers]
        self.settings = TargetSettings(
            url="https://images.example/", callback_urls=urls, callback_secret="s" * 16
        )

    def find(self, _: str) -> "Hooks":
        return self

    def __iter__(self) -> "Iterator[Hooks]":
        yield self

    async def ended(self, receiver: Receiver | TwiceReceiver, count: int, **more: object) -> None:
        """Jobs that have ended, whose callers wait there."""
        now_ms = round(time.time() * 1000)
        made = [
            job(
                created_ms=now_ms,
                expires_ms=now_ms + 60_000,
                callback_url=f"{receiver.url}/{n}",
                **more,
            )
            for n in range(count)
        ]
        await asyncio.gather(*map(self.store.jobs.insert, made))
        await self.store.attempts.start([(one.id, 1) for one in made], at_ms=now_ms)
        endings = [AttemptEnd(one.id, 1, State.COMPLETED, now_ms, now_ms + 60_000) for one in made]
        await asyncio.gather(*map(self.store.attempts.finish, endings))


@pytest.fixture
async def hooks(tmp_path):
    store = JobStore(sql.open_database(f"sqlite:///{tmp_path}/jobs.db"))
    await store.migrate()
    receivers = [await Receiver().start(), await Receiver().start(), await TwiceReceiver().start()]
    made = Hooks(store, receivers)
    jobs = Jobs(made, store, Metrics(), None)  # type: ignore[arg-type]
    async with open_session(is_private=True) as session:
        work = asyncio.create_task(call_back_forever(jobs, session, poll_s=0.05))
        yield made
        work.cancel()
        await asyncio.wait([work])
    for receiver in receivers:
        await receiver.stop()
    await store.close()


async def test_a_slow_receiver_holds_up_no_other(hooks):
    """It has so many calls at a time, however many wait; the other's are made meanwhile, also those
    that come later."""
    slow, other, _ = hooks.receivers
    slow.answers = [None] * 200
    await hooks.ended(slow, 2 * MAX_IN_FLIGHT)
    await until(lambda: len(slow.came) == MAX_PER_RECEIVER, "the slow one's")
    for count in (3, 6):
        await hooks.ended(other, 3)
        await until(lambda count=count: len(other.came) == count, "the other's")
        assert len(slow.came) == MAX_PER_RECEIVER
    slow.answers = []
    slow.let_go()
    await until(lambda: len(set(slow.ids)) == 2 * MAX_IN_FLIGHT, "the rest")
    assert len(set(other.ids)) == len(other.ids) == 6


async def test_an_answer_too_many_takes_no_callback(hooks):
    """A receiver that answers one callback twice has not taken the next, which is sent to it."""
    twice = hooks.receivers[-1]
    for count in (1, 2):
        await hooks.ended(twice, 1)
        await until(lambda count=count: len(set(twice.ids)) == count, "the callback")
        await twice.answer_again()


@pytest.mark.parametrize("kind", ["offline", "online"])
async def test_the_library_of_standard_webhooks_accepts_each_try(hooks, kind):
    """Signed with both secrets of a rotation, and with one id in all tries."""
    receiver = hooks.receivers[0]
    receiver.answers = [503]
    hooks.settings = hooks.settings.with_changes(
        {"callback_secret": NEW, "previous_callback_secret": OLD}
    )
    await hooks.ended(receiver, 1, kind=kind)
    await until(lambda: len(receiver.came) == 2, "the second try")
    (first, document), (second, _) = receiver.came
    assert first["webhook-id"] == second["webhook-id"] == receiver.ids[0]
    assert document["id"] in first["webhook-id"]
    assert receiver.find_genuine(NEW) == receiver.find_genuine(OLD) == [True, True]
    assert receiver.find_genuine("whsec_" + b64encode(b"x" * 32).decode()) == [False, False]
