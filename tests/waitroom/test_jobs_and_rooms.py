"""Jobs and rooms by the client, against a real replica; and that its types are the replica's."""

import asyncio
import inspect
import json
import pydoc
import typing
from datetime import UTC, datetime, timedelta
from types import UnionType

import pytest

from tests.support.installation import installation
from tests.support.processes import free_port, wait_until
from tests.support.site import ADMIN_TOKEN
from tests.waitroom.relay import Faulty
from waitroom import (
    AsyncClient,
    AsyncJobs,
    Client,
    Jobs,
    LeaseLost,
    Queued,
    Refused,
    RejectedError,
    UnavailableError,
    model,
)
from waitroom.jobs import JobRequest


@pytest.fixture(scope="module")
def service():
    with installation() as service:
        yield service


@pytest.fixture
def client(service):
    with Client(service.urls, token=ADMIN_TOKEN, operator="ann") as client:
        yield client


@pytest.fixture
async def aclient(service):
    async with AsyncClient(service.urls, token=ADMIN_TOKEN) as client:
        yield client


# Jobs.


def test_a_job_is_submitted_and_waited_for(client):
    """Its result has the answer's body; the whole body comes in pieces too."""
    submitted = client.jobs.submit("images", path="ok/a", query={"x": "1"}, body={"prompt": "a"})
    assert (submitted["target"], submitted["kind"]) == ("images", "offline")
    job = client.jobs.wait(submitted["id"], wait=30)
    assert (job["state"], job["status"]) == ("completed", 200)
    assert json.loads(job["result"]["body"])["path"] == "/ok/a?x=1"
    assert b"".join(client.jobs.body(job["id"])) == job["result"]["body"].encode()
    assert client.jobs.get(job["id"])["state"] == "completed"
    binary = client.jobs.submit("images", path="ok", body=b"\xff\x00")
    assert json.loads(client.jobs.wait(binary["id"])["result"]["body"])["size"] == 2


def test_a_job_is_submitted_for_later(client):
    """By a delay, or by a time with a zone."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for when in ({"delay": 86_400}, {"run_at": tomorrow}, {"run_at": tomorrow.isoformat()}):
        job = client.jobs.submit("images", path="ok", **when)
        assert job["state"] == "pending"
        assert abs(datetime.fromisoformat(job["run_at"]) - tomorrow) < timedelta(minutes=1)
        client.jobs.cancel(job["id"])


def test_the_same_key_is_the_same_job(client):
    """With the caller's idempotency_key; without one the client makes one for each call."""
    ids = [client.jobs.submit("held", path="a", idempotency_key="order-1")["id"] for _ in range(2)]
    assert ids[0] == ids[1]
    other = client.jobs.submit("held", path="a")["id"]
    assert other != ids[0]
    for id_ in {*ids, other}:
        assert client.jobs.cancel(id_)["state"] == "cancelled"
        assert client.jobs.cancel(id_)["state"] == "cancelled"


async def test_many_jobs_are_submitted(client, aclient):
    """A list longer than a request: each has its id in the list's order. The same keys again are
    the same jobs. What the queue has no place for is refused, by its index in the list."""
    jobs = [{"target": "images", "path": "ok", "idempotency_key": f"many-{n}"} for n in range(130)]
    jobs[7]["body"] = b"\xff"
    submitted = client.jobs.submit_many(iter(jobs))
    assert submitted["refused"] == []
    ids = submitted["ids"]
    assert len(set(ids)) == 130
    assert (await aclient.jobs.submit_many(jobs))["ids"] == ids
    assert client.jobs.submit("images", path="ok", idempotency_key="many-129")["id"] == ids[129]
    assert client.jobs.wait(ids[7])["method"] == "POST"
    assert client.jobs.submit_many([]) == {"ids": [], "refused": []}

    jobs = [{"target": "images", "path": "ok"} for _ in range(102)]
    jobs += [{"target": "held", "path": "a"} for _ in range(5)]
    submitted = client.jobs.submit_many(jobs)
    refused = {(job["index"], job["code"]) for job in submitted["refused"]}
    assert refused == {(105, "queue_full"), (106, "queue_full")}
    assert [n for n, id_ in enumerate(submitted["ids"]) if id_ is None] == [105, 106]
    for id_ in submitted["ids"][102:105]:
        client.jobs.cancel(id_)


