"""The client against a real replica, with faults on the way between them."""

import ast
import asyncio
import datetime as dt
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import waitroom
from tests.support.http_server import serve
from tests.support.processes import CLEAN, free_port, wait_until
from tests.support.service import TOKEN
from tests.support.site import ROOT, call
from tests.waitroom.relay import BROKEN, Faulty
from waitroom import (
    Client,
    ConfigError,
    LeaseLost,
    Queued,
    Refused,
    RejectedError,
    UnavailableError,
)


async def until(true, what):
    await asyncio.to_thread(wait_until, true, what)


@contextmanager
def interrupted_when(is_ready, act=lambda: None):
    """Interrupt the block, as Ctrl-C does, when `is_ready` returns True. Call `act` just before."""

    def interrupt(*_):
        act()
        raise KeyboardInterrupt

    def press(thread):
        wait_until(is_ready, "the moment to interrupt")
        signal.pthread_kill(thread, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(1) as threads:
            pressed = threads.submit(press, threading.get_ident())
            with pytest.raises(KeyboardInterrupt):
                yield
            pressed.result()
    finally:
        signal.signal(signal.SIGUSR1, before)


def gateway(status, document):
    """Run a server that gives every request one response. Return a context with its address."""
    return serve(lambda _: (status, json.dumps(document).encode(), {}))


def now(room):
    """Return Redis' time, as an unused limit has it."""
    return room.look("few", n="nobody").at


@pytest.fixture
def dead():
    """Return the address of a stopped replica."""
    return f"http://127.0.0.1:{free_port()}"


# Its imports.


def test_it_knows_nothing_of_a_replica():
    """Of packages that are not Python's own the client imports httpx2, and aiohttp in one module,
    so that a program carries no server along."""
    names = set()
    for file in (ROOT / "client").rglob("*.py"):
        if file.name == "aiohttp_transport.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names.add(node.module)
    tops = {name.split(".")[0] for name in names}
    assert tops - sys.stdlib_module_names == {"httpx2", "waitroom"}


# Limits.


def test_a_call_is_granted_or_refused(room, n):
    """A permit has what is left; Refused has when to ask again."""
    first = room.acquire("few", n=n)
    assert (first.rule, first.key, first.outcome) == ("few", str(n), "granted")
    assert (first.allowed, first.limit, first.remaining, first.wait_seconds) == (True, 2, 1, 0)
    room.acquire("few", key=str(n))
    with pytest.raises(Refused, match=f"few of {n} refuses.*ask again after") as caught:
        room.acquire("few", n=n)
    assert 1700 < caught.value.retry_after <= 1800
    assert caught.value.document["outcome"] == "refused"
    with pytest.raises(Refused) as caught:
        room.acquire("none")
    assert caught.value.retry_after == 60


def test_a_paced_call_comes_at_its_moment(room, n):
    """With wait=True calls return at evenly spaced moments of Redis' clock, never early. Without it
    the permit has how long to wait, and can be given back."""
    permits = []
    for _ in range(4):
        permits.append(room.acquire("brisk", n=n, wait=True))
        assert now(room) >= permits[-1].at
    assert [permit.outcome for permit in permits[1:]] == ["paced"] * 3
    gaps = [(b.at - a.at).total_seconds() for a, b in itertools.pairwise(permits)]
    assert all(gap >= 1 for gap in gaps)

    room.acquire("slow", n=n)
    permit = room.acquire("slow", n=n)
    assert permit.wait_seconds > 3500
    assert room.release(permit) is True
    assert room.release(permit) is False
    assert room.acquire("slow", n=n).at == permit.at


async def test_who_is_cancelled_asleep_gives_the_moment_back(room, aroom, n):
    """A task that is cancelled while it waits for its moment has given it back when it ends."""
    await aroom.acquire("slow", n=n)
    second = room.look("slow", n=n).at
    task = asyncio.create_task(aroom.acquire("slow", n=n, wait=True))
    await until(lambda: room.look("slow", n=n).at > second, "its booking")
    await aroom.look("slow", n=n)  # the reply to the booking came before this one
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert room.look("slow", n=n).at == second


async def test_who_is_cancelled_before_the_answer_gives_it_back(new_aclient, room, url, n):
    """The permit of a cancelled task is given back before the client is closed."""
    room.acquire("slow", n=n)
    second = room.look("slow", n=n).at
    with Faulty(url) as relay:
        relay.lets_pass.clear()
        async with new_aclient(relay.address, token=TOKEN) as aroom:
            task = asyncio.create_task(aroom.acquire("slow", n=n, wait=True))
            await until(relay.holds.is_set, "the reply")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert room.look("slow", n=n).at > second
            closing = asyncio.create_task(aroom.aclose())
            relay.lets_pass.set()
            await closing
            assert room.look("slow", n=n).at == second


def test_a_decorated_function_is_limited(room, n):
    """Each call of a decorated function counts, and a field may be a function of its arguments."""

    @room.limited("few", n=lambda order, **_: f"{n}-{order}")
    def pay(order, *, amount):
        return order, amount

    assert pay.__name__ == "pay"
    assert [pay("a", amount=1), pay("a", amount=2), pay("b", amount=3)] == [
        ("a", 1),
        ("a", 2),
        ("b", 3),
    ]
    with pytest.raises(Refused):
        pay("a", amount=4)


async def test_an_async_function_is_limited_too(room, aroom, n):
    """AsyncClient decorates async functions, Client the others; each refuses the other kind."""

    @aroom.limited("few", n=n)
    async def pay(order):
        return order

    assert [await pay(1), await pay(2)] == [1, 2]
    with pytest.raises(Refused):
        await pay(3)
    with pytest.raises(TypeError, match="is async: use AsyncClient"):
        room.limited("few", n=n)(pay)
    with pytest.raises(TypeError, match="is not async: use Client"):
        aroom.limited("few", n=n)(print)


async def test_a_function_that_does_not_wait_is_not_called_early(room, aroom, n):
    """If the limit paces, a decorated call that would have to wait is refused, and its moment is
    given back."""
    called = []

    @room.limited("slow", n=n)
    def pay():
        called.append("thread")

    @aroom.limited("slow", n=n)
    async def apay():
        called.append("task")

    pay()
    second = room.look("slow", n=n).at
    for _ in range(2):
        with pytest.raises(Refused, match=f"limit slow of {n}") as caught:
            pay()
        assert 3500 < caught.value.retry_after <= 3600
        with pytest.raises(Refused):
            await apay()
    assert called == ["thread"]
    assert room.look("slow", n=n).at == second


def test_a_child_has_connections_of_its_own(room, n):
    """A client that was used before a fork asks anew after it, in both processes."""
    room.look("many", n=n)
    parents = room._core._transport
    pid = os.fork()
    if pid == 0:
        try:
            with room:
                told = [room.acquire("many", n=f"child-{n}").key for _ in range(20)]
            is_right = room._core._transport is not parents and set(told) == {f"child-{n}"}
            os._exit(0 if is_right else 1)
        finally:
            os._exit(2)
    assert {room.acquire("many", n=n).key for _ in range(20)} == {str(n)}
    assert os.waitpid(pid, 0)[1] == 0
    assert room._core._transport is parents


def test_threads_share_a_client(room, n):
    """Three threads with one client are granted as much as the limit, together."""

    def ask(_):
        try:
            return room.acquire("many", n=n, cost=10).allowed
        except Refused:
            return False

    with ThreadPoolExecutor(3) as threads:
        assert sum(threads.map(ask, range(45))) == 30


async def test_who_gives_up_asking_again_gives_it_back(new_aclient, room, url, n):
    """A call whose response was lost gives its permit back if it is not tried again. One with the
    caller's own id keeps it."""
    with Faulty(url, lose=1) as relay, pytest.raises(UnavailableError):
        Client(relay.address, token=TOKEN, retries=0).acquire("slow", n=n, id="mine")
    with Faulty(url, lose=1) as relay:
        async with new_aclient(relay.address, token=TOKEN, retries=1) as aroom:
            pauses = asyncio.Event()

            async def sleep(_):
                pauses.set()
                await asyncio.Event().wait()

            aroom._core.pause = sleep
            task = asyncio.create_task(aroom.acquire("slow", n=n, wait=True))
            await pauses.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert room.look("slow", n=n).wait_seconds <= 3600
    with Faulty(url, lose=2) as relay, Client(relay.address, token=TOKEN, retries=1) as lossy:
        with pytest.raises(UnavailableError):
            lossy.acquire("slow", n=n)
        assert relay.asked == 3
    assert room.look("slow", n=n).wait_seconds <= 3600
    assert room.acquire("slow", n=n, id="mine").outcome == "granted"


@pytest.mark.parametrize(
    ("status", "document", "error"),
    [
        (429, {"title": "Slow down"}, UnavailableError), (429, [], UnavailableError),
        (200, [], RejectedError), (200, {}, RejectedError), (200, [{}], RejectedError),
        (200, [None], RejectedError), (409, "no", RejectedError),
        (422, {"errors": 7, "title": None}, RejectedError),
    ],
)  # fmt: skip
async def test_what_no_replica_said_is_an_error(new_aclient, status, document, error):
    """A gateway's 429, a page of a captive portal or a list that is too short is an error, neither
    a permission nor an endless wait."""
    with gateway(status, document) as address, Client(address, retries=0) as room:
        for ask in (room.acquire, room.look):
            with pytest.raises(error, match=f"{status}"):
                ask("few", n=1)
        with pytest.raises((UnavailableError, RejectedError)), room.lease("title", "a", wait=0):
            pass
        async with new_aclient(address, retries=0) as aroom:
            calls = (aroom.acquire("few", n=n) for n in range(2))
            told = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
            assert [type(one) for one in told] == [error] * 2


# Permits.


def test_a_permit_tells_its_own_end(room, n):
    """Only a permit of concurrency has an end."""
    assert room.acquire("export", n=n).expires_in_seconds == 2
    assert room.acquire("slow", n=n).expires_in_seconds is None
    with pytest.raises(Refused) as caught:
        room.acquire("export", n=n)
    assert caught.value.document["expires_in_seconds"] is None


def test_a_permit_is_kept_and_given_back(room, n):
    """The block holds the permit for longer than its lease; at its end, also by an error, it is
    free."""
    with pytest.raises(OSError, match="broke"), room.permit("export", n=n) as permit:  # noqa: PT012
        wait_until(lambda: (now(room) - permit.at).total_seconds() > 2.2, "the end of a lease")
        with pytest.raises(Refused):
            room.acquire("export", n=n)
        raise OSError("broke")
    with room.permit("export", n=n), pytest.raises(Refused), room.permit("export", n=n):
        pass


async def test_a_task_keeps_its_permit(room, aroom, n):
    """A task holds a permit too, and a cancelled one gives it back."""

    async def hold():
        async with aroom.permit("export", n=n):
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await until(lambda: room.look("export", n=n).remaining == 0, "the permit")
    taken = now(room)
    await until(lambda: (now(room) - taken).total_seconds() > 2.2, "the end of a lease")
    with pytest.raises(Refused):
        await aroom.acquire("export", n=n)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert room.look("export", n=n).remaining == 1


async def test_a_permit_can_be_waited_for(aroom, n):
    """With wait=True all tasks get the permit in the end, one at a time."""
    inside = most = done = 0

    @aroom.permit("export", n=n, wait=True)
    async def export():
        nonlocal inside, most, done
        inside += 1
        most = max(most, inside)
        await aroom.look("export", n=n)
        inside, done = inside - 1, done + 1

    await asyncio.gather(*(export() for _ in range(3)))
    assert (most, done) == (1, 3)


#: Holds a permit until it reads a line. Prints what it did, as JSON.
HOLDER = """
import sys
from waitroom import Client, LeaseLost

url, token, n = sys.argv[1:]
with Client(url, token=token) as client:
    try:
        with client.permit("export", n=n) as permit:
            print("held", flush=True)
            sys.stdin.readline()
            try:
                permit.check()
            except LeaseLost:
                print("checked", flush=True)
    except LeaseLost as error:
        print(error, flush=True)
"""


def test_a_permit_lost_in_a_pause_is_told(room, url, n):
    """A process that was stopped for longer than its permit lasts raises LeaseLost: by check(), and
    at the end of the block. Another one had the permit meanwhile."""
    command = [sys.executable, "-c", HOLDER, url, TOKEN, str(n)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=CLEAN, **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        with room.permit("export", n=n, wait=20):
            holder.stdin.write("\n")
            holder.stdin.flush()
            os.kill(holder.pid, signal.SIGCONT)
            assert holder.stdout.read() == (
                f"checked\nthe permit of limit export of {n} is over: others may have it by now\n"
            )
            with pytest.raises(Refused):
                room.acquire("export", n=n)


# Waiting.


@pytest.mark.parametrize("wait", [None, False])
async def test_none_and_false_do_not_wait(room, aroom, n, wait):
    """What cannot be had at once is refused, or for a lease an error with the place."""
    with room.permit("export", n=n), room.lease("title", str(n)):
        with pytest.raises(Refused):
            room.acquire("export", n=n, wait=wait)
        with pytest.raises(Refused):
            await aroom.permit("export", n=n, wait=wait).__aenter__()
        with pytest.raises(Refused):
            room.limited("export", n=n, wait=wait)(int)()
        with pytest.raises(TimeoutError):
            await aroom.lease("title", str(n), wait=wait).__aenter__()


async def test_after_a_number_of_seconds_comes_one_error(room, aroom, n):
    """TimeoutError of the package, which is also Python's, for a refusal and a late moment. Nothing
    stays behind."""
    room.acquire("slow", n=n)
    with room.permit("export", n=n), room.lease("title", str(n)):
        for begin in (
            lambda: room.acquire("export", n=n, wait=0.2),
            lambda: room.acquire("slow", n=n, wait=0.2),
            room.limited("export", n=n, wait=0.2)(int),
            room.limited("slow", n=n, wait=0.2)(int),
            room.permit("export", n=n, wait=0.2).__enter__,
            room.lease("title", str(n), wait=0.2).__enter__,
        ):
            with pytest.raises(waitroom.TimeoutError) as caught:
                begin()
            assert isinstance(caught.value, TimeoutError)
        with pytest.raises(TimeoutError):
            await aroom.acquire("slow", n=n, wait=0.2)
        with pytest.raises(TimeoutError):
            await aroom.permit("export", n=n, wait=0.2).__aenter__()
    assert 3000 < room.look("slow", n=n).wait_seconds <= 3600
    assert room.look("export", n=n).remaining == 1


def test_a_full_queue_is_refused(room, n):
    """Also in a plain request: it is a normal response, and not repeated."""
    with room.lease("full", str(n)), pytest.raises(Refused, match="429") as caught:
        room.request("POST", f"/v1/leases/full/{n}", {"holder": "b"})
    assert caught.value.retry_after > 0


# Leases.


def test_a_lease_is_held_and_given_up(room, in_use, n):
    """A lease has a growing fencing number and a term; it is released at the end of the block, also
    by an error."""
    fences = []
    term = dt.timedelta(minutes=1)
    for _ in range(2):
        before = now(room)
        with (  # noqa: PT012
            pytest.raises(OSError, match="broke"),
            room.lease("title", str(n), holder="a") as lease,
        ):
            assert in_use("title", n) == (["a"], 0)
            # Terms are told in ms.
            assert lease.expires_at + dt.timedelta(milliseconds=1) > before + term
            assert lease.expires_at <= now(room) + term
            assert 0 < lease.left_seconds <= 60
            fences.append(lease.fence)
            raise OSError("broke")
        assert in_use("title", n) == ([], 0)
    assert fences[0] < fences[1]


def test_who_does_not_wait_is_told_its_place(room, in_use, n):
    """Without waiting, or after it, Queued is raised and the place given up."""
    with room.lease("title", str(n), holder="a"):
        for wait in (0, 0.05):
            with (
                pytest.raises(Queued, match="place 1 in the queue") as caught,
                room.lease("title", str(n), wait=wait),
            ):
                pass
            assert caught.value.position == 1
            assert in_use("title", n) == (["a"], 0)
    with (
        room.lease("full", str(n)),
        pytest.raises(Refused, match=f"the queue for full/{n} is full"),
        room.lease("full", str(n), wait=60),
    ):
        pass


def test_a_release_wakes_the_next(room, in_use, n):
    """In the order of coming, although no heartbeat is due for half an hour. The others wait on."""
    held = []

    def edit(name):
        with room.lease("rare", str(n), holder=name) as lease:
            held.append((name, lease.fence))

    with ThreadPoolExecutor(5) as threads:
        with room.lease("rare", str(n), holder="a"):
            later = []
            for number in range(5):
                later.append(threads.submit(edit, f"h{number}"))
                wait_until(lambda k=number: in_use("rare", n)[1] == k + 1, "the next in line")
        for each in later:
            each.result(20)
    assert [name for name, _ in held] == [f"h{number}" for number in range(5)]
    assert held == sorted(held, key=lambda each: each[1])


async def test_a_lease_is_renewed_by_itself(room, aroom, in_use, n):
    """With `renew` it outlives its term in both clients, and then the next one has a whole term,
    however long it has waited."""

    def edit():
        with room.lease("brief", str(n), holder="a", renew=True) as lease:
            first = lease.expires_at
            wait_until(lambda: now(room) - first > dt.timedelta(seconds=1), "more than a term")
            assert lease.left_seconds > 0
            lease.check()

    thread = asyncio.create_task(asyncio.to_thread(edit))
    await until(lambda: in_use("brief", n)[0] == ["a"], "the first holder")
    async with aroom.lease("brief", str(n), holder="b", renew=True) as lease:
        await thread
        assert lease.left_seconds > 0
        first = lease.expires_at
        await until(lambda: now(room) - first > dt.timedelta(seconds=1), "more than a term")
        lease.check()


async def test_a_lease_that_cannot_be_renewed_is_lost(room, aroom, url, n, caplog):
    """With `renew` the block of a lease that somebody released, or whose longest term is over, ends
    with LeaseLost, which check() raises before."""

    def lose(lease):
        call("DELETE", f"{url}/v1/leases/brief/{n}?holder=a", TOKEN)
        wait_until(lambda: not lease.left_seconds, "the renewal")
        with pytest.raises(LeaseLost, match=over):
            lease.check()

    over = f"lease brief/{n} is over"
    with (
        pytest.raises(LeaseLost, match=over),
        room.lease("brief", str(n), holder="a", renew=True) as lease,
    ):
        lose(lease)
    with pytest.raises(LeaseLost, match=f"lease last/{n} is over"):
        async with aroom.lease("last", str(n), holder="a", renew=True) as lease:
            await until(lambda: not lease.left_seconds, "the end of the longest term")
    assert f"lease last/{n} is not renewed: max_term is reached" in caplog.text


async def test_a_failed_try_is_no_part_of_the_term(new_aclient, url, n):
    """A replica that did not respond costs the term of the lease or the permit nothing."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        addresses = [f"http://127.0.0.1:{frozen.getsockname()[1]}", url]
        with (
            Client(addresses, token=TOKEN, timeout=3) as room,
            room.lease("brief", str(n), holder="a") as lease,
        ):
            assert lease.left_seconds > 2
        async with (
            new_aclient(addresses, token=TOKEN, timeout=3) as aroom,
            aroom.permit("export", n=n) as permit,
        ):
            assert permit.left_seconds > 0


def test_one_error_does_not_end_the_renewals(room, url, in_use, n):
    """After an internal error of a replica, the next renewal is tried."""
    with Faulty(url) as relay, Client(relay.address, token=TOKEN) as holder:
        with holder.lease("brief", str(n), holder="a", renew=True) as lease:
            first = lease.expires_at
            relay.respond(BROKEN)
            wait_until(lambda: now(room) - first > dt.timedelta(seconds=1), "more than a term")
            lease.check()
        assert in_use("brief", n) == ([], 0)


def test_an_error_while_it_waits_leaves_the_line(room, url, in_use, n):
    """A holder whose poll was rejected does not stay in the queue, to be called for nothing."""
    with room.lease("title", str(n), holder="a"), Faulty(url) as relay:
        with Client(relay.address, token=TOKEN) as other, ThreadPoolExecutor(1) as pool:
            waits = pool.submit(other.lease("title", str(n), wait=True).__enter__)
            wait_until(lambda: in_use("title", n)[1] == 1, "the other in line")
            relay.respond(BROKEN)
            with pytest.raises(RejectedError):
                waits.result(timeout=60)
        assert in_use("title", n) == (["a"], 0)


async def test_a_cancelled_task_leaves_the_line(aroom, in_use, n):
    """A task that is cancelled while it waits leaves the queue before it ends."""

    async def edit():
        async with aroom.lease("title", str(n), wait=60):
            raise AssertionError

    async with aroom.lease("title", str(n), holder="a") as lease:
        task = asyncio.create_task(edit())
        await until(lambda: in_use("title", n)[1] == 1, "the other in line")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert in_use("title", n) == (["a"], 0)
        with pytest.raises(RejectedError, match="not renewable"):
            await lease.renew()
    assert in_use("title", n) == ([], 0)


def test_an_interrupted_thread_leaves_the_line(room, in_use, n):
    """Ctrl-C while a thread waits leaves the queue first."""
    with room.lease("title", str(n), holder="a"):
        with (
            interrupted_when(lambda: in_use("title", n)[1] == 1),
            room.lease("title", str(n), wait=20),
        ):
            pass
        assert in_use("title", n) == (["a"], 0)


def test_a_thread_interrupted_before_the_answer_gives_the_call_back(room, url, n):
    """Ctrl-C between a limit's decision and its arrival: the next call gets the reserved time."""
    room.acquire("slow", n=n)
    second = room.look("slow", n=n).at
    with Faulty(url) as relay, Client(relay.address, token=TOKEN) as slow:
        relay.lets_pass.clear()
        with interrupted_when(relay.holds.is_set, relay.lets_pass.set):
            slow.acquire("slow", n=n, wait=True)
        assert room.look("slow", n=n).at == second


async def test_a_block_that_outlives_its_term_does_not_end_without_a_word(
    new_aclient, room, url, n, caplog
):
    """A block that outlives the term ends with LeaseLost, and check() raises it before. The block's
    own error comes through, with a warning in the log."""

    over = f"lease title/{n} is over: its term ended"

    def outlive(lease, *, then=None) -> None:
        lease.check()
        lease._ends_at_monotonic_s -= 60
        with pytest.raises(LeaseLost, match=over):
            lease.check()
        if then:
            raise then

    with pytest.raises(LeaseLost, match=over), room.lease("title", str(n)) as lease:
        outlive(lease)
    caplog.clear()
    with pytest.raises(ZeroDivisionError), room.lease("title", str(n)) as lease:
        outlive(lease, then=ZeroDivisionError)
    assert f"lease title/{n} was over before its block" in caplog.messages
    async with new_aclient(url, token=TOKEN) as aroom:
        with pytest.raises(LeaseLost, match=over):
            async with aroom.lease("title", str(n)) as lease:
                outlive(lease)


def test_a_lease_is_renewed_or_lost(room, url, n):
    """A renewal moves the end and keeps the fencing number. It raises LeaseLost if the lease is
    over, and RejectedError if the template is not renewable."""
    with room.lease("desk", str(n), holder="a") as lease:
        before = lease.fence, lease.expires_at
        lease.renew()
        assert lease.fence == before[0]
        assert lease.expires_at > before[1]
        call("DELETE", f"{url}/v1/leases/desk/{n}?holder=a", TOKEN)
        with pytest.raises(LeaseLost, match=f"lease desk/{n} is over"):
            lease.renew()
        with room.lease("desk", str(n), holder="a") as newer:
            assert newer.fence > lease.fence
            with pytest.raises(LeaseLost, match=f"lease desk/{n} is over"):
                lease.renew()
            newer.renew()
    with room.lease("title", str(n)) as lease, pytest.raises(RejectedError, match="not renewable"):
        lease.renew()


# What goes wrong.


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda room: room.acquire("more", n=1), "404.*no limit is named 'more'"),
        (lambda room: room.acquire("few"), "422.*n: is needed"),
        (lambda room: room.acquire("few", n=1, biz="a"), "422.*biz: is no part of the key"),
        (lambda room: room.acquire("few", n=1, cost=3), "cost.* 3 is more than"),
        (lambda room: room.acquire("few", n=1, id="a b"), "422.*id: 1 to 64"),
        (lambda room: room.acquire("few", n=None), "field n: a text or a whole number"),
        (lambda room: room.acquire("few", key="1", n=1), "its key or its fields, not both"),
        (lambda room: room.lease("title", "a/b").__enter__(), "422.*resource: 1 to 128"),
        (lambda room: room.lease("none", "a").__enter__(), "404.*no lease is named 'none'"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(room, call, said):
    """RejectedError names the value and what is allowed."""
    with pytest.raises(RejectedError, match=said):
        call(room)


def test_a_wrong_token_and_a_wrong_listener_are_told(url, service):
    """A wrong token names the setting; the wrong listener names the right one."""
    for token in ("", "wrong"):
        with Client(url, token=token) as room, pytest.raises(RejectedError) as caught:
            room.acquire("few", n=1)
        assert caught.value.status == 401
        assert "service_token" in str(caught.value)
    edge = (service.folder / "replica-0.toml").read_text().split('edge_listen = "')[1].split('"')[0]
    with Client(f"http://{edge}") as room, pytest.raises(RejectedError, match="ops_listen"):
        room.acquire("few", n=1)


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:8401", "ftp://a", "http://", "http://a/b", "unix:"]
)
def test_an_address_that_cannot_be_is_told_at_once(address):
    with pytest.raises(ConfigError, match=r"address: write http://host:port"):
        Client(address)


async def test_no_replica_is_told_with_its_address(new_aclient, dead, n):
    """If nobody listens, UnavailableError names the address."""
    with (
        Client(dead, retries=1) as room,
        pytest.raises(UnavailableError, match=f"no replica answers at {dead}: .*refused"),
    ):
        room.acquire("few", n=n)
    async with new_aclient(dead, retries=1) as aroom:
        with pytest.raises(UnavailableError, match=f"no replica answers at {dead}"):
            await aroom.acquire("few", n=n)
        with pytest.raises(UnavailableError):
            await aroom.lease("title", str(n)).__aenter__()


def test_a_reply_that_does_not_come_is_told(url, n):
    """If no response comes in time, UnavailableError says how long that was."""
    with Faulty(url) as relay:
        relay.lets_pass.clear()
        with (
            Client(relay.address, token=TOKEN, timeout=0.2, retries=0) as room,
            pytest.raises(UnavailableError, match=r"did not answer within 0\.2 s"),
        ):
            room.look("few", n=n)
        relay.lets_pass.set()


@pytest.mark.parametrize("fault", ["lose", "away"])
async def test_a_retried_call_counts_once(new_aclient, room, url, n, fault):
    """A call whose first response is lost, or a 503, is sent again and counted once, alone or with
    others. Without retries it is an error."""
    with Faulty(url, **{fault: 1}) as relay, Client(relay.address, token=TOKEN) as retrying:
        assert retrying.acquire("many", n=f"{n}-a").remaining == 299
        assert relay.asked == 2
    with Faulty(url, **{fault: 1}) as relay:
        async with new_aclient(relay.address, token=TOKEN) as retrying:
            await asyncio.gather(*(retrying.acquire("many", n=f"{n}-b") for _ in range(20)))
    with (
        Faulty(url, **{fault: 1}) as relay,
        Client(relay.address, token=TOKEN, retries=0) as once,
        pytest.raises(UnavailableError),
    ):
        once.acquire("many", n=f"{n}-c")
    assert room.look("many", n=f"{n}-a").remaining == 299
    assert room.look("many", n=f"{n}-b").remaining == 280


def test_a_lost_reply_loses_no_lease(room, url, in_use, n):
    """A lost response neither loses a lease nor its release."""
    with Faulty(url, lose=1) as relay, Client(relay.address, token=TOKEN) as retrying:
        with retrying.lease("title", str(n), holder="a") as lease:
            assert in_use("title", n) == (["a"], 0)
            assert lease.fence
            relay._lose = 1
        assert relay._lose == 0
    assert in_use("title", n) == ([], 0)


def test_a_unix_socket_is_an_address(url, service, n):
    """An address may be a unix socket."""
    path = str(service.folder / f"ops-{n}.sock")
    with Faulty(url, path=path) as relay, Client(relay.address, token=TOKEN) as room:
        assert room.acquire("few", n=n).allowed
        assert relay.asked == 1


# Many at a time.


async def test_calls_that_come_together_go_together(new_aclient, url, n):
    """Of 500 tasks exactly the limit is granted, in at most 20 requests."""
    with Faulty(url) as relay:
        async with new_aclient(relay.address, token=TOKEN) as room:
            asked = (room.acquire("many", n=n) for _ in range(500))
            told = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, Refused) for each in told) == 200
        assert sum(getattr(each, "allowed", False) for each in told) == 300
        assert relay.asked <= 20


