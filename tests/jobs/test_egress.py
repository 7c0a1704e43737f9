"""One call of a job, to a target that misbehaves, and to places where it must not go."""

import asyncio
import contextlib
import errno
import itertools
import json
import os
import socket
import ssl
import subprocess
import time
from email.utils import formatdate
from urllib.parse import urlsplit

import pytest
from aiohttp.abc import AbstractResolver

from sidecar import __version__
from sidecar.jobs.call_result import CallResult
from sidecar.jobs.model import CHUNK_BYTES, Job
from sidecar.jobs.settings import TargetSettings, read_target
from sidecar.jobs.worker.target_call import Egress, LateCallError, SendWindow
from sidecar.kit import egress as connections
from sidecar.kit.errors import DatabaseError
from tests.support.processes import free_port
from tests.support.receiver import run_flood
from tests.support.target import PART, Target, run_target

ALL = ["GET", "HEAD", "POST", "PUT", "DELETE"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with run_target(tmp_path_factory.mktemp("target")) as target:
        yield target


@pytest.fixture
async def egress():
    """Names lead to this machine."""
    egress = Egress(resolver=Names(["127.0.0.1"]))
    yield egress
    await egress.close()


class Names(AbstractResolver):
    """Stands for the DNS: the next of the answers, each a list of addresses; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host, port=0, family=socket.AF_UNSPEC):
        self.asked.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            {"hostname": host, "host": one, "port": port, "family": family, "proto": 0, "flags": 0}
            for one in answer
        ]

    async def close(self) -> None:
        pass


class Kept:
    """What a sink was given."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, bytes]] = []

    async def __call__(self, number: int, data: bytes) -> None:
        self.parts.append((number, data))


def to_job(path: str = "ok", **said) -> Job:
    path, _, query = path.partition("?")
    given = {
        "id": f"job-{next(_numbers)}", "owner": "shop", "target": "bad", "kind": "offline",
        "created_ms": 0, "expires_ms": 0, "queue_order": 0, "attempts": 1,
        "path": path, "query": query, **said,
    }  # fmt: skip
    return Job(**given)


def settings_of(url: str, **said) -> TargetSettings:
    return read_target({"url": url, "methods": ALL, "private": True, "timeout": 20, **said})


async def call(egress: Egress, target: Target | str, job: Job | str = "ok", **said) -> CallResult:
    """Call a target, or its url."""
    url = target if isinstance(target, str) else target.url
    job = to_job(job) if isinstance(job, str) else job
    outcome = await egress.call(settings_of(url, **said), job, sink=Kept())
    # No error holds where the target is.
    for part in urlsplit(url).netloc.split(":"):
        assert part not in outcome.error
    return outcome


def notes_of(target: Target, job: Job) -> list[dict]:
    return [note for note in target.calls() if note["job"] == job.id]


async def until(true) -> None:
    async with asyncio.timeout(15):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.01)


# Where it does not go -----------------------------------------------------------------------------

HERE = ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "64:ff9b::7f00:1", "2002:7f00:1::",
        "169.254.169.254", "10.0.0.1", "100.64.0.1", "fd00::1", "fe80::1%eth0"]  # fmt: skip


async def refused(egress: Egress, target: Target, url: str, **said) -> CallResult:
    job = to_job()
    settings = settings_of("http://target.example/", private=False, **said)
    # Not by the settings' own checks, which would have refused some of these.
    settings = settings.model_copy(update={"url": url})
    outcome = await egress.call(settings, job, sink=Kept())
    assert outcome.kind == "refused", outcome
    assert notes_of(target, job) == []
    return outcome


async def test_names_that_lead_to_private_addresses(target):
    """Are not called, whatever else they lead to; all addresses of a name are looked at."""
    for addresses in [[one] for one in HERE] + [HERE]:
        egress = Egress(resolver=Names(addresses))
        outcome = await refused(egress, target, f"http://target.example:{target.port}/")
        assert "private" in outcome.error
        await egress.close()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "2130706433",
     "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "0", "127.0.0.1.", "127.0.0.01", "[::1%25lo]",
     "localhost", "LOCALHOST", "localhost.", "127%2e0.0.1", "a@127.0.0.1", "169.254.169.254"],
)  # fmt: skip
async def test_private_addresses_however_they_are_written(egress, target, host):
    """No resolver is asked about those that are no names, and they are refused all the same."""
    await refused(egress, target, f"http://{host}:{target.port}/")


