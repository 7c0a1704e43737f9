"""The client's batcher, with a replica that answers when the test says so."""

import asyncio

import pytest

from waitroom.batch import Batcher


class Slow:
    """Notes each batch, and holds its replies back until `answer` is called."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.unseen: list[tuple[int, int]] = []
        self._flights: asyncio.Queue[asyncio.Future] = asyncio.Queue()
        self.batcher = Batcher(
            self._run,
            max_size=3,
            max_senders=2,
            on_unclaimed=lambda *pair: self.unseen.append(pair),
        )

    async def _run(self, items):
        self.batches.append(list(items))
        flight = asyncio.get_running_loop().create_future()
        self._flights.put_nowait(flight)
        await flight
        return [ValueError(item) if item < 0 else item * 10 for item in items]

    async def submit(self, *items):
        """Starts a caller for each; returns the callers."""
        callers = [asyncio.create_task(self.batcher.submit(item)) for item in items]
        await settle()
        return callers

    async def answer(self, error=None):
        flight = await self._flights.get()
        flight.set_exception(error) if error else flight.set_result(None)
        await settle()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def slow():
    return Slow()


async def test_those_of_one_turn_go_together(slow):
    """Items of the same turn of the loop are one batch, up to the limit; the rest is the next one,
    at the same time; beyond so many batches they wait, and then go together."""
    callers = await slow.submit(1, 2, 3, 4)
    assert slow.batches == [[1, 2, 3], [4]]
    callers += await slow.submit(5)
    callers += await slow.submit(6)
    assert slow.batches == [[1, 2, 3], [4]]
    await slow.answer()
    assert slow.batches[2:] == [[5, 6]]
    await slow.answer()
    await slow.answer()
    assert [await caller for caller in callers] == [10, 20, 30, 40, 50, 60]


async def test_an_items_error_is_its_own(slow):
    """One item's error is raised for that item; an error of the request for all of the batch."""
    good, bad = await slow.submit(1, -2)
    await slow.answer()
    assert await good == 10
    with pytest.raises(ValueError, match="-2"):
        await bad
    callers = await slow.submit(3, 4)
    await slow.answer(OSError("away"))
    for caller in callers:
        with pytest.raises(OSError, match="away"):
            await caller


async def test_too_few_answers_are_none():
    """Nobody waits for one that does not come."""

    async def run(items):
        return items[1:]

    batcher = Batcher(run, max_size=3, max_senders=1, on_unclaimed=lambda *_: None)
    told = await asyncio.gather(*map(batcher.submit, (1, 2)), return_exceptions=True)
    assert [str(one) for one in told] == ["2 calls got 1 answers"] * 2


async def test_who_is_cancelled_before_is_not_sent(slow):
    """A caller that is cancelled while its item waits takes it along, and costs no batch."""
    callers = await slow.submit(1, 2, 3, 4, 5, 6, 7, 8)
    callers[6].cancel()
    callers[7].cancel()
    for _ in range(2):
        await slow.answer()
    assert slow.batches == [[1, 2, 3], [4, 5, 6]]
    assert [await caller for caller in callers[:6]] == [10, 20, 30, 40, 50, 60]
    assert slow.unseen == []


async def test_a_reply_that_nobody_sees_is_told(slow):
    """The reply for a caller that was cancelled on the way is handed to `on_unclaimed`;
    so is one that came in the same turn as the cancellation."""
    gone, there = await slow.submit(1, 2)
    gone.cancel()
    await slow.answer()
    assert await there == 20
    assert slow.unseen == [(1, 10)]
    (late,) = await slow.submit(3)
    flight = await slow._flights.get()
    flight.set_result(None)
    while not late._fut_waiter.done():
        await asyncio.sleep(0)
    late.cancel()
    await settle()
    assert late.cancelled()
    assert slow.unseen == [(1, 10), (3, 30)]