def test_an_invalid_one_of_many_is_named(client):
    """By its index in the whole list, also if earlier requests were sent. Large jobs take requests
    of their own, so that none is too large."""
    large = {"target": "images", "path": "ok", "body": "x" * 90_000}
    jobs = [*[large] * 4, {"target": "images", "path": "../a"}, {"target": "nix"}]
    with pytest.raises(RejectedError, match="The 2 jobs before were submitted") as caught:
        client.jobs.submit_many(jobs)
    assert [line.partition(": ")[0] for line in caught.value.problems] == [
        "jobs.4.path", "jobs.5.target",
    ]  # fmt: skip


def test_a_wait_ends_in_time(client):
    """After `wait` seconds, the error has the job as it is then."""
    job = client.jobs.submit("held", path="a")
    for wait in (None, False, 0, 0.5):
        with pytest.raises(TimeoutError, match="has not ended: it is pending") as caught:
            client.jobs.wait(job["id"], wait=wait)
        assert caught.value.document["id"] == job["id"]
    client.jobs.cancel(job["id"])
    assert client.jobs.wait(job["id"])["state"] == "cancelled"


def test_what_is_refused_says_so(client):
    """A full queue is Refused, a wrong request RejectedError with each problem."""
    held = [client.jobs.submit("held", path="a")["id"] for _ in range(3)]
    with pytest.raises(Refused, match="target held: the queue is full") as caught:
        client.jobs.submit("held", path="a")
    assert caught.value.retry_after > 0
    for id_ in held:
        client.jobs.cancel(id_)
    with pytest.raises(RejectedError) as rejected:
        client.jobs.submit("images", method="BREW", body=b"1", kind="neither")
    assert rejected.value.status == 422
    assert any("kind: " in line for line in rejected.value.problems)
    with pytest.raises(RejectedError, match="404"):
        client.jobs.get("x" * 22)
    with pytest.raises(RejectedError, match="404"):
        next(client.jobs.body("x" * 22))


async def test_results_come_as_they_end(client, aclient):
    """Each job once, those that end first before others; in a list newest first."""
    ids = [
        client.jobs.submit("images", path="ok", query={"seconds": seconds})["id"]
        for seconds in ("5", "0", "0")
    ]
    found = [job["id"] async for job in aclient.jobs.results(ids)]
    assert found[2] == ids[0]
    assert sorted(found) == sorted(ids)
    assert [job["id"] for job in client.jobs.results(ids)] == ids
    listed = [job["id"] for job in client.jobs.iterate(target="images", state="completed")]
    assert listed[:3] == ids[::-1]
    assert [job["id"] async for job in aclient.jobs.iterate(target="images")][:3] == ids[::-1]
    assert b"".join([part async for part in aclient.jobs.body(ids[1])])


def test_a_job_that_ended_is_tried_again(client):
    job = client.jobs.submit("images", path="status/404")
    assert client.jobs.wait(job["id"])["state"] in {"failed", "completed"}
    assert client.jobs.retry(job["id"])["state"] in {"pending", "processing"}
    client.jobs.wait(job["id"])


# Permits of online jobs.


async def test_a_permit_is_held_and_given_back(client, aclient):
    """One at a time: the next one has it when the block ends, however it does."""
    with client.jobs.permit("files") as job:
        assert job["permit"].startswith("files~")
        with pytest.raises(Queued, match="has no permit: the job is pending"):
            client.jobs.permit("files", wait=0.2).__enter__()
        waiting = asyncio.create_task(hold(aclient))
        await asyncio.sleep(0)
    assert (await waiting).startswith("files~")
    states = {job["state"] for job in client.jobs.iterate(target="files")}
    assert states == {"completed", "cancelled"}


def test_help_names_the_fields_of_a_job():
    """The signature of submit and permit, of both clients, has each field of JobRequest."""
    for method in (Jobs.submit, Jobs.permit, AsyncJobs.submit, AsyncJobs.permit):
        assert JobRequest.__annotations__.keys() <= inspect.signature(method).parameters.keys()
        assert "idempotency_key" in pydoc.render_doc(method)


