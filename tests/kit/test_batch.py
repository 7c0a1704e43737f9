"""The batcher, with a store that answers when the test says so."""

import asyncio

import pytest

from sidecar.kit.batch import CallBatcher


class SlowStore:
    """Notes each batch, and holds its replies back until `answer` is called."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self._flights: asyncio.Queue[asyncio.Future] = asyncio.Queue()

    async def run(self, items):
        self.batches.append(list(items))
        flight = asyncio.get_running_loop().create_future()
        self._flights.put_nowait(flight)
        replies = await flight
        return [item * 10 for item in items] if replies is None else replies

    async def answer(self, replies=None):
        """The batch in flight is answered: tenfold, or with these replies."""
        (await self._flights.get()).set_result(replies)
        await settle()

    async def fail(self, error):
        (await self._flights.get()).set_exception(error)
        await settle()


async def settle():
    """Lets every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def store():
    return SlowStore()


@pytest.fixture
def submit(store):
    """Starts a caller for each item and returns the callers."""
    batcher = CallBatcher(store.run, limit=3)

    async def call(item):
        return await batcher.submit(item)

    async def start(*items):
        callers = [asyncio.create_task(call(item)) for item in items]
        await settle()
        return callers

    return start


async def test_an_idle_batcher_sends_at_once_and_alone(store, submit):
    """It waits for nobody, also after earlier batches."""
    for item in (1, 2):
        [caller] = await submit(item)
        assert store.batches[-1] == [item]
        await store.answer()
        assert await caller == item * 10
    assert store.batches == [[1], [2]]


async def test_who_comes_while_a_batch_is_in_flight_goes_together(store, submit):
    """One batch at a time; the next holds everybody who came meanwhile, in order."""
    callers = await submit(1)
    callers += await submit(2)
    callers += await submit(3)
    assert store.batches == [[1]]
    await store.answer()
    assert store.batches == [[1], [2, 3]]
    await store.answer()
    assert await asyncio.gather(*callers) == [10, 20, 30]


async def test_a_batch_has_no_more_than_the_limit(store, submit):
    """Items of one turn of the event loop go together, the rest with the batches that follow, in
    order."""
    callers = await submit(1, 2, 3, 4, 5, 6, 7)
    assert store.batches == [[1, 2, 3]]
    for _ in range(3):
        await store.answer()
    assert store.batches == [[1, 2, 3], [4, 5, 6], [7]]
    assert await asyncio.gather(*callers) == [10, 20, 30, 40, 50, 60, 70]


async def test_a_caller_cancelled_in_flight_takes_nothing_from_the_others(store, submit):
    """Their replies come, and the batch is not sent again."""
    first, second, third = await submit(1, 2, 3)
    second.cancel()
    await settle()
    assert second.cancelled()
    await store.answer()
    assert (await first, await third) == (10, 30)
    assert store.batches == [[1, 2, 3]]


async def test_the_item_of_a_caller_cancelled_before_its_flight_is_still_sent(store, submit):
    """It cannot be told from one that the store has already: both are done once."""
    await submit(1)
    [second] = await submit(2)
    second.cancel()
    await settle()
    await store.answer()
    assert store.batches == [[1], [2]]


async def test_an_error_reaches_everybody_in_its_batch_and_nobody_else(store, submit):
    """Those in the next batch have their own luck."""
    failed = await submit(1, 2, 3)
    [later] = await submit(4)
    await store.fail(OSError("away"))
    for caller in failed:
        with pytest.raises(OSError, match="away"):
            await caller
    await store.answer()
    assert await later == 40


@pytest.mark.parametrize("replies", [[], [10], [10, 20, 30]])
async def test_the_wrong_number_of_replies_is_everybodys_error(store, submit, replies):
    """Better no answer than another visitor's."""
    callers = await submit(1, 2)
    await store.answer(replies)
    for caller in callers:
        with pytest.raises(RuntimeError, match=f"2 items got {len(replies)} replies"):
            await caller


async def test_an_error_in_place_of_a_reply_is_its_items_alone(store, submit):
    """The batch was answered, and one of it refused."""
    first, second = await submit(1, 2)
    await store.answer([ValueError("no"), 20])
    with pytest.raises(ValueError, match="no"):
        await first
    assert await second == 20


async def test_a_flight_that_is_cancelled_leaves_nobody_waiting(store, submit):
    """At a shutdown those in flight and those behind it are all let go."""
    callers = await submit(1)
    callers += await submit(2, 3)
    known = {asyncio.current_task(), *callers}
    [flight] = asyncio.all_tasks() - known
    flight.cancel()
    await settle()
    assert all(caller.cancelled() for caller in callers)


async def test_a_batcher_whose_flight_was_cancelled_starts_anew(store, submit):
    """The next caller has a flight of its own."""
    [first] = await submit(1)
    [flight] = asyncio.all_tasks() - {asyncio.current_task(), first}
    flight.cancel()
    await settle()
    await store._flights.get()
    [second] = await submit(2)
    await store.answer()
    assert await second == 20