@pytest.mark.parametrize("broken", ["names", "sockets"])
async def test_either_check_is_enough(target, monkeypatch, broken):
    """What a name leads to is looked at when it is looked up, and when each socket is made."""

    async def lets_through(self, host, port=0, family=0):
        return await self._resolver.resolve(host, port, family)

    if broken == "names":
        monkeypatch.setattr(connections._Resolver, "resolve", lets_through)
    else:
        monkeypatch.setattr(connections, "_create_public_socket", None)
    egress = Egress(resolver=Names(["127.0.0.1"]))
    await refused(egress, target, f"http://target.example:{target.port}/")
    await egress.close()


class Place:
    """A server on a loopback address of its own, which says where it is."""

    def __init__(self, host: str) -> None:
        self.host, self.came = host, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.came += 1
        writer.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{self.host}".encode())
        writer.close()


@pytest.fixture
async def places(monkeypatch):
    """A public place and a private one on one port: 127.0.0.2 plays the open internet."""
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.2")
    # What was looked up is forgotten at once.
    monkeypatch.setattr(connections, "DNS_S", 0)
    port, public, private = free_port(), Place("127.0.0.2"), Place("127.0.0.1")
    async with (
        await asyncio.start_server(public.serve, public.host, port),
        await asyncio.start_server(private.serve, private.host, port),
    ):
        yield f"http://target.example:{port}/", public, private


async def test_dns_that_changes(places):
    """What was looked up and checked is what is connected to, and it is looked up once; when the
    name leads elsewhere the next time, that is checked again."""
    url, public, private = places
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    egress = Egress(resolver=names)
    outcome = await call(egress, url, private=False)
    assert (outcome.kind, outcome.body, len(names.asked)) == ("answered", b"127.0.0.2", 1)
    outcome = await call(egress, url, private=False)
    assert (outcome.kind, len(names.asked)) == ("refused", 2)
    assert (public.came, private.came) == (1, 0)
    await egress.close()


async def test_names_with_public_and_private_addresses(places):
    """The public ones are called, and they alone, in whatever order they come."""
    url, public, private = places
    for addresses in (["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1", "::1"]):
        egress = Egress(resolver=Names(addresses))
        outcome = await call(egress, url, private=False)
        assert (outcome.kind, outcome.body) == ("answered", b"127.0.0.2")
        await egress.close()
    assert (public.came, private.came) == (2, 0)


