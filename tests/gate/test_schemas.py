"""What the gate's handlers write by hand is what their models say, and no member is in vain."""

import json

import pytest

from sidecar.gate.check import ENDPOINTS as CHECK
from sidecar.gate.schemas import Status
from tests.support.replica import cookie_of
from tests.support.site import ROOT
from tests.support.verdicts import find_unsent_headers

#: What a lease's holder gets, and who asks with a key of nginx (test_stamps.py).
ELSEWHERE = {"X-Waitroom-Fence", "X-Waitroom-Stamp"}


@pytest.fixture
async def full(replica):
    """A replica whose one slot is taken."""
    site = await replica()
    site.first = cookie_of(await site.check())
    return site


async def test_status_is_as_its_model_says(full):
    """Every member that is always there, and those that were asked for; no others."""
    ticket = cookie_of(await full.check())
    path = f"/_waitroom/{full.room.name}"
    cookie = {"Cookie": ticket}
    replies = [
        await full.status(ticket),
        await full.status(full.first),
        await full.status("x=1"),
        await full.edge.get(f"{path}/status?client", headers=cookie),
        await full.edge.post(f"{path}/join"),
        await full.edge.post(f"{path}/leave", headers=cookie),
    ]
    documents = [await reply.json() for reply in replies]
    required = {name for name, field in Status.model_fields.items() if field.is_required()}
    for document in documents:
        Status.model_validate_json(json.dumps(document), strict=True)
        assert required <= set(document) <= set(Status.model_fields)
    assert {"client", "store", "nginx_key"} <= set(documents[3])


async def test_verdicts_are_as_their_models_say(replica, monkeypatch):
    """Each header that is sent is described; and each that is described is sent to somebody."""
    (check,) = CHECK
    monkeypatch.chdir(ROOT / "tests" / "support")  # where templates/ is
    site = await replica()
    own = await replica(total_active_users=0, template="own.html", json_format="cloudflare")
    closed = await replica(events=[{"name": "sale", "opens_at": "2199-01-01T00:00:00Z"}])
    # Whose wait is known without a measurement, by the rate limit.
    limited = await replica(total_active_users=100, session_duration=10, new_users_per_minute=6)
    first = await site.check()
    waiting = await site.check()
    await site.room.refresh()
    replies = [
        *[await limited.check() for _ in range(9)],
        first,
        waiting,
        await site.check(cookie_of(first)),
        await site.check(cookie_of(waiting)),
        await site.check(headers={"Accept": "image/*"}),
        await site.check(headers={"X-Waitroom-Room": "nowhere"}),
        await closed.check(),
        await own.check(),
    ]
    assert find_unsent_headers(check, replies) == ELSEWHERE
