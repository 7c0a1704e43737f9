"""Calls with a permit through nginx: who passes, once; and when the call is over."""

import asyncio
import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.jobs.endpoints import nginx_done_log as done_log
from sidecar.jobs.endpoints.nginx_done_log import listen, parse_report
from sidecar.jobs.model import make_job_id
from sidecar.jobs.permits import Permits
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import DatabaseError, InputError, StoreError
from tests.nginx.stub import make_reply
from tests.support.nginx_client import HTML, JSON, Visitor
from tests.support.processes import free_port, wait_until
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, SECRET, Site

PERMIT = "X-Waitroom-Permit"
JOB = "abcdefghijklmnopqrstu_"


def guarded(location, target, *lines, to="http://origin"):
    """Build a location that is called with permits."""
    lines = (f"set $waitroom_target {target};", "include waitroom/permit.conf;", *lines)
    return "\n".join(
        (f"location {location} {{", *lines, f"proxy_pass {to};" if to else "", "}", "")
    )


# What nginx says and does, with a stand-in for a replica -----------------------------------------

TOLD = ("proxy_set_header X-Waitroom-Job $waitroom_job;", 'proxy_set_header X-Waitroom-Permit "";')
LOCATIONS = (
    guarded("/images/", "images", *TOLD)
    + guarded("/plain/", "images")
    + guarded("/unset/", '""')
    + guarded("/odd/", '"a b"')
    + guarded("/own/", "images", "error_page 403 = @own;")
    + 'location @own { return 402 "$waitroom_state"; }\n'
    + guarded("/staff/", "images", "satisfy any;", "allow 127.0.0.1;", "deny all;")
    + guarded("/nobody/", "images", "satisfy any;", "deny all;")
    + guarded("/closed/", "images", "deny all;")
    + guarded("= /index/", "images", "root @folder@;", "index page.html;", to="")
    + guarded("= /index/page.html", "images", "root @folder@;", to="")
    + guarded("/broken/", "images", "error_page 502 = @back;", to="http://127.0.0.1:1")
    + guarded("@back", "images")
)


@pytest.fixture(scope="module")
def odd(stub):
    """Start nginx before a stub in place of a replica."""
    with Site(replicas=0, edges=(stub.address,), locations=LOCATIONS) as site:
        (site.folder / "index").mkdir()
        (site.folder / "index" / "page.html").write_text("an index")
        yield site


def passing(*headers: str) -> bytes:
    return make_reply(204, "X-Waitroom-State: admitted", f"X-Waitroom-Job: {JOB}", *headers)


def refusing(reason: str) -> bytes:
    return make_reply(403, f"X-Waitroom-State: {reason}")


def seen(site: Site, path: str) -> int:
    """Return how many requests for a path have reached the site."""
    origin = Visitor(f"http://127.0.0.1:{site.origin_port}")
    return origin.get("/origin/seen").json().get(path, 0)


def test_what_reaches_a_replica(odd, stub):
    """The replica gets the target and the permit, and nothing else that a caller sends."""
    stub.reply, stub.asked[:] = passing(), []
    headers = {"Cookie": "a=b", "X-Waitroom-Target": "other", "X-Waitroom-Given": JOB}
    headers |= {"X-Waitroom-Request": "mine", "X-Request-ID": "mine", "User-Agent": "odd\x01"}
    Visitor(odd.url, {**headers, PERMIT: "a~b.c-d_E"}).post("/images/x?y=z", b"12345")
    [asked] = stub.asked
    first, *lines = asked.split("\r\n")
    said = dict(line.split(": ", 1) for line in lines)
    assert first == "GET /check-permit HTTP/1.1"
    assert len(said.pop("X-Waitroom-Request")) == 32
    assert said == {"X-Waitroom-Target": "images", PERMIT: "a~b.c-d_E", "Host": "waitroom"}


