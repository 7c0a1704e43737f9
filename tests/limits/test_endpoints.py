"""The endpoints of limits for programs, and who may use the service API."""

import asyncio
import random
import time
from urllib.parse import unquote

import pytest

from sidecar.http.long_poll import LONG_POLLS
from sidecar.http.problems import STORE_RETRY_S
from sidecar.limits import store
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.model import Call
from sidecar.limits.schemas import PERMIT_HINT
from sidecar.limits.service import LIMITS
from sidecar.limits.settings import MAX_COST, MAX_LIMIT
from tests.support.limits import WINDOWS
from tests.support.receiver import until
from tests.support.replica import ADMIN_TOKEN, SERVICE_TOKEN

KEYED = "{biz}:{channel}"
FIELDS = {"biz": "refund", "channel": "wx"}
#: One call a minute; the next has to wait.
PACED = {"algorithm": "leaky_bucket", "limit": 1, "window": "1m", "on_exceed": "pace",
         "max_wait": "1h"}  # fmt: skip
#: A jump of the turned clock into the next window is a whole window.
FIXED = {"algorithm": "fixed_window", "limit": 2, "window": "10s"}

ACQUIRE = "/limits/{name}/acquire"
#: The members in which a look and a call agree.
SAID = ("outcome", "allowed", "wait_seconds", "at")


async def acquire(site, body=None, *, status=200, **named):
    """Acquire. Return the document and headers of the response."""
    answer = await site.ask("POST", ACQUIRE, named if body is None else body)
    document = await answer.json(content_type=None)
    assert answer.status == status, document
    return document, answer.headers


async def released(site, permit, **call) -> bool:
    """Release a permit. Return whether there was anything to release."""
    document = await site.fetch("POST", "/limits/{name}/release", {"permit": permit, **call})
    assert document.keys() == {"released"}
    return document["released"]


def given_back(site) -> float:
    return site.metrics.of(LimitMetrics).limit_releases.labels(site.name)._value.get()


def outcomes(site) -> dict[str, float]:
    samples = site.metrics.of(LimitMetrics).limit_decisions.collect()[0].samples
    return {each.labels["outcome"]: each.value for each in samples}


# Who may ------------------------------------------------------------------------------------------


async def test_without_any_token_the_api_is_off(service):
    """Without tokens the API is off and says which setting switches it on; the admin token alone
    opens it."""
    site = await service(limit=FIXED, admin_token="", service_token="")
    answer = await site.ask("GET", "/limits")
    said = await answer.json()
    assert (answer.status, said["title"]) == (403, "The service API is off")
    assert "WAITROOM_SERVICE_TOKEN" in said["detail"]
    site = await service(limit=FIXED, service_token="")
    answer = await site.ask("GET", "/limits", token="")
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="waitroom"'
    await site.fetch("GET", "/limits", token=ADMIN_TOKEN)


async def test_an_unknown_limit(service):
    """An unknown limit is a 404 that names it, whatever it is called."""
    site = await service(limit=FIXED)
    said = await site.fetch("POST", "/limits/pai/acquire", {}, status=404)
    assert (said["title"], said["detail"]) == ("Unknown limit", "no limit is named 'pai'")
    for name in ("%00", "%FF", "%F0%9F%8E%AB", "..", "%2e%2e", "{x}", "a%2Fb", "x" * 3000):
        for way in ("GET /limits/{}", "POST /limits/{}/acquire", "POST /limits/{}/release",
                    "GET /limits/{}/values", "PUT /limits/{}/values/a"):  # fmt: skip
            method, path = way.format(name).split()
            answer = await site.ask(method, path, {"limit": 1, "permit": "1~a"})
            assert answer.status in {404, 405}, (way, name)


# Calls --------------------------------------------------------------------------------------------


async def test_a_call_that_may_go(service):
    """A granted call reads what is left, in the document and in headers."""
    site = await service(limit={**FIXED, "key": KEYED})
    document, headers = await acquire(site, fields=FIELDS)
    assert document == {
        "allowed": True, "outcome": "granted", "permit": None, "key": "refund:wx", "limit": 2,
        "remaining": 1, "wait_seconds": 0, "at": "2027-01-15T08:00:00.000000+00:00",
        "reset_seconds": 10, "expires_in_seconds": None,
    }  # fmt: skip
    assert headers["RateLimit-Policy"] == f'"{site.name}";q=2;w=10'
    assert headers["RateLimit"] == f'"{site.name}";r=1;t=10'
    assert headers["Cache-Control"] == "no-store"
    assert "Retry-After" not in headers
    # The whole key is the same one; a key of its own is another.
    assert (await acquire(site, key="refund:wx"))[0]["remaining"] == 0
    assert (await acquire(site, fields={**FIELDS, "channel": "ali"}))[0]["remaining"] == 1


