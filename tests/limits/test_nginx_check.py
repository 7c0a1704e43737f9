"""Where nginx asks about a rate limit, with a clock to turn where none has to pass."""

import asyncio
from typing import Any

import pytest

from sidecar.http.long_poll import LONG_POLLS
from sidecar.http.metrics import METRICS
from sidecar.limits.nginx_check import make_key
from sidecar.limits.service import LIMITS, Limit
from sidecar.limits.settings import MAX_KEY_LENGTH
from sidecar.limits.store import LimitStore

WINDOW = {"algorithm": "fixed_window", "limit": 1, "window": 60}
PACED = {"algorithm": "leaky_bucket", "limit": 1, "on_exceed": "pace"}


@pytest.fixture
def rule(service):
    """Makes a rule with a replica before it: asks it as nginx does."""

    async def make(**settings: Any):
        site = await service(limit=settings)

        async def ask(key: str = "", **options: Any):
            headers = {"X-Waitroom-Limit": site.name, "X-Waitroom-Key": key}
            headers |= options.pop("headers", {})
            return await site.edge.get("/check-limit", headers=headers, **options)

        ask.limit, ask.app = site.ops.app[LIMITS].get(site.name), site.edge.app
        return ask

    return make


async def come_back(limit: Limit, wait_s: float) -> None:
    """Until a moment was given back, and the next one is no further off than that."""
    async with asyncio.timeout(10):
        while (await limit.store.peek("")).wait_s > wait_s:
            await asyncio.sleep(0.01)


async def test_passed_and_refused(rule, turn):
    """204 and 403, without a body, with what is left and when to come back."""
    turn.now_ms -= turn.now_ms % 60_000
    ask = await rule(**WINDOW)
    passed = await ask("a")
    turn.forward(12)
    refused = await ask("a")
    name = ask.limit.name
    for reply, status, state in ((passed, 204, "admitted"), (refused, 403, "limited")):
        assert (reply.status, await reply.read()) == (status, b"")
        assert reply.headers["X-Waitroom-State"] == state
        assert reply.headers["RateLimit-Policy"] == f'"{name}";q=1;w=60'
    assert passed.headers["RateLimit"] == f'"{name}";r=0;t=60'
    assert passed.headers["X-Waitroom-Limit"] == name
    assert refused.headers["RateLimit"] == f'"{name}";r=0;t=48'
    assert refused.headers["Retry-After"] == "48"
    turn.forward(48)
    assert (await ask("a")).status == 204


async def test_what_was_told_already_is_told_again(rule):
    """And not counted: nginx asks twice about a request that it redirects within."""
    ask = await rule(**WINDOW)
    first = await ask("a")
    given = {name: first.headers[name] for name in ("RateLimit", "RateLimit-Policy")}
    again = await ask("a", headers={**given, "X-Waitroom-Given": ask.limit.name})
    assert again.status == 204
    assert {name: again.headers[name] for name in given} == given
    # That it was let through by another rule is nothing here.
    assert (await ask("a", headers={"X-Waitroom-Given": "other"})).status == 403


async def test_an_unknown_rule(rule):
    """403, and no error."""
    ask = await rule(**WINDOW)
    for name in ("nosuch", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), ""):
        reply = await ask(headers={"X-Waitroom-Limit": name})
        assert (reply.status, reply.headers["X-Waitroom-State"]) == (403, "unknown-limit")
    labels = {"door": "check-limit", "room": "", "state": "unknown-limit"}
    assert ask.app[METRICS].registry.get_sample_value("waitroom_requests_total", labels) == 3


async def test_a_body_is_not_read(rule):
    """The connection ends with it, or the next one's request would be taken for it."""
    ask = await rule(**WINDOW)
    reply = await ask(data=b"GET /check-limit HTTP/1.1\r\n\r\n")
    assert (reply.status, reply.headers["Connection"]) == (204, "close")


async def test_a_replica_that_stops_holds_nobody(rule):
    """They are refused, and told when their moment would have been; it is given back."""
    ask = await rule(**PACED, window=20)
    assert (await ask()).status == 204
    held = asyncio.create_task(ask())
    async with asyncio.timeout(10):
        while not len(ask.app[LONG_POLLS]):
            await asyncio.sleep(0.01)
    ask.app[LONG_POLLS].close()
    reply = await held
    assert (reply.status, reply.headers["X-Waitroom-State"]) == (403, "limited")
    assert 18 <= int(reply.headers["Retry-After"]) <= 20
    await come_back(ask.limit, 20)


async def test_a_moment_that_is_too_far_off(rule):
    """25 s are held; what would be later is refused at once, and its moment given back."""
    ask = await rule(**PACED, window=25.1)
    assert (await ask()).status == 204
    for _ in range(2):
        reply = await ask()
        assert (reply.status, reply.headers["Retry-After"]) == (403, "26")
        await come_back(ask.limit, 25.1)


async def test_a_rule_of_permits(rule):
    """Nobody gives them back here, so each is held for its lease."""
    ask = await rule(algorithm="concurrency", limit=2, lease=60)
    assert [(await ask("k")).status for _ in range(3)] == [204, 204, 403]


@pytest.mark.parametrize(("on_store_failure", "status"), [("admit", 204), ("refuse", 403)])
async def test_the_store_is_away(rule, monkeypatch, on_store_failure, status):
    """As the rule says; a refusal is told apart from one that was counted."""
    from sidecar.kit.errors import StoreError

    async def fail(*_: object) -> None:
        raise StoreError("away")

    ask = await rule(**WINDOW, on_store_failure=on_store_failure)
    monkeypatch.setattr(LimitStore, "acquire", fail)
    reply = await ask()
    assert reply.status == status
    if status == 403:
        said = (reply.headers["X-Waitroom-State"], reply.headers["Retry-After"])
        assert said == ("limit-away", "5")
    assert "RateLimit" not in reply.headers


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("", ""), ("203.0.113.9", "203.0.113.9"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8::1", "2001:db8::/64"), ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8::1:/search", "2001:db8::1:/search"), ("refund:wx%20x", "refund:wx%20x"),
        ("a b\t", "a%20b%09"), ("ключ", "%D0%BA%D0%BB%D1%8E%D1%87"), ("\udcff", "%FF"),
        ("!\"#$&'()*+,;<=>?@[]^_`{|}~\\", "!\"#$&'()*+,;<=>?@[]^_`{|}~\\"),
        ("x" * MAX_KEY_LENGTH, "x" * MAX_KEY_LENGTH),
    ],
)  # fmt: skip
def test_keys(given, key):
    """As they are where they can be."""
    assert make_key(given) == key


def test_long_keys():
    """Each by its digest."""
    keys = {make_key("x" * length) for length in range(MAX_KEY_LENGTH + 1, MAX_KEY_LENGTH + 50)}
    assert len(keys) == 49
    assert all(key.startswith("sha256:") and len(key) == 71 for key in keys)
    assert len(make_key("я" * 60)) <= MAX_KEY_LENGTH