async def test_private_targets(egress, target):
    """Where the settings say so, private addresses are called; when they say so no longer, no
    connection of before is used."""
    url = f"http://target.example:{target.port}/"
    outcome = await call(egress, url)
    assert (outcome.kind, outcome.status) == ("answered", 200)
    await refused(egress, target, url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_results(egress, target, status):
    """Wherever they lead: nobody follows."""
    to = f"{target.url}ok"
    job = to_job(f"redirect?to={to}&status={status}")
    outcome = await call(egress, target, job)
    assert (outcome.kind, outcome.status, outcome.headers["location"]) == ("answered", status, to)
    assert len(notes_of(target, job)) == 1


async def test_proxies_of_the_machine_are_not_asked(egress, target, monkeypatch):
    """They would decide where a call goes."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{free_port()}")
    assert (await call(egress, target)).kind == "answered"


@pytest.mark.parametrize(
    "said",
    [{"path": "../ok"}, {"path": "%2e%2e/ok"}, {"path": "/ok"}, {"path": "//evil.example/"},
     {"path": "ok\r\nHost: evil"}, {"query": "a\r\nHost: evil"}, {"query": "a#b"},
     {"headers": {"A": "b\r\nHost: evil"}}, {"headers": {"A\nB": "c"}}, {"headers": {"Host": "e"}},
     {"method": "GET / HTTP/1.1\r\nHost: evil\r\n\r\nGET"}, {"method": "PATCH"}, {"body": b"x"}],
)  # fmt: skip
async def test_what_was_never_checked_is_checked_now(egress, target, said):
    """A job that came into the database by another way, or whose target was changed."""
    job = to_job(**{"path": "ok", **said})
    outcome = await call(egress, target, job)
    assert outcome.kind == "refused"
    assert outcome.error.startswith("the target does not allow this request any more: ")
    assert notes_of(target, job) == []


# What is sent -------------------------------------------------------------------------------------


async def test_what_a_target_is_sent(egress, target):
    """The request as it was submitted, whose it is, and which attempt; nothing in its place, and
    nothing that the client would add."""
    job = to_job("ok/a%20b/%C3%A9?x=%2e&y=[1]", method="POST", body="é".encode(), attempts=3)
    outcome = await call(egress, target, job)
    said = json.loads(outcome.body)
    assert (said["method"], said["path"]) == ("POST", "/ok/a%20b/%C3%A9?x=%2e&y=[1]")
    assert (said["body"], said["size"]) == ("é", 2)
    assert said["headers"] == {
        "Host": f"127.0.0.1:{target.port}", "Accept": "*/*", "Accept-Encoding": "identity",
        "User-Agent": f"waitroom/{__version__}", "Content-Length": "2",
        "Idempotency-Key": job.id, "X-Waitroom-Attempt": "3",
    }  # fmt: skip
    assert outcome.took_us > 0


async def test_whose_headers_hold(egress, target):
    """The target's own, over those that the job says, also by another spelling."""
    said = dict.fromkeys(("X-Key", "x_api_key", "Authorization"), "job's")
    said["Accept"] = "text/plain"
    ours = {"x-key": "target's", "X-Api-Key": "target's", "User-Agent": "shop/1"}
    outcome = await call(egress, target, to_job(headers=said), headers=ours)
    sent = json.loads(outcome.body)["headers"]
    assert {name: text for name, text in sent.items() if text.endswith("'s")} == {
        "x-key": "target's", "X-Api-Key": "target's", "Authorization": "job's",
    }  # fmt: skip
    assert (sent["User-Agent"], sent["Accept"]) == ("shop/1", "text/plain")


async def test_a_call_waits_with_its_connection_open():
    """Until its time, which does not count towards the timeout."""
    opened, heads = asyncio.Event(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.set()
        heads.append((await reader.readuntil(b"\r\n\r\n"), time.monotonic()))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    egress, from_s = Egress(), time.monotonic() + 1.5
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        settings = settings_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout=1)
        window = SendWindow(from_s, from_s + 20)
        calling = asyncio.create_task(egress.call(settings, to_job(), sink=Kept(), window=window))
        await opened.wait()
        assert (await calling).kind == "answered"
        await egress.close()
    [(_, at_s)] = heads
    assert at_s >= from_s


async def test_a_call_that_is_too_late_is_not_sent(egress, target):
    """Also on a connection that is open already, which is used for the next call."""
    window = SendWindow(time.monotonic() - 2, time.monotonic() - 1)
    settings, late = settings_of(target.url), to_job()
    for _ in range(2):
        with pytest.raises(LateCallError):
            await egress.call(settings, late, sink=Kept(), window=window)
        assert (await call(egress, target)).kind == "answered"
    assert notes_of(target, late) == []


async def test_cookies_are_not_kept(egress, target):
    """One caller's are not sent with another's call, nor shown."""
    for _ in range(2):
        outcome = await call(egress, target)
        assert "Cookie" not in json.loads(outcome.body)["headers"]
        assert "set-cookie" not in outcome.headers
        assert outcome.headers["x-target"] == "bad"


# What comes of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry_on", "statuses", "kind"),
    [
        (None, [200, 204, 304, 400, 404, 409, 500], "answered"),
        (None, [408, 425, 502, 503, 504], "failed"), (None, [429], "busy"),
        ([], [429, 502, 503], "answered"),
        (["5xx"], [429], "answered"), (["5xx"], [500, 502], "failed"),
        ([429, 404], [429], "busy"), ([429, 404], [404], "failed"), ([429, 404], [502], "answered"),
    ],
)  # fmt: skip
async def test_answers_are_results_but_those_that_ask_for_another_try(
    egress, target, retry_on, statuses, kind
):
    """A result says what came of the job, also that it went wrong. Each target says which answers
    are tried again."""
    said = {} if retry_on is None else {"retry_on": retry_on}
    for status in statuses:
        outcome = await call(egress, target, f"status/{status}", **said)
        assert (outcome.kind, outcome.status) == (kind, status)
        assert outcome.error == "" if kind == "answered" else str(status) in outcome.error