@pytest.mark.parametrize(
    ("permit", "told"),
    [(None, None), ("", None), ("é", "garbled"), ("a b", "garbled"), ("a" * 513, "garbled"),
     ("a;b", "garbled"), ('"', "garbled"), ("a" * 512, "a" * 512)],
)  # fmt: skip
def test_what_can_be_no_permit(odd, stub, permit, told):
    """nginx passes on `garbled` in place of text that cannot be a permit."""
    stub.reply, stub.asked[:] = refusing("forged"), []
    said = permit.encode().decode("latin-1") if permit else permit
    Visitor(odd.url, {PERMIT: said}).get("/images/")
    [asked] = stub.asked
    lines = [line for line in asked.split("\r\n") if line.startswith(f"{PERMIT}: ")]
    assert lines == ([] if told is None else [f"{PERMIT}: {told}"])


def test_each_request_has_a_name_of_its_own(odd, stub):
    """Each request has its own name, which stays the same when nginx asks another replica."""
    stub.reply, stub.asked[:] = b"", []
    for _ in range(2):
        assert Visitor(odd.url, {PERMIT: "x"}).get("/images/").status == 503
    names = [line for asked in stub.asked for line in asked.split("\r\n") if "-Request:" in line]
    assert len(set(names)) == 2
    assert len(names) >= 2


def test_what_the_application_learns(odd, stub):
    """The job from us alone, and no permit, where the site says so; nothing else is changed."""
    stub.reply = passing()
    said = {PERMIT: "x", "X-Waitroom-Job": "mine", "X-Other": "y"}
    reply = Visitor(odd.url, said).post("/images/a?b=c", b"12345").json()
    assert (reply["headers"]["X-Waitroom-Job"], reply["received"]) == (JOB, 5)
    assert (reply["path"], reply["method"]) == ("/images/a?b=c", "POST")
    assert PERMIT not in reply["headers"]
    assert reply["headers"]["X-Other"] == "y"
    plain = Visitor(odd.url, said).get("/plain/a").json()["headers"]
    assert plain[PERMIT] == "x"


@pytest.mark.parametrize("accept", [HTML, JSON, "*/*", None])
@pytest.mark.parametrize("reason", ["none", "forged", "expired", "used", "over"])
def test_the_refused_get_a_problem(odd, stub, reason, accept):
    """They get a problem document with the reason. It is not cached, and the site is not asked."""
    stub.reply, before = refusing(reason), seen(odd, "/images/refused")
    reply = Visitor(odd.url, {"Accept": accept, PERMIT: "x"}).get("/images/refused")
    assert (reply.status, reply.headers["Content-Type"]) == (403, "application/problem+json")
    assert (reply.headers["Cache-Control"], reply.all("Retry-After")) == ("no-store", [])
    problem = reply.json()
    assert len(problem.pop("detail")) > 20
    assert problem == {
        "type": "urn:waitroom:problem:permit_needed",
        "title": "A permit is needed",
        "status": 403,
        "code": "permit_needed",
        "target": "images",
        "reason": reason,
    }
    assert seen(odd, "/images/refused") == before


@pytest.mark.parametrize(
    "reply", [b"", make_reply(500), make_reply(502), make_reply(404), make_reply(400)]
)
def test_no_replica_answers(odd, stub, reply):
    """Nobody passes unchecked: 503, and when to come again."""
    stub.reply, before = reply, seen(odd, "/images/away")
    page = Visitor(odd.url, {PERMIT: "x"}).post("/images/away", b"12345")
    assert (page.status, page.headers["Retry-After"]) == (503, "5")
    assert page.headers["Cache-Control"] == "no-store"
    assert (page.json()["status"], page.json()["target"]) == (503, "images")
    assert seen(odd, "/images/away") == before