def test_jobs_are_found_by_state_status_and_time(client):
    """By a time with a zone, or how long ago."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    done = client.jobs.wait(client.jobs.submit("images", path="status/404")["id"], wait=30)

    def found(**filters):
        return done["id"] in {job["id"] for job in client.jobs.iterate(target="images", **filters)}

    assert found(state=done["state"], status=404, from_=before, to="0s")
    assert found(status="4xx", from_="1h")
    assert not found(status=200)
    assert not found(from_=datetime.now(UTC) + timedelta(seconds=1))
    assert not found(to=before)


def test_a_permit_lost_meanwhile_is_told(client):
    """If the permit ends before the block does, others may be called: LeaseLost. The block's own
    error comes through."""
    for error in (None, OSError("broke")):
        with (  # noqa: PT012
            pytest.raises(OSError if error else LeaseLost, match="broke" if error else "brief"),
            client.jobs.permit("brief", wait=20) as job,
        ):
            wait_until(lambda id_=job["id"]: client.jobs.get(id_)["state"] == "expired", "the end")
            if error:
                raise error


async def hold(aclient):
    async with aclient.jobs.permit("files") as job:
        return job["permit"]


async def test_a_cancelled_task_leaves_the_queue(client, aclient):
    """A task that is cancelled while it queues for a permit has cancelled its job."""
    with client.jobs.permit("files"):
        task = asyncio.create_task(hold(aclient))

        def pending():
            return list(client.jobs.iterate(target="files", state="pending"))

        await asyncio.to_thread(wait_until, pending, "its job")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not pending()


def states_of(client):
    return [job["state"] for job in client.jobs.iterate(target="files")]


async def test_a_task_cancelled_while_it_submits_takes_its_job_back(service, client):
    """The replica has the job and its permit, but nobody has read so: the slot is free again."""
    count = len(states_of(client))
    with Faulty(service.urls[0]) as relay:
        relay.lets_pass.clear()
        async with AsyncClient(relay.address, token=ADMIN_TOKEN, retries=0) as aclient:
            task = asyncio.create_task(hold(aclient))
            assert await asyncio.to_thread(relay.holds.wait, 30)
            task.cancel()
            relay.lets_pass.set()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert states_of(client)[: len(states_of(client)) - count] == ["cancelled"]
    with client.jobs.permit("files", wait=5) as job:
        assert job["state"] == "called"


def test_a_submission_without_a_response_takes_its_job_back(service, client):
    """With the caller's own idempotency_key it stays: the same again is the same job. What was
    refused, or never arrived, leaves nothing to take back."""
    count = len(states_of(client))
    for name in (None, "mine"):
        with (
            Faulty(service.urls[0], lose=1) as relay,
            Client(relay.address, token=ADMIN_TOKEN, retries=0) as lossy,
            pytest.raises(UnavailableError),
        ):
            lossy.jobs.permit("files", idempotency_key=name).__enter__()
    assert states_of(client)[: len(states_of(client)) - count] == ["called", "cancelled"]
    with client.jobs.permit("files", idempotency_key="mine") as job:
        assert job["state"] == "called"
    count = len(states_of(client))
    nowhere = f"http://127.0.0.1:{free_port()}"
    with Client(nowhere, token=ADMIN_TOKEN, retries=0) as lossy, pytest.raises(UnavailableError):
        lossy.jobs.permit("files").__enter__()
    assert len(states_of(client)) == count
    with Faulty(service.urls[0]) as relay, Client(relay.address, token=ADMIN_TOKEN) as other:
        with pytest.raises(RejectedError):
            other.jobs.permit("files", class_name="none").__enter__()
        assert relay.asked == 1


# Rooms.


def test_an_operator_changes_a_room(client):
    """Settings, pause and back; the log has the operator's name."""
    assert [room["room"] for room in client.rooms.list()] == ["shop"]
    assert client.rooms.update("shop", total_active_users=7)["settings"]["total_active_users"] == 7
    client.rooms.update("shop", total_active_users=None)
    assert client.rooms.get("shop")["settings"]["total_active_users"] == 1
    assert client.rooms.pause("shop")["mode"] == client.rooms.pause("shop")["mode"] == "paused"
    assert client.rooms.drain("shop", why="a test")["mode"] == "draining"
    assert client.rooms.resume("shop")["mode"] == "running"
    assert client.rooms.reset("shop") == 0
    assert client.rooms.find("shop", "x" * 22)["state"] == "unknown"
    for act in (
        lambda: client.rooms.release("shop", "x" * 22),
        lambda: client.rooms.move("shop", "x" * 22, "head", why="a test"),
        lambda: client.rooms.set_class("shop", "x" * 22, None),
    ):
        with pytest.raises(RejectedError, match=r"404|422"):
            act()
    assert "drained: a test" in [entry["text"] for entry in client.rooms.log("shop")]
    entry = client.rooms.log("shop")[0]
    assert "ann" in entry["by"]
    with pytest.raises(RejectedError, match="no room is named 'more'"):
        client.rooms.get("more")