@pytest.mark.parametrize(
    ("path", "after_s"),
    [("429", None), ("429?retry_after=7", 7), ("504?retry_after=5", 5),
     ("503?retry_after=99999", 3600), ("503?retry_after=0", None), ("429?retry_after=soon", None),
     ("429?retry_after=-5", None), ("429?retry_after=1e9", None),
     ("429?retry_after=Tue,%2001%20Jan%202019%2000:00:00%20GMT", None),
     ("429?retry_after=Fri,%2001%20Jan%202999%2000:00:00%20GMT", 3600)],
)  # fmt: skip
async def test_targets_that_ask_for_time(egress, target, path, after_s):
    """When to come back is believed up to an hour."""
    assert (await call(egress, target, f"status/{path}")).retry_after_s == after_s


async def test_a_date_to_come_back_at(egress, target):
    """Is as good as seconds."""
    date = formatdate(time.time() + 600, usegmt=True).replace(" ", "%20")
    outcome = await call(egress, target, f"status/503?retry_after={date}")
    assert outcome.retry_after_s is not None
    assert 500 < outcome.retry_after_s <= 600


@pytest.mark.parametrize(
    ("path", "said"),
    [("close", "the connection broke before an answer came"), ("garbage", "no HTTP"),
     ("half", "the connection broke after 500 bytes of the answer"),
     ("garbage?where=body", "no HTTP"), ("garbage?where=head", "its head is too large"),
     ("headers?count=1&size=9000", "its head is too large"),
     ("headers?count=500&size=1", "its head is too large"), ("status/101", "is no answer")],
)  # fmt: skip
async def test_what_is_no_whole_answer(egress, target, path, said):
    """Is a failure, and told without where the target is."""
    outcome = await call(egress, target, path)
    assert outcome.kind == "failed"
    assert said in outcome.error


async def test_a_broken_connection_is_not_tried_again_unasked(egress, target):
    """Of a target each call counts: what is sent again is decided by who counts."""
    job = to_job("close")
    await call(egress, target, job)
    await until(lambda: notes_of(target, job))
    await call(egress, target)
    assert len(notes_of(target, job)) == 1


async def test_targets_that_are_not_there(egress, target):
    """Nobody listens, nobody has the name, nobody answers in time: failures, to be tried again."""
    outcome = await call(egress, f"http://127.0.0.1:{free_port()}/")
    refused = f"the target is not reached: {os.strerror(errno.ECONNREFUSED)}"
    assert (outcome.kind, outcome.error) == ("failed", refused)
    outcome = await call(egress, target, "never", timeout=0.2)
    assert (outcome.kind, outcome.error) == ("failed", "no whole answer within 0.2 s")
    for private in (True, False):
        nameless = Egress(resolver=Names([]))
        outcome = await call(nameless, "http://target.example/", private=private)
        assert (outcome.kind, outcome.error) == ("failed", "the target's name leads to no address")
        await nameless.close()


async def test_a_target_without_tls(egress, target):
    """Is not called without it."""
    outcome = await call(egress, f"https://127.0.0.1:{target.port}/")
    assert (outcome.kind, outcome.error) == ("failed", "the TLS handshake with the target failed")


async def test_a_certificate_of_somebody_else(egress, tmp_path):
    """Ends the connection before anything was asked."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=target.example", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    came = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        outcome = await call(egress, f"https://target.example:{port}/")
    assert (outcome.kind, came) == ("failed", [])
    assert outcome.error == "the target's certificate does not prove that it is the target"


@contextlib.asynccontextmanager
async def talking(talk):
    """A server that says the same to each request, or what `talk(what, writer)` writes for each
    path that is asked for."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if isinstance(talk, bytes):
                    writer.write(talk)
                else:
                    await talk(head.split()[1].decode(), writer)
        writer.close()

    egress = Egress()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        try:
            yield egress, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        finally:
            await egress.close()


async def test_an_answer_nobody_asked_for():
    """Is not taken for the answer to the next call, which may be somebody else's."""
    heard, go = asyncio.Event(), asyncio.Event()

    async def talk(path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/other":
            heard.set()
            await go.wait()
        head = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}"
        writer.write(head.format(len(path), path).encode())
        if path == "/first":
            await poison.wait()
            writer.write(head.format(6, "poison").encode())
            go.set()

    poison = asyncio.Event()
    async with talking(talk) as (egress, url):
        other = asyncio.create_task(call(egress, url, "other"))
        await heard.wait()
        first = await call(egress, url, "first")
        # It comes on the connection of the first before the other has its answer: both are free.
        poison.set()
        assert (first.body, (await other).body) == (b"/first", b"/other")
        assert (await call(egress, url, "third")).body == b"/third"