async def test_a_call_over_the_limit(service):
    """A refusal is a 429 with the same members and when to ask again, and counts nothing."""
    site = await service(limit=FIXED)
    await acquire(site, cost=2)
    site.turn.forward(0.5)
    for _ in range(2):
        document, headers = await acquire(site, {}, status=429)
        assert document == {
            "type": "urn:waitroom:problem:over_limit", "title": "Over the limit", "status": 429,
            "detail": "Nothing was counted. Ask again after 10 s.", "code": "over_limit",
            "retry_after_seconds": 10,
            "allowed": False, "outcome": "refused", "permit": None, "key": "", "limit": 2,
            "remaining": 0, "wait_seconds": 9.5, "at": "2027-01-15T08:00:10.000000+00:00",
            "reset_seconds": 9.5, "expires_in_seconds": None,
        }  # fmt: skip
        assert headers.getall("Content-Type") == ["application/problem+json"]
        assert headers["Retry-After"] == "10"
        assert headers["RateLimit"] == f'"{site.name}";r=0;t=10'
    site.turn.forward(9.5)
    assert (await acquire(site, cost=2))[0]["allowed"]
    assert outcomes(site) == {"granted": 2, "refused": 2}


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({"algorithm": "sliding_window", "window": "1s"}, "q=1;w=1"),
        ({"algorithm": "token_bucket", "window": "1h", "burst": 3}, "q=1;w=3600"),
        ({"algorithm": "leaky_bucket", "window": "0.5s"}, "q=1"),
        ({"algorithm": "fixed_window", "window": "1.5s"}, "q=1"),
        ({"algorithm": "concurrency"}, 'q=1;qu="concurrent-requests"'),
    ],
)
async def test_the_policy(service, settings, policy):
    """RateLimit-Policy has the window only if it is of whole seconds; concurrency has none."""
    site = await service(limit={**settings, "limit": 1})
    _, headers = await acquire(site, {})
    assert headers["RateLimit-Policy"] == f'"{site.name}";{policy}'


@pytest.mark.parametrize(
    "settings",
    [
        *({"algorithm": f"{name}", "window": "10s"} for name in WINDOWS if name != "fixed_window"),
        {"algorithm": "concurrency", "lease": "10s"},
        {"algorithm": "token_bucket", "window": "10s", "on_exceed": "pace", "max_wait": "1s"},
    ],
)
async def test_who_is_refused_is_not_told_of_another_moment(service, settings):
    """RateLimit and Retry-After name the same seconds, even if the whole limit is free later."""
    site = await service(limit={**settings, "limit": 5})
    for _ in range(7):
        site.turn.forward(0.3)
        answer = await site.ask("POST", ACQUIRE, {})
    assert answer.status == 429
    retry = int(answer.headers["Retry-After"])
    assert answer.headers["RateLimit"] == f'"{site.name}";r=0;t={retry}'
    assert 1 <= retry < 10


async def test_an_unlimited_key(service):
    """A key without a limit has no numbers and no RateLimit headers."""
    site = await service(limit={**FIXED, "key": "{biz}", "values": {"free": -1}})
    for _ in range(3):
        document, headers = await acquire(site, fields={"biz": "free"})
    assert (document["outcome"], document["allowed"]) == ("unlimited", True)
    assert [document[name] for name in ("limit", "remaining", "reset_seconds")] == [None] * 3
    assert "RateLimit" not in headers
    assert "RateLimit-Policy" not in headers


async def test_a_limit_of_0(service):
    """With a limit of 0 there is no moment to ask again."""
    site = await service(limit={**FIXED, "limit": 0})
    document, headers = await acquire(site, {}, status=429)
    assert (document["wait_seconds"], document["at"]) == (None, None)
    assert document["detail"] == f"The limit of '{site.name}' is 0."
    assert headers["Retry-After"] == "60"
    assert headers["RateLimit"] == f'"{site.name}";r=0'


async def test_a_call_that_is_paced(service):
    """A paced call has its moment; beyond max_wait it is refused, with when to ask again."""
    site = await service(limit={**PACED, "max_wait": "2m"})
    waits = [(await acquire(site, {}))[0] for _ in range(3)]
    assert [each["wait_seconds"] for each in waits] == [0, 60, 120]
    assert [each["outcome"] for each in waits] == ["granted", "paced", "paced"]
    assert waits[2]["at"] == "2027-01-15T08:02:00.000000+00:00"
    assert all(each["allowed"] for each in waits)
    document, headers = await acquire(site, {}, status=429)
    assert (document["wait_seconds"], headers["Retry-After"]) == (60, "60")