@pytest.mark.parametrize("path", ["/unset/", "/odd/"])
def test_an_unknown_target_is_named(odd, stub, path):
    """503 with a sentence; an invalid name is shown as an empty one."""
    stub.reply = make_reply(403, "X-Waitroom-State: unknown-target")
    reply = Visitor(odd.url, {PERMIT: "x"}).get(path)
    assert (reply.status, reply.headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert "''" in reply.text
    assert "waitroom_target" in reply.text


def test_the_sites_own_answer(odd, stub):
    """An error_page of the location replaces our response."""
    stub.reply = refusing("used")
    reply = Visitor(odd.url, {PERMIT: "x"}).get("/own/")
    assert (reply.status, reply.text) == (402, "used")


def test_others_who_refuse(odd, stub):
    """They are asked first, and no permit is used up; what they let through needs none."""
    stub.reply, stub.asked[:] = passing(), []
    assert Visitor(odd.url, {PERMIT: "x"}).get("/closed/").status == 403
    assert Visitor(odd.url).get("/staff/").status == 200
    assert stub.asked == []
    assert Visitor(odd.url, {PERMIT: "x"}).get("/nobody/").status == 200
    stub.reply = refusing("none")
    assert Visitor(odd.url).get("/nobody/").json()["reason"] == "none"


def test_preflights_need_a_permit(odd, stub):
    """A preflight would reach the application, which may take any method for a call."""
    stub.reply = refusing("none")
    asked = {"Access-Control-Request-Method": "PUT", "Origin": "https://app.example"}
    assert Visitor(odd.url).send("OPTIONS", "/images/", headers=asked).status == 403


@pytest.mark.parametrize("path", ["/index/", "/broken/"])
def test_what_is_redirected_within_is_one_call(odd, stub, path):
    """After an internal redirect nginx checks again, and sends the id of the job that it got."""
    stub.reply, stub.asked[:] = passing(), []
    assert Visitor(odd.url, {PERMIT: "x"}).get(path).status == 200
    given = [f"X-Waitroom-Given: {JOB}" in asked.split("\r\n") for asked in stub.asked]
    assert given == [False, True]


def test_refused_bodies(odd, stub):
    """A refused request with a large body gets 403, with a length or in chunks."""
    stub.reply = refusing("none")
    visitor = Visitor(odd.url)
    assert visitor.post("/images/", b"b" * 900_000).status == 403
    assert visitor.post("/images/", b"b" * 900_000, chunked=True).status == 403


# With a real replica -----------------------------------------------------------------------------

ONLINE = {"kinds": ["online"], "concurrency": 1}
TARGETS = {"images": ONLINE, "videos": ONLINE, "many": {**ONLINE, "concurrency": 100}}
#: A call that goes on until its caller has sent the last byte.
SLOW = (
    b"POST /videos/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Waitroom-Permit: %b\r\n\r\n1"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    done = f"127.0.0.1:{free_port()}"
    settings = {
        "jobs": f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db",
        "done_listen": done,
        **BY_DEFAULT,
        **{f"targets.{name}.{key}": value
           for name, target in TARGETS.items() for key, value in target.items()},
    }  # fmt: skip
    server = (
        f"access_log syslog:server={done},nohostname,tag=waitroom waitroom_done if=$waitroom_job;"
    )
    locations = "".join(guarded(f"/{name}/", name) for name in (*TARGETS, "nosuch"))
    locations += guarded("/down/", "videos", to="http://127.0.0.1:1")
    with Site(settings=settings, server=server, locations=locations) as site:
        # The tables are made while it serves.
        wait_until(lambda: ask(site, "GET", "/v1/jobs")[0] == 200, "the database")
        yield site


def ask(site: Site, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call the service API. Return the status and the document."""
    operator = Visitor(site.ops[0], {"Authorization": f"Bearer {ADMIN_TOKEN}"})
    reply = operator.send(method, path, body=None if body is None else json.dumps(body).encode())
    return reply.status, reply.json()


def submit(site: Site, target: str) -> str:
    """Submit an online job. Return its id."""
    status, job = ask(site, "POST", "/v1/jobs", {"target": target, "kind": "online"})
    assert status == 202, job
    return job["id"]


def look(site: Site, job: str, *, wait: int = 0) -> dict[str, Any]:
    return ask(site, "GET", f"/v1/jobs/{job}?wait={wait}")[1]


def permit_of(site: Site, job: str) -> str:
    """Wait until a job is called. Return its permit."""
    found = look(site, job, wait=15)
    assert found["state"] == "called", found
    return found["permit"]


def end_of(site: Site, job: str) -> str:
    """Wait until a job has ended. Return its state."""
    wait_until(lambda: look(site, job)["ended_at"], "the end of the job")
    return look(site, job)["state"]


def call(site: Site, path: str, permit: str | None) -> tuple[int, str | None]:
    """Call a location with a permit. Return the status, and the reason if it is 403."""
    reply = Visitor(site.url, {PERMIT: permit}).get(path)
    return reply.status, reply.json()["reason"] if reply.status == 403 else None


@contextmanager
def calling(site: Site, permit: str):
    """Start a call that goes on until `finish` is called, or until the block ends."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        connection.sendall(SLOW % permit.encode())
        wait_until(lambda: call(site, "/videos/", permit)[1] == "used", "the call's beginning")

        def finish() -> bytes:
            connection.sendall(b"2")
            return connection.recv(65536)

        yield SimpleNamespace(finish=finish)


def made(target: str, job: str, *, fence: int = 1, keys: str = SECRET, lives_s: float = 60) -> str:
    """Sign a permit that was given to nobody."""
    permits = Permits(target, [keys], StoreClock())
    return permits.write(job, fence, round((time.time() + lives_s) * 1000))


def test_nobody_passes_without_the_right_permit(site):
    """Nothing of theirs reaches the site. The right permit then passes once."""
    job = submit(site, "images")
    permit = permit_of(site, job)
    real = Permits("images", [SECRET], StoreClock()).verify(permit)
    other = submit(site, "videos")
    others = permit_of(site, other)
    waiting = submit(site, "images")
    wrong = {
        None: "none",
        "": "none",
        "x": "forged",
        "a b": "forged",
        "x" * 600: "forged",
        permit[:-2] + "xx": "forged",
        permit + "x": "forged",
        f"{permit}, {permit}": "forged",
        made("images", job, fence=real.fence, keys="k" * 32): "forged",
        permit.replace("~" + job, "~" + waiting): "forged",
        others: "forged",
        made("videos", job, fence=real.fence): "forged",
        made("images", job, fence=real.fence, lives_s=-1): "expired",
        made("images", job, fence=real.fence + 1): "over",
        made("images", waiting): "over",
        made("images", waiting, fence=real.fence): "over",
        made("images", make_job_id()): "over",
        made("images", other): "over",
    }
    told = {permit: call(site, "/images/right", permit) for permit in wrong}
    assert told == {permit: (403, reason) for permit, reason in wrong.items()}
    assert seen(site, "/images/right") == 0
    assert call(site, "/images/right", permit) == (200, None)
    assert call(site, "/images/right", permit)[0] == 403
    assert seen(site, "/images/right") == 1
    assert end_of(site, job) == "completed"
    for job, path in ((waiting, "/images/"), (other, "/videos/")):
        assert call(site, path, permit_of(site, job)) == (200, None)
        assert end_of(site, job) == "completed"


def test_racers_with_one_permit(site):
    """Of 20 calls at the same time, one passes."""
    job = submit(site, "many")
    permit = permit_of(site, job)
    with ThreadPoolExecutor(20) as pool:
        told = Counter(pool.map(lambda _: call(site, "/many/racers", permit)[0], range(20)))
    assert told == {200: 1, 403: 19}
    assert seen(site, "/many/racers") == 1


def test_what_nginx_was_told_is_told_again(site):
    """The job's id is confirmed for its own permit alone, even after that has expired."""
    edge = Visitor(site.edges[0], {"X-Waitroom-Target": "images", "X-Waitroom-Given": JOB})
    for permit, status in (
        (made("images", JOB), 204),
        (made("images", JOB, lives_s=-1), 204),
        (made("images", JOB, keys="k" * 32), 403),
        (made("videos", JOB), 403),
        (made("images", make_job_id()), 403),
        (None, 403),
    ):
        reply = edge.get("/check-permit", headers={PERMIT: permit})
        assert (reply.status, reply.body) == (status, b"")
        assert reply.all("X-Waitroom-Job") == [JOB] * (status == 204)
        assert reply.headers["Cache-Control"] == "no-store"


def test_the_end_of_a_call_frees_its_slot(site):
    """The slot is free for the next job when the call ends, and not sooner."""
    first, second = submit(site, "videos"), submit(site, "videos")
    with calling(site, permit_of(site, first)) as running:
        assert look(site, first)["state"] == "processing"
        assert look(site, second)["state"] == "pending"
        assert b"200 OK" in running.finish()
        permit = permit_of(site, second)
    assert end_of(site, first) == "completed"
    assert call(site, "/videos/", permit) == (200, None)
    assert end_of(site, second) == "completed"


def test_a_caller_who_goes_away(site):
    """A caller who hangs up: nginx reports a 4xx, so the job fails and its slot is free."""
    first, second = submit(site, "videos"), submit(site, "videos")
    with calling(site, permit_of(site, first)):
        pass
    assert end_of(site, first) == "failed"
    assert 400 <= look(site, first)["status"] < 500
    # And a call that the application did not answer.
    assert call(site, "/down/", permit_of(site, second)) == (502, None)
    assert end_of(site, second) == "failed"


def test_the_refused_end_nothing(site):
    """Whoever shows the permit of a call under way does not end it."""
    job = submit(site, "videos")
    permit = permit_of(site, job)
    with calling(site, permit) as running:
        assert call(site, "/videos/", permit) == (403, "used")
        # What nginx had said of that was read before what it says of this.
        other = submit(site, "many")
        assert call(site, "/many/", permit_of(site, other)) == (200, None)
        assert end_of(site, other) == "completed"
        assert look(site, job)["state"] == "processing"
        assert call(site, "/videos/", permit) == (403, "used")
        running.finish()
    assert end_of(site, job) == "completed"


def test_a_target_that_there_is_not(site):
    """503, and it is logged once."""
    for _ in range(3):
        reply = Visitor(site.url, {PERMIT: made("nosuch", JOB)}).get("/nosuch/")
        assert (reply.status, "'nosuch'" in reply.text) == (503, True)
    lines = site.replicas[0].output.splitlines()
    assert len([line for line in lines if "unknown_target" in line and "nosuch" in line]) == 1


def test_the_store_is_away(site):
    """Nobody passes unchecked: 503, and when to come again."""
    job = submit(site, "many")
    permit = permit_of(site, job)
    with site.redis.frozen():
        for _ in range(2):
            reply = Visitor(site.url, {PERMIT: permit}).get("/many/away")
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
    assert seen(site, "/many/away") == 0


# The lines of nginx's log ------------------------------------------------------------------------

HEAD = b"<190>Nov 22 04:33:00 waitroom: "


#: Lines that are no reports of ours.
NO_REPORTS = [
    b"", b"\0", b"\xff" * 100, HEAD, HEAD + b"x", HEAD + b" 200", HEAD + b"x 20", HEAD + b"x 2000",
    HEAD + b"x 200\n\n", HEAD + b"x 200\0", HEAD + b"x 200 ", HEAD + b"x y 200", HEAD + b"- -",
    HEAD + b"a" * 513 + b" 200", HEAD + b"\\x22 200", HEAD + "x ٢٠٠".encode(),
    b"x 200", b"waitroom: x 200", b"<190> waitroom: x 200", HEAD.replace(b"w", b"W") + b"x 200",
    b"<1900>Nov waitroom: x 200", b"<190>\nNov waitroom: x 200", b"<1>" + b"a" * 400 + HEAD,
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        (HEAD + b"a~b~1~2.c-_ 200", ("a~b~1~2.c-_", 200)),
        (HEAD + b"x 499\n", ("x", 499)),
        (HEAD + b"x 000", ("x", None)),
        (b"<190>Nov  2 04:33:00 web1 waitroom: x 502", ("x", 502)),
        (HEAD + b"a" * 512 + b" 200", ("a" * 512, 200)),
        *((line, None) for line in NO_REPORTS),
    ],
)
def test_what_nginx_writes_is_read(line, ended):
    """A report is read with a host's name or without, and any other line is not, without error."""
    assert parse_report(line) == ended


# The socket that they come to --------------------------------------------------------------------


class Ends:
    """A replica's jobs, which record the calls that were ended."""

    def __init__(self, *errors: Exception) -> None:
        self.permits = Permits("images", [SECRET], StoreClock())
        self.target = SimpleNamespace(name="images", permits=self.permits)
        self.targets = SimpleNamespace(find=lambda name: self.target if name == "images" else None)
        self.errors = list(errors)
        self.ended: list[tuple[str, int, int | None]] = []

    async def end_call(self, target, job, fence, *, status=None):
        assert target is self.target
        if self.errors:
            raise self.errors.pop()
        self.ended.append((job, fence, status))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.ended) < count:
                await asyncio.sleep(0.01)


def sender(address: str) -> socket.socket:
    if address.startswith("unix:"):
        talker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        talker.connect(address.removeprefix("unix:"))
        return talker
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if "[" in host else socket.AF_INET
    talker = socket.socket(family, socket.SOCK_DGRAM)
    talker.connect((host.strip("[]"), int(port)))
    return talker


@pytest.mark.parametrize("kind", ["unix", "127.0.0.1", "[::1]"])
async def test_only_our_own_permits_end_calls(kind, tmp_path):
    """Only a genuine permit ends a call, also an expired one; an old socket is replaced."""
    path = tmp_path / "done"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(path))
    address = f"unix:{path}" if kind == "unix" else f"{kind}:{free_port()}"
    ends = Ends()
    right = made("images", JOB, fence=7, lives_s=-60)
    wrong = [
        b"", b"\0\xff", HEAD, b"x" * 5000,
        HEAD + made("images", JOB, keys="k" * 32).encode() + b" 200",
        HEAD + made("videos", JOB).encode() + b" 200",
        HEAD + made("videos", JOB).replace("videos", "images").encode() + b" 200",
        HEAD + right.replace("~7~", "~8~").encode() + b" 200",
    ]  # fmt: skip
    async with listen(address, ends):
        with sender(address) as talker:
            for line in wrong:
                talker.send(line)
            talker.send(HEAD + right.encode() + b" 499")
            await ends.until(1)
    assert ends.ended == [(JOB, 7, 499)]
    if kind == "unix":
        assert path.stat().st_mode & 0o777 == 0o660