@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 102 A\r\nX: y\r\n\r\n" * 3]
)
async def test_interim_responses_without_end(part):
    """Fail the call, long before its time is up, and say why; another target's is answered."""
    egress = Egress()
    with run_flood(part) as url:
        outcome = await call(egress, url, timeout=5)
    await egress.close()
    assert (outcome.kind, outcome.status) == ("failed", None)
    assert "interim responses" in outcome.error


async def test_some_interim_responses():
    """Are no harm: the answer after them counts."""
    interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with talking(interim * 50 + final) as (egress, url):
        for _ in range(2):
            outcome = await call(egress, url)
            assert (outcome.kind, outcome.status, outcome.body) == ("answered", 200, b"ok")


async def test_what_comes_after_an_answer_without_end():
    """Closes the connection: nothing is read or kept of it."""
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    egress = Egress()
    for part in (b"HTTP/1.1 103 Early Hints\r\n\r\n", first):
        with run_flood(part, first=first) as url:
            outcome = await call(egress, url)
            assert (outcome.kind, outcome.body) == ("answered", b"ok")
            (connector,) = {egress._private.connector}
            await until(lambda connector=connector: not connector._conns)
    await egress.close()


# Bodies and headers of answers --------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES])
async def test_small_answers_come_whole(egress, target, size):
    """One that fits a chunk is in the outcome, and the sink has no work."""
    kept = Kept()
    outcome = await egress.call(settings_of(target.url), to_job(f"huge?bytes={size}"), sink=kept)
    assert (outcome.kind, outcome.size, kept.parts) == ("answered", size, [])
    assert outcome.body == (PART * 5)[:size]


@pytest.mark.parametrize("how", ["", "&length=1"])
@pytest.mark.parametrize("size", [CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 1_048_576])
async def test_large_answers_come_in_parts(egress, target, size, how):
    """Numbered, in order, each as large as a chunk but for the last."""
    kept, job = Kept(), to_job(f"huge?bytes={size}{how}")
    outcome = await egress.call(settings_of(target.url), job, sink=kept)
    assert (outcome.kind, outcome.size, outcome.body) == ("answered", size, b"")
    assert [number for number, _ in kept.parts] == list(range(len(kept.parts)))
    assert {len(data) for _, data in kept.parts[:-1]} == {CHUNK_BYTES}
    assert 0 < len(kept.parts[-1][1]) <= CHUNK_BYTES
    assert b"".join(data for _, data in kept.parts) == (PART * 16)[:size]


@pytest.mark.parametrize(
    ("path", "most"),
    [("huge?bytes=1001&length=1", 1000), ("huge?bytes=1001", 1000), ("huge?bytes=1", 0),
     ("endless", 1_048_576)],
)  # fmt: skip
async def test_answers_that_are_too_large(egress, target, path, most):
    """Are refused, and the connection is closed rather than read to its end."""
    job, kept = to_job(path), Kept()
    outcome = await egress.call(settings_of(target.url, max_result=most), job, sink=kept)
    assert (outcome.kind, outcome.status, outcome.body) == ("refused", 200, b"")
    assert outcome.error == f"the answer is larger than {most:,} bytes (max_result)"
    assert sum(len(data) for _, data in kept.parts) <= most
    await until(lambda: notes_of(target, job))