async def test_a_moment_is_told_to_the_microsecond(service):
    """Moments have a resolution of a microsecond, so a caller who goes by `at` is not early."""
    site = await service(limit={**PACED, "limit": 7, "window": "1s"})
    told, _ = await acquire(site, [{}] * 3)
    assert [each["at"][-13:-6] for each in told] == [".000000", ".142858", ".285716"]
    assert [each["wait_seconds"] for each in told] == [0, 0.142858, 0.285716]


async def test_a_list_of_calls(service):
    """A list of calls is answered in its order, with 200 whatever the decisions and costs are."""
    site = await service(limit={**FIXED, "key": "{biz}"})
    asked = [
        {"key": "a", "cost": 2}, {"fields": {"biz": "b"}}, {"key": "a"}, {"key": "a", "cost": 9},
    ]  # fmt: skip
    told, headers = await acquire(site, asked)
    assert [(each["key"], each["outcome"]) for each in told] == [
        ("a", "granted"), ("b", "granted"), ("a", "refused"), ("a", "refused"),
    ]  # fmt: skip
    assert [each["wait_seconds"] for each in told] == [0, 0, 10, None]
    assert "RateLimit" not in headers
    told, _ = await acquire(site, [{"key": "c"}] * 1000)
    assert [each["allowed"] for each in told] == [True] * 2 + [False] * 998


ID = "id: 1 to 64 letters, digits and . _ - : @ +"
KEY = "key: at most 256 characters, ASCII without spaces"
BAD_CALLS = {
    **{f"the cost {cost!r}": ({"cost": cost},
                              [f"cost: a whole number from 1 to {MAX_COST} (got {cost!r})"])
       for cost in (0, -1, 1001, 1.5, True, "1")},
    "over the limit": ({"cost": 3}, ["cost: 3 is more than is ever granted at once (limit 2)"]),
    "no text": ({"id": 7}, [f"{ID} (got 7)"]),
    **{f"the id {id_!r}": ({"id": id_}, [f"{ID} (got {id_[:40]!r})"])
       for id_ in ("", "a b", "a" * 65)},
    "other members": ({"const": 1, "x" * 99: 2},
                      ["const: unknown member; did you mean cost?", "x" * 40 + ": unknown member"]),
    "a field is missing": ({"fields": {"biz": "a"}},
                           ["channel: is needed, a part of the key {biz}:{channel}"]),
    "all are": ({"fields": {}}, ["biz: is needed, a part of the key {biz}:{channel}",
                                 "channel: is needed, a part of the key {biz}:{channel}"]),
    "one is empty": ({"fields": {**FIELDS, "biz": ""}},
                     ["biz: is needed, a part of the key {biz}:{channel}"]),
    "one too many": ({"fields": {**FIELDS, "shop": "a"}},
                     ["shop: is no part of the key (biz, channel)"]),
    "no texts": ({"fields": {"biz": 1, "channel": "wx"}}, ["fields: an object of texts"]),
    "no object": ({"fields": ["refund"]}, ["fields: an object of texts"]),
    "a long field": ({"fields": {**FIELDS, "biz": "a" * 300}},
                     ["the key is longer than 256 characters"]),
    "both": ({"key": "a", "fields": FIELDS}, ["key: in place of fields, not beside them"]),
    "no key": ({"key": 1}, [f"{KEY} (got 1)"]),
    **{f"the key {key!r}": ({"key": key}, [f"{KEY} (got {key[:40]!r})"])
       for key in ("a b", "\ud800", "a" * 257)},
    "all at once": ({"cost": "x", "id": [], "fields": 7, "y": 0},
                    ["y: unknown member", "fields: an object of texts (got 7)",
                     f"cost: a whole number from 1 to {MAX_COST} (got 'x')", ID]),
}  # fmt: skip


async def test_calls_that_are_not_allowed(service):
    """Each fault of a call is named, and nothing is counted."""
    site = await service(limit={**FIXED, "key": KEYED})
    for what, (members, said) in BAD_CALLS.items():
        named = {} if {"fields", "key"} & members.keys() else {"fields": FIELDS}
        assert await site.errors("POST", ACQUIRE, {**named, **members}) == said, what
    # In a list each error begins with the number of the call.
    calls = [{"fields": FIELDS}, {"key": "a", "cost": 0}, 7]
    assert await site.errors("POST", ACQUIRE, calls) == [
        "1: cost: a whole number from 1 to 1000 (got 0)", "2: a call is a JSON object",
    ]  # fmt: skip
    assert (await acquire(site, fields=FIELDS))[0]["remaining"] == 1


async def test_a_call_of_a_limit_without_fields_needs_no_body(service):
    """A call without a body has no fields; a limit with fields names the missing ones."""
    site = await service(limit=FIXED)
    for raw, left in ((b"", 1), (b" \n", 0)):
        answer = await site.ask("POST", ACQUIRE, data=raw)
        assert (answer.status, (await answer.json())["remaining"]) == (200, left)
    site = await service(limit={**FIXED, "key": KEYED})
    said = await site.errors("POST", ACQUIRE, data=b"")
    assert said == [f"{name}: is needed, a part of the key {KEYED}" for name in FIELDS]