async def test_the_same_for_tasks(aclient):
    rooms = await aclient.rooms.list()
    assert await aclient.rooms.get("shop") == rooms[0]


# Its types.


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (model.Job, "get /v1/jobs/{id}"),
        (model.JobResult, "get /v1/jobs/{id} result"),
        (model.JobPage, "get /v1/jobs"),
        (model.Room, "get /admin/rooms/{room}"),
        (model.Line, "get /admin/rooms/{room} lines"),
        (model.Visitor, "get /admin/rooms/{room}/visitors/{visitor}"),
        (model.LogEntry, "get /admin/rooms/{room}/log log"),
    ],
)
def test_types_are_those_of_the_description(client, kind, at):
    """A document's type has the members that the replica's OpenAPI document has, each of its type,
    and those that may be left out may be left out."""
    found = described(client, *at.split())
    assert set(kind.__annotations__) == set(found["properties"])
    hints = typing.get_type_hints(kind, include_extras=True)
    optional = {name for name in hints if typing.get_origin(hints[name]) is typing.NotRequired}
    assert set(hints) - optional == set(found["required"])
    document = client.request("GET", "/openapi.json")
    wrong = {}
    for name, hint in typing.get_type_hints(kind).items():
        types = json_types(document, found["properties"][name])
        if name in optional:
            types.discard("null")
        if json_types_of_hint(hint) != types:
            wrong[name] = types
    assert wrong == {}


def test_what_is_read_of_limits_and_leases_is_described(client):
    """And what may be submitted as a job."""
    decision = described(client, "post", "/v1/limits/{name}/acquire")
    assert set(decision["properties"]) >= model.DECISION_MEMBERS
    assert set(described(client, "get", "/v1/leases/{template}/{resource}")["properties"]) > (
        model.LEASE_MEMBERS
    )
    order = described(client, "post", "/v1/jobs", of="request")
    names = {"class" if name == "class_name" else name for name in JobRequest.__annotations__}
    assert names | {"target", "body_base64"} == set(order["properties"])


def json_types(document, schema):
    """The JSON types of a schema's values."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if several := schema.get("anyOf", schema.get("oneOf")):
        return set().union(*(json_types(document, each) for each in several))
    return {schema["type"]} if "type" in schema else {JSON_TYPES[type(schema["enum"][0])]}


JSON_TYPES = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
    list: "array", dict: "object",
}  # fmt: skip


def json_types_of_hint(hint):
    if isinstance(hint, UnionType):
        return set().union(*(json_types_of_hint(each) for each in typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return {JSON_TYPES[type(each)] for each in typing.get_args(hint)}
    origin = dict if typing.is_typeddict(hint) else typing.get_origin(hint) or hint
    return {JSON_TYPES[origin]}


def described(client, method, path, *members, of="response"):
    """The schema of a call's answer, or of one of its members."""
    document = client.request("GET", "/openapi.json")
    call = document["paths"][path][method]
    if of == "request":
        content = call["requestBody"]["content"]
    else:
        content = next(answer for status, answer in call["responses"].items() if status == "200")
        content = resolved(document, content)["content"]
    schema = resolved(document, content["application/json"]["schema"])
    for member in members:
        schema = resolved(document, schema["properties"][member])
    return schema


def resolved(document, schema):
    """What it refers to; the object among several, and the items of an array."""
    for one in schema.get("anyOf", schema.get("oneOf", ())):
        if one.get("type") != "null":
            schema = one
            break
    if schema.get("type") == "array":
        schema = schema["items"]
    if "$ref" in schema:
        found = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return resolved(document, found)
    return schema


def test_hints_can_be_read():
    """All annotations name something, so that programs that read them at run time can."""
    for kind in (model.Job, model.Room, JobRequest, model.Permit):
        assert typing.get_type_hints(kind)
    assert Client.request.__doc__
    assert Client.permit.__doc__ == AsyncClient.permit.__doc__