async def test_an_end_is_tried_again(tmp_path, monkeypatch):
    """While the store or the database is away; and what was read is written when it stops."""
    monkeypatch.setattr(done_log, "RETRY_PAUSE_S", 0.01)
    ends = Ends(StoreError("away"), DatabaseError("away"), ValueError("nobody foresaw it"))
    async with listen(f"unix:{tmp_path}/done", ends):
        with sender(f"unix:{tmp_path}/done") as talker:
            for fence in (1, 2):
                talker.send(HEAD + made("images", JOB, fence=fence).encode() + b" 200")
            await ends.until(1)
    assert [fence for _, fence, _ in ends.ended] == [2]


async def test_what_is_too_much_is_let_go(tmp_path, monkeypatch, capsys):
    """If too many reports wait, the newest are dropped with one warning."""
    monkeypatch.setattr(done_log, "MAX_WAITING_REPORTS", 3)
    monkeypatch.setattr(done_log, "MAX_PARALLEL_REPORTS", 1)
    ends = Ends()
    async with listen(f"127.0.0.1:{(port := free_port())}", ends):
        with sender(f"127.0.0.1:{port}") as talker:
            for fence in range(9):
                talker.send(HEAD + made("images", JOB, fence=fence).encode() + b" 200")
            await ends.until(3)
    assert [fence for _, fence, _ in ends.ended] == [0, 1, 2]
    assert capsys.readouterr().out.count("ends_lost") == 1


async def test_replicas_share_an_address():
    """All replicas of a machine listen at the one address of their settings file: each report
    reaches one of them, and when one has stopped, the other."""
    address, ends = f"127.0.0.1:{free_port()}", Ends()
    async with listen(address, ends):
        async with listen(address, ends):
            for fence in range(9):
                with sender(address) as talker:
                    talker.send(HEAD + made("images", JOB, fence=fence).encode() + b" 200")
            await ends.until(9)
        with sender(address) as talker:
            talker.send(HEAD + made("images", JOB, fence=9).encode() + b" 200")
        await ends.until(10)
    assert sorted(fence for _, fence, _ in ends.ended) == list(range(10))


@pytest.mark.parametrize("address", ["192.0.2.1:1", "unix:/nowhere/done"])
async def test_an_address_that_cannot_be_listened_on(address):
    """It is reported as a problem of the settings."""
    with pytest.raises(InputError, match="done_listen: cannot listen on"):
        async with listen(address, Ends()):
            pass