async def test_bodies_that_are_none(service):
    """Bodies that are no JSON, of another charset, of no or too many calls, or too large."""
    site = await service(limit=FIXED)
    path = ACQUIRE
    for raw in (b"{", b"nonsense", b"\xff\xfe", b"[" * 9999):
        answer = await site.ask("POST", path, data=raw)
        said = (answer.status, (await answer.json(content_type=None))["code"])
        assert said == (400, "unreadable_body"), raw
    said = await site.errors("POST", path, data=b'{"cost": %s}' % (b"9" * 5000))
    assert said == ["the body has a whole number of more than 4300 digits"]
    for raw in (b"null", b"7", b'"a"'):
        assert await site.errors("POST", path, data=raw) == ["a call is a JSON object"]
    assert await site.errors("POST", path, []) == ["a list has 1 to 1000 calls (got 0)"]
    assert await site.errors("POST", path, [{}] * 1001) == ["a list has 1 to 1000 calls (got 1001)"]
    answer = await site.ask("POST", path, data=b" " * 262_145)
    assert answer.status == 413
    # A list of the longest calls fits.
    call = {"key": "k" * 150, "cost": 1, "id": "i" * 64}
    answer = await site.ask("POST", path, [call] * 1000)
    assert answer.status == 200
    # null means the same as leaving a member out, and 1.0 is a whole number.
    body = {"key": None, "fields": {}, "cost": 1.0, "id": None}
    assert (await acquire(site, body))[0]["remaining"] == 1


# Looking, giving back, values ---------------------------------------------------------------------


async def test_a_look_takes_nothing(service):
    """A look by fields or by the whole key counts nothing, and has the limit's settings."""
    site = await service(limit={**FIXED, "key": KEYED, "values": {"pay:wx": 1}})
    for _ in range(3):
        told = await site.fetch("GET", "/limits/{name}?biz=refund&channel=wx")
    assert (told["allowed"], told["remaining"], told["key"]) == (True, 2, "refund:wx")
    assert (told["algorithm"], told["window"], told["fields"]) == (
        "fixed_window", 10, ["biz", "channel"],
    )  # fmt: skip
    assert (await site.fetch("GET", "/limits/{name}?key=pay:wx"))["limit"] == 1
    await acquire(site, key="pay:wx")
    answer = await site.ask("GET", "/limits/{name}?key=pay:wx")
    told = await answer.json()
    assert (answer.status, told["allowed"], told["wait_seconds"]) == (200, False, 10)
    assert answer.headers["RateLimit"] == f'"{site.name}";r=0;t=10'
    for query, said in (
        ("", "biz: is needed, a part of the key {biz}:{channel}"),
        ("key=a&biz=b&channel=c", "key: is no part of the key (biz, channel)"),
        ("key=a%20b", f"{KEY} (got 'a b')"),
    ):
        assert said in await site.errors("GET", f"/limits/{{name}}?{query}"), query
    assert outcomes(site) == {"granted": 1}


async def test_a_look_at_a_limit_that_paces_says_what_a_call_is_told(service):
    """A look and a call agree: paced with its moment, and refused only beyond max_wait."""
    site = await service(limit={**PACED, "max_wait": "1m"})
    for outcome, status in (("granted", 200), ("paced", 200), ("refused", 429)):
        looked = await site.fetch("GET", "/limits/{name}")
        told, _ = await acquire(site, {}, status=status)
        assert (looked["outcome"], looked["allowed"]) == (outcome, status == 200)
        assert [looked[name] for name in SAID] == [told[name] for name in SAID]
        assert looked["permit"] is None


async def test_the_rules_are_listed(service):
    """Limits are listed as configured, with the fields that a call names."""
    site = await service(limit={"algorithm": "token_bucket", "limit": -1, "window": "1m",
                                "key": KEYED, "idempotency_window": "5m"})  # fmt: skip
    (rule,) = (await site.fetch("GET", "/limits"))["limits"]
    assert rule == {
        "name": site.name, "algorithm": "token_bucket", "key": KEYED, "fields": ["biz", "channel"],
        "limit": None, "window": 60, "burst": None, "on_exceed": "refuse", "max_wait": 60,
        "lease": 60, "idempotency_window": 300, "on_store_failure": "admit",
    }  # fmt: skip