async def test_an_answer_that_says_it_is_too_large():
    """Is not waited for."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n"
    async with talking(head) as (egress, url):
        outcome = await call(egress, url)
        assert (outcome.kind, outcome.status) == ("refused", 200)


async def test_an_answer_as_large_as_it_may_be(egress, target):
    """Is a result; of a HEAD no body comes, however large it says it would be."""
    outcome = await call(egress, target, "huge?bytes=1000&length=1", max_result=1000)
    assert (outcome.kind, outcome.size) == ("answered", 1000)
    job = to_job("huge?bytes=5000&length=1", method="HEAD")
    outcome = await call(egress, target, job, max_result=1000)
    assert (outcome.kind, outcome.size) == ("answered", 0)
    assert outcome.headers["content-length"] == "5000"


async def test_nothing_is_unpacked(egress, target):
    """A few KB stay a few KB, whatever they would become."""
    outcome = await call(egress, target, "gzip?bytes=4000000")
    assert (outcome.kind, outcome.headers["content-encoding"]) == ("answered", "gzip")
    assert outcome.size == len(outcome.body) < 50_000
    assert outcome.body.startswith(b"\x1f\x8b")


async def test_what_the_sink_raises(egress, target):
    """Is passed on, is not the target's fault, and ends the connection."""

    async def broken(number: int, data: bytes) -> None:
        raise DatabaseError("away")

    async def late(number: int, data: bytes) -> None:
        raise TimeoutError

    for sink, error in ((broken, DatabaseError), (late, TimeoutError)):
        job = to_job("endless")
        with pytest.raises(error):
            await egress.call(settings_of(target.url), job, sink=sink)
        await until(lambda job=job: notes_of(target, job))


async def test_the_sinks_time_is_not_the_targets(egress, target):
    """A slow database makes no call late."""
    loop, taken = asyncio.get_running_loop(), []

    async def slow(number: int, data: bytes) -> None:
        later = loop.create_future()
        loop.call_later(0.45, later.set_result, None)
        await later
        taken.append(number)

    settings = settings_of(target.url, timeout=0.8)
    outcome = await egress.call(settings, to_job(f"huge?bytes={CHUNK_BYTES + 1}"), sink=slow)
    assert (outcome.kind, taken) == ("answered", [0, 1])


async def test_headers_that_are_told():
    """Those of the answer, without those of the connection, as text that breaks no line."""
    headers = [
        b"Content-Type: text/plain", b"X-One: a", b"x-one: b", b"X-Latin: caf\xe9", b"X-Tab: a\tb",
        b"X-Odd: a\x85b\x1bc\x7f", b"Connection: keep-alive, X-Hop", b"X-Hop: a", b"Keep-Alive: a",
        b"Set-Cookie: a=b", b"Set-Cookie2: a=b", b"Upgrade: h2c", b"Proxy-Authenticate: Basic",
        b"Trailer: X-End", b"Content-Length: 2",
    ]  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(headers) + b"\r\n\r\n"
    async with talking(head + b"ok") as (egress, url):
        outcome = await call(egress, url)
    assert (outcome.kind, outcome.error, outcome.body) == ("answered", "", b"ok")
    assert outcome.headers == {
        "content-type": "text/plain", "x-one": "a, b", "x-latin": "café", "x-tab": "a\tb",
        "x-odd": "a b c",
    }  # fmt: skip


@pytest.mark.parametrize(("count", "size"), [(100, 10), (50, 1000)])
async def test_headers_that_are_told_are_bounded(egress, target, count, size):
    """64 of them, and 16 KB."""
    told = (await call(egress, target, f"headers?count={count}&size={size}")).headers
    assert 10 < len(told) <= 64
    assert sum(len(name) + len(text) for name, text in told.items()) <= 16_384


# Cutting off, and many at once --------------------------------------------------------------------


@pytest.mark.parametrize("path", ["never", "endless"])
async def test_a_call_that_is_cut_off(egress, target, path):
    """The target sees the connection end at once; the next call goes well."""
    job = to_job(path)
    settings = settings_of(target.url, max_result=100_000_000)
    task = asyncio.create_task(egress.call(settings, job, sink=Kept()))
    await until(lambda: target.open() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: target.open() == 0)
    assert [note["status"] for note in notes_of(target, job)] == [None]
    assert (await call(egress, target)).kind == "answered"


async def test_many_at_once(egress, target):
    """As many as are asked for are under way at a time, and each gets its own answer."""
    settings = settings_of(target.url)
    silent = [
        asyncio.create_task(egress.call(settings, to_job("never"), sink=Kept())) for _ in range(120)
    ]
    await until(lambda: target.open() == 120)
    jobs = [to_job() for _ in range(120)]
    outcomes = await asyncio.gather(*(egress.call(settings, job, sink=Kept()) for job in jobs))
    for job, outcome in zip(jobs, outcomes, strict=True):
        assert json.loads(outcome.body)["headers"]["Idempotency-Key"] == job.id
    (note,) = notes_of(target, jobs[0])
    assert note["open"] > 120
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)
    await until(lambda: target.open() == 0)