async def test_one_wrong_call_fails_alone(aroom, n):
    """A wrong call has its error, and the calls of the same request have their decisions."""
    calls = [{"n": n} for _ in range(20)]
    calls[7:10] = {"n": n, "cost": 0}, {"m": n}, {"n": n, "cost": 301}
    asked = (aroom.acquire("many", **call) for call in calls)
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each).__name__ for each in told[7:10]] == ["RejectedError"] * 3
    assert "cost: a whole number" in str(told[7])
    assert "m: is no part of the key" in str(told[8])
    assert "a cost of 301 is more than 300" in str(told[9])
    assert all(each.allowed for each in told[:7] + told[10:])
    assert (await aroom.look("many", n=n)).remaining == 283


# Several replicas.


async def test_a_stopped_replica_is_not_the_end(new_aclient, url, dead, n):
    """If the first replica does not answer, the next one is asked, and from then on first."""
    with Client([dead, url], token=TOKEN, retries=0) as client:
        assert client.acquire("few", n=n).allowed
        assert client._core.wire.replicas[client._core.preferred].address == url
        with client.lease("title", str(n)) as lease:
            assert lease.fence
    async with new_aclient([dead, url], token=TOKEN, retries=0) as aclient:
        assert (await aclient.look("few", n=n)).remaining == 1
        told = await asyncio.gather(*(aclient.acquire("many", n=n) for _ in range(20)))
        assert all(each.allowed for each in told)
    with (
        Client([dead, dead], retries=0) as client,
        pytest.raises(UnavailableError, match=f"no replica answers at {dead}") as caught,
    ):
        client.acquire("few", n=n)
    assert not caught.value.is_sent