async def test_a_permit_is_given_back(service):
    """A permit of concurrency can be given back at any time."""
    site = await service(limit={"algorithm": "concurrency", "limit": 1, "key": "{biz}"})
    document, _ = await acquire(site, key="a")
    assert document["expires_in_seconds"] == 60
    refused, _ = await acquire(site, key="a", status=429)
    assert refused["expires_in_seconds"] is None
    assert await released(site, document["permit"], fields={"biz": "a"})
    assert (await acquire(site, key="a"))[0]["allowed"]
    for bad, said in (
        ({"key": "a"}, ["permit: is needed"]),
        ({"key": "a", "permit": ""}, [f"permit: {PERMIT_HINT} (got '')"]),
        ({"key": "a", "permit": 7}, [f"permit: {PERMIT_HINT} (got 7)"]),
        ({"key": "a", "permit": "\ud800"}, [f"permit: {PERMIT_HINT} (got '\\ud800')"]),
        ({"key": "a", "permit": "1" * 999}, [f"permit: {PERMIT_HINT} (got '{'1' * 40}')"]),
        ({"permit": "1~a", "cost": 1}, ["cost: unknown member"]),
        ({"permit": "1~a"}, ["biz: is needed, a part of the key {biz}"]),
        ([], ["the body must be a JSON object"]),
    ):  # fmt: skip
        assert await site.errors("POST", "/limits/{name}/release", bad) == said


async def test_a_keys_limit_is_changed(service):
    """A key's limit changes from the next call on, and can be reset to the configured value."""
    site = await service(limit={**FIXED, "key": "{path}", "values": {"slow": 1}})
    # The key of the path a/b: its percent sign is encoded in the address.
    path = "/limits/{name}/values/a%252Fb"
    assert (await acquire(site, fields={"path": "a/b"}))[0]["limit"] == 2
    assert await site.fetch("PUT", path, {"limit": 5}) == {"key": "a%2Fb", "limit": 5}
    assert (await acquire(site, fields={"path": "a/b"}))[0]["limit"] == 5
    await site.fetch("PUT", path, {"limit": -1})
    assert (await acquire(site, fields={"path": "a/b"}))[0]["limit"] is None
    await site.fetch("PUT", "/limits/{name}/values/slow", {"limit": 0})
    assert await site.fetch("GET", "/limits/{name}/values") == {
        "file": {"slow": 1}, "set": {"a%2Fb": -1, "slow": 0},
    }  # fmt: skip
    assert await site.fetch("DELETE", path) == {"key": "a%2Fb", "limit": 2}
    assert await site.fetch("DELETE", path) == {"key": "a%2Fb", "limit": 2}
    assert await site.fetch("DELETE", "/limits/{name}/values/slow") == {"key": "slow", "limit": 1}
    assert (await site.fetch("GET", "/limits/{name}/values"))["set"] == {}


async def test_a_value_for_a_key_that_no_fields_can_make(service):
    """A value for a key that no fields can make is set, with a warning."""
    site = await service(limit={**FIXED, "key": KEYED})
    told = await site.fetch("PUT", "/limits/{name}/values/pay", {"limit": 1})
    assert (told["key"], told["limit"]) == ("pay", 1)
    assert told["warning"].startswith("no call that names its fields has the key 'pay': such keys")
    assert (await acquire(site, key="pay"))[0]["limit"] == 1
    told = await site.fetch("PUT", "/limits/{name}/values/pay:wx", {"limit": 1})
    assert "warning" not in told


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "values/x"), ("DELETE", "values/x"), ("DELETE", "counts/x")]
)
async def test_a_program_neither_changes_nor_resets_a_key(service, method, path):
    """A service token may not, and the key stays as it is: that is the operator's."""
    site = await service(limit={**FIXED, "key": "{a}"})
    await acquire(site, fields={"a": "x"})
    path = f"/limits/{{name}}/{path}"
    said = await site.fetch(method, path, {"limit": -1}, status=403, token=SERVICE_TOKEN)
    assert (said["title"], "admin_token" in said["detail"]) == ("For operators", True)
    assert (await site.fetch("GET", "/limits/{name}/values"))["set"] == {}
    assert (await site.fetch("GET", "/limits/{name}?a=x"))["remaining"] == 1


async def test_a_limit_without_fields_is_changed(service):
    """The key of a limit without fields is empty, or the configured text."""
    for key in ("", "all"):
        site = await service(limit={**FIXED, "limit": -1, "key": key})
        told = await site.fetch("PUT", "/limits/{name}/values/", {"limit": 1})
        assert told == {"key": key, "limit": 1}
        assert (await acquire(site, {}))[0]["remaining"] == 0
        told = await site.fetch("DELETE", "/limits/{name}/values/")
        assert told == {"key": key, "limit": -1}
        assert (await acquire(site, {}))[0]["outcome"] == "unlimited"


@pytest.mark.parametrize(
    "settings",
    [{**FIXED, "algorithm": name} for name in WINDOWS if name != "leaky_bucket"]
    + [{"algorithm": "concurrency", "limit": 2}],
)
async def test_a_key_is_reset(service, settings):
    """After a reset the whole limit of the key is free; another key stays as it is."""
    site = await service(limit={**settings, "key": "{path}"})
    for path in ("a/b", "c"):
        for _ in range(2):
            await acquire(site, fields={"path": path})
    path = "/limits/{name}/counts/a%252Fb"
    assert await site.fetch("DELETE", path) == {"key": "a%2Fb", "reset": True}
    assert await site.fetch("DELETE", path) == {"key": "a%2Fb", "reset": False}
    assert (await site.fetch("GET", "/limits/{name}?path=a/b"))["remaining"] == 2
    assert (await site.fetch("GET", "/limits/{name}?path=c"))["remaining"] == 0


async def test_a_reset_key_has_no_one_before_it(service):
    """After a reset of a limit that paces the next call may go now, free moments included."""
    site = await service(limit={**PACED, "max_wait": "2m"})
    calls = [(await acquire(site, {}))[0] for _ in range(3)]
    assert calls[2]["wait_seconds"] == 120
    assert await released(site, calls[2]["permit"])
    assert (await site.fetch("DELETE", "/limits/{name}/counts/"))["reset"]
    assert (await acquire(site, {}))[0]["outcome"] == "granted"
    assert not await released(site, calls[1]["permit"])
    assert (await acquire(site, {}))[0]["wait_seconds"] == 60


async def test_keys_that_are_counted(service, monkeypatch):
    """Counted keys of this limit are listed, least left first, a part of Redis at a time."""
    site = await service(limit={**FIXED, "limit": 3, "key": "{a}"})
    for key, calls in (("few", 1), ("all:of:it", 3), ("some", 2)):
        for _ in range(calls):
            await acquire(site, key=key)
    page = await site.fetch("GET", "/limits/{name}/counts")
    assert [(each["key"], each["remaining"]) for each in page["keys"]] == [
        ("all:of:it", 0), ("some", 1), ("few", 2),
    ]  # fmt: skip
    assert (page["found"], page["next"]) == (3, None)
    assert (page["keys"][0]["limit"], page["keys"][0]["reset_seconds"] > 0) == (3, True)
    page = await site.fetch("GET", "/limits/{name}/counts?limit=1")
    assert ([each["key"] for each in page["keys"]], page["found"]) == (["all:of:it"], 3)
    more = {f"more-{number}" for number in range(40)}
    for key in more:
        await acquire(site, key=key)
    monkeypatch.setattr(store, "SCAN_COUNT", 10)
    monkeypatch.setattr(store, "MAX_SCANS", 1)
    found, after, pages = set(), "", 0
    while after is not None:
        page = await site.fetch("GET", f"/limits/{{name}}/counts?after={after}")
        found |= {each["key"] for each in page["keys"]}
        after = page["next"]
        pages += 1
    assert found == {"all:of:it", "some", "few", *more}
    assert pages > 1
    assert await site.errors("GET", "/limits/{name}/counts?after=x") == [
        "after: the `next` of the page before (got 'x')"
    ]


async def test_values_that_are_not_allowed(service):
    """A wrong limit or key is refused with what is allowed."""
    site = await service(limit={**FIXED, "key": "{biz}"})
    allowed = f"limit: a whole number from 0 to {MAX_LIMIT}, or -1 for no limit"
    for value in (None, True, "5", 1.5, -2, MAX_LIMIT + 1, 10**400):
        said = await site.errors("PUT", "/limits/{name}/values/a", {"limit": value})
        assert said == [f"{allowed} (got {str(value)[:40]})" if value != "5" else
                        f"{allowed} (got '5')"], value  # fmt: skip
    said = await site.errors("PUT", "/limits/{name}/values/a", {"limits": 5})
    assert said == ["limits: unknown member; did you mean limit?", "limit: is needed"]
    for key in ("a%20b", "%00", "%C3%A4", "k" * 257):
        said = await site.errors("PUT", f"/limits/{{name}}/values/{key}", {"limit": 1})
        assert said == [f"{KEY} (got {unquote(key)[:40]!r})"], key
    for method, body in (("PUT", {"limit": 1}), ("DELETE", None)):
        said = await site.errors(method, "/limits/{name}/values/", body)
        assert said == ["biz: is needed, a part of the key {biz}"]


# Held answers -------------------------------------------------------------------------------------


def holding(site, query="?wait=60", **body):
    """Start a call whose response is held."""
    return asyncio.create_task(site.ask("POST", ACQUIRE + query, body))


async def test_an_answer_is_held_until_its_moment(service):
    """The response comes at the moment, not earlier. A call that need not wait, or is refused, is
    answered at once."""
    site = await service(limit={**PACED, "window": "0.3s", "max_wait": "0.3s"})
    assert (await (await holding(site)).json())["wait_seconds"] == 0
    began = time.monotonic()
    answer = await holding(site)
    assert time.monotonic() - began >= 0.3
    told = await answer.json()
    assert (told["outcome"], told["wait_seconds"]) == ("paced", 0)
    assert told["at"] == "2027-01-15T08:00:00.300000+00:00"
    assert answer.headers["RateLimit"] == f'"{site.name}";r=0;t=1'
    assert (await holding(site)).status == 429
    assert given_back(site) == 0