@pytest.mark.parametrize("fault", ["lose", "away"])
async def test_a_call_that_moves_on_counts_once(new_aclient, room, url, n, fault):
    """A call whose response is lost at the first replica, or a 503, goes to the next, and counts
    once."""
    with (
        Faulty(url, **{fault: 1}) as relay,
        Client([relay.address, url], token=TOKEN, retries=0) as client,
    ):
        assert client.acquire("many", n=n).remaining == 299
        assert relay.asked == 1
    with Faulty(url, **{fault: 1}) as relay:
        async with new_aclient([relay.address, url], token=TOKEN, retries=0) as client:
            await asyncio.gather(*(client.acquire("many", n=n) for _ in range(20)))
            assert relay.asked == 1
    assert room.look("many", n=n).remaining == 279


async def test_a_closed_connection_is_no_reason_to_repeat(new_aclient, url, n):
    """A server that reads a request and closes the connection may have acted on it: an unknown POST
    is sent once, on a new connection and on a reused one."""
    body = {"fields": {"n": str(n)}}
    for earlier in (0, 1):
        with Faulty(url) as relay:
            async with new_aclient([relay.address, url], token=TOKEN) as aroom:
                for _ in range(earlier):
                    await aroom.request("GET", "/v1/leases")
                relay.lose()
                with pytest.raises(UnavailableError, match="closed the connection") as caught:
                    await aroom.request("POST", "/v1/limits/few/acquire", body)
                assert caught.value.is_sent
                assert relay.asked == earlier + 1
                assert (await aroom.look("few", n=n)).remaining == 1 - earlier