async def test_what_can_be_held(service):
    """`wait` is whole seconds, 0 to 60, and not for a list."""
    site = await service(limit=PACED)
    path = ACQUIRE + "?wait="
    assert await site.errors("POST", path + "1", [{}]) == ["wait: for one call, not for a list"]
    for text in ("61", "-1", "1.5", "true"):
        said = await site.errors("POST", path + text, {})
        assert said == [f"wait: whole seconds from 0 to 60 (got '{text}')"]
    await site.fetch("POST", path + "0", {})
    assert (await site.fetch("POST", path + "0", {}))["wait_seconds"] == 60


async def test_an_answer_is_held_no_longer_than_was_asked_for(service):
    """After `wait` seconds the response says how long is left, and the moment is kept."""
    site = await service(limit=PACED)
    await acquire(site, {})
    answer = await (await holding(site, "?wait=1", id="a")).json()
    assert answer["outcome"] == "paced"
    assert 50 < answer["wait_seconds"] <= 59
    assert (await acquire(site, {}))[0]["wait_seconds"] == 120
    assert given_back(site) == 0


@pytest.mark.parametrize(("id_", "wait_s"), [("", 60), ("order-17", 120)])
async def test_who_goes_away_gives_the_moment_back(service, id_, wait_s):
    """The moment of a client that disconnects goes to the next call. A call with an id keeps its
    moment, because its client may reconnect."""
    site = await service(limit=PACED)
    await acquire(site, {})
    named = {"id": id_} if id_ else {}
    await site.hang_up(ACQUIRE + "?wait=60", named)
    if id_:
        assert (await acquire(site, named))[0]["wait_seconds"] == 60
    else:
        await until(lambda: given_back(site) == 1, "the moment")
    assert (await acquire(site, {}))[0]["wait_seconds"] == wait_s
    assert given_back(site) == (not id_)


@pytest.mark.parametrize("header", ["order-17", '"order-17"'])
async def test_the_header_is_the_id_of_a_call(service, header):
    """A retry counts once, whether its id comes in Idempotency-Key, in the body, or in both."""
    site = await service(limit=FIXED)
    headers = {"Idempotency-Key": header}
    for body in (None, {}, {"fields": {}}, {"id": "order-17"}):
        answer = await site.ask("POST", ACQUIRE, body, headers=headers)
        assert (await answer.json())["remaining"] == 1
    assert (await acquire(site, id="order-17"))[0]["remaining"] == 1
    assert (await acquire(site, {}))[0]["remaining"] == 0


@pytest.mark.parametrize(
    ("header", "body", "problem"),
    [
        ("a", {"id": "b"}, "id: 'b', and the header Idempotency-Key is 'a'"),
        ("a b", {}, "Idempotency-Key: 1 to 64 letters, digits and . _ - : @ + (got 'a b')"),
        ("a", [{}, {}], "Idempotency-Key: for one call, not for a list: give each call an id"),
    ],
)
async def test_a_header_that_cannot_be_meant_is_refused(service, header, body, problem):
    """And nothing is counted."""
    site = await service(limit=FIXED)
    headers = {"Idempotency-Key": header}
    answer = await site.ask("POST", ACQUIRE, body, headers=headers)
    assert (answer.status, (await answer.json(content_type=None))["errors"]) == (422, [problem])
    assert (await acquire(site, {}))[0]["remaining"] == 1


async def test_who_is_gone_before_the_answer_gives_the_moment_back(service, monkeypatch):
    """A client that has disconnected before the response keeps nothing, of one call or a list."""
    site = await service(limit=PACED)
    await acquire(site, {})
    monkeypatch.setattr("sidecar.limits.endpoints.is_gone", lambda _request: True)
    await acquire(site, {})
    await until(lambda: given_back(site) == 1, "the moment")
    await acquire(site, [{}, {"id": "a"}])
    await until(lambda: given_back(site) == 2, "the moment")
    monkeypatch.undo()
    # A call with an id keeps its moment: the first is free, the next one is not.
    waits = [(await acquire(site, {}))[0]["wait_seconds"] for _ in range(2)]
    assert waits == [60, 180]


async def test_a_call_that_is_cut_off_gives_the_moment_back(service):
    """A handler that is cancelled gives the moment back as soon as Redis has answered."""
    site = await service(limit=PACED)
    await acquire(site, {})
    limit = site.ops.server.app[LIMITS].get(site.name)
    for ask in (Call(), Call(id="a")):
        call = asyncio.create_task(limit.acquire(ask))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await until(lambda: given_back(site) == 1, "the moment")
    # What has an id is kept, as above.
    assert (await acquire(site, id="a"))[0]["wait_seconds"] in {60, 120}
    assert given_back(site) == 1