def test_what_is_not_safe_to_repeat_is_not_repeated(url, dead, n):
    """An unknown POST goes to another replica only if it never arrived at the first."""
    body = {"fields": {"n": str(n)}}
    with Faulty(url, lose=1) as relay, Client([relay.address, url], token=TOKEN) as client:
        with pytest.raises(UnavailableError) as caught:
            client.request("POST", "/v1/limits/few/acquire", body)
        assert caught.value.is_sent
        assert relay.asked == 1
        assert client.look("few", n=n).remaining == 1
    with Client([dead, url], token=TOKEN, retries=0) as client:
        assert client.request("POST", "/v1/limits/few/acquire", body)["remaining"] == 0


def test_an_error_carries_the_problem_document(room, n):
    """An error has the status, title, detail, code, type and errors of the response."""
    with pytest.raises(RejectedError) as caught:
        room.request("POST", "/v1/limits/few/acquire", {"fields": {"n": str(n)}, "cost": 0})
    problem = caught.value.problem
    assert (problem.status, problem.title) == (422, "The request is not allowed")
    assert problem.type == f"urn:waitroom:problem:{problem.code}"
    assert problem.code == "invalid_request"
    assert problem.errors == caught.value.problems
    assert problem.errors[0].startswith("cost: a whole number")