async def test_a_replica_that_stops_holds_nobody(service):
    """A replica that stops answers held calls at once, with how long is left."""
    site = await service(limit=PACED)
    await acquire(site, {})
    calls = [holding(site) for _ in range(3)]
    polls = site.ops.server.app[LONG_POLLS]
    await until(lambda: len(polls) == 3, "the calls")
    stopping = asyncio.create_task(site.ops.server.close())
    answers = [await call for call in calls]
    await stopping
    waits = sorted([(await answer.json())["wait_seconds"] for answer in answers])
    for left, whole in zip(waits, (60, 120, 180), strict=True):
        assert whole - 30 < left <= whole
    assert {answer.status for answer in answers} == {200}
    assert given_back(site) == 0
    assert len(polls) == 0
    assert polls._tasks == []


# The store is away --------------------------------------------------------------------------------


@pytest.mark.parametrize(("says", "status"), [("admit", 200), ("refuse", 503)])
async def test_while_the_store_is_away(service, tmp_path, says, status):
    """While Redis is unavailable `on_store_failure` decides, and no numbers are sent."""
    away = f"unix://{tmp_path}/nobody.sock"
    site = await service(limit={**FIXED, "on_store_failure": says}, store=away)
    for _ in range(3):
        answer = await site.ask("POST", ACQUIRE + "?wait=60", {})
        told = await answer.json(content_type=None)
        assert (answer.status, told["allowed"]) == (status, status == 200)
        assert told["limit"] is told["remaining"] is told["at"] is None
        assert "RateLimit" not in answer.headers
        assert ("Retry-After" in answer.headers) == (status == 503)
    listed, _ = await acquire(site, [{}, {"cost": 2}])
    assert [each["allowed"] for each in listed] == [status == 200] * 2
    word = {"admit": "admitted_alone", "refuse": "refused_alone"}[says]
    assert listed[0]["outcome"] == word
    assert outcomes(site) == {word: 5}
    # Only what needs Redis is a 503.
    for method, path, body in (
        ("GET", "/limits/{name}", None), ("POST", "/limits/{name}/release", {"permit": "1~a"}),
        ("GET", "/limits/{name}/values", None), ("PUT", "/limits/{name}/values/", {"limit": 1}),
        ("DELETE", "/limits/{name}/values/", None),
    ):  # fmt: skip
        answer = await site.ask(method, path, body)
        assert (answer.status, answer.headers["Retry-After"]) == (503, str(STORE_RETRY_S)), path
    await site.fetch("GET", "/limits")
    # A wrong call is a 422 all the same.
    assert await site.errors("POST", ACQUIRE, {"cost": 0})


# Nothing is a 500 ---------------------------------------------------------------------------------


TEXTS = ["", "a", "refund:wx", "a b", "\x00", "ä", "\ud800", "{", "~", "1~a", "x" * 300, "-1"]
VALUES = [None, True, 0, 1, -1, 2, 1001, 1.5, 1e300, 2**63, 10**30, *TEXTS, [], {}, [[]], {"a": 1},
          FIELDS, {**FIELDS, "biz": 1}, {**FIELDS, "biz": "\ud800"}]  # fmt: skip
MEMBERS = ["fields", "key", "cost", "id", "permit", "limit", "\ud800"]


def nonsense(choose: random.Random):
    """Return random JSON, more or less like a call."""
    if choose.random() < 0.1:
        return choose.choice([choose.choice(VALUES), [nonsense(choose) for _ in range(3)]])
    right = {"key": "a", "permit": "1~a", "limit": 2, "cost": 1}
    names = choose.sample(MEMBERS, choose.randrange(4))
    return {
        name: right[name] if name in right and choose.random() < 0.5 else choose.choice(VALUES)
        for name in names
    }


@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket", "concurrency"])
async def test_no_request_is_a_server_error(service, algorithm):
    """No random request is answered with a server error."""
    window = {} if algorithm == "concurrency" else {"window": 1, "on_exceed": "pace"}
    site = await service(limit={"algorithm": algorithm, "limit": 3, "key": KEYED, **window})
    choose = random.Random(7)
    seen = set()
    for _ in range(300):
        body = nonsense(choose)
        for method, path in (("POST", "acquire"), ("POST", "release"), ("PUT", "values/a")):
            answer = await site.ask(method, f"/limits/{{name}}/{path}", body)
            seen.add(answer.status)
            assert answer.status in {200, 422, 429}, (body, await answer.text())
    # Some are right by chance, and most are wrong.
    assert {200, 422} <= seen
