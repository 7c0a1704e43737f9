"""What a replica says at /metrics."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from sidecar.kit.errors import StoreUnavailableError
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.service import WaitingRooms
from sidecar.rooms.worker import refresh_once
from tests.support.metrics import DECLARED
from tests.support.monitoring import run
from tests.support.replica import cookie_of

GONE_WITH_THE_STORE = {
    "waitroom_waiting", "waitroom_active", "waitroom_provisional", "waitroom_replicas",
    "waitroom_shield_up", "waitroom_wait_estimate_seconds",
}  # fmt: skip


@pytest.fixture
async def site(replica):
    """Return a replica with one slot, which is taken. Another visitor has waited for a minute."""
    site = await replica(total_active_users=1, max_waiting=1, session_duration=600)
    site.inside = await site.enters()
    site.waits = cookie_of(await site.check())
    site.turn.forward(20)
    await site.status(site.waits)
    site.turn.forward(40)
    assert await refresh_once(WaitingRooms([site.room]), site.metrics)
    return site


async def said(site) -> dict[str, object]:
    text = await (await site.ops.get("/metrics")).text()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(site, name: str, **labels: str) -> float | None:
    return site.metrics.registry.get_sample_value(name, {"room": site.room.name, **labels})


@pytest.mark.full
async def test_the_output_is_as_prometheus_wants_it(site):
    """promtool finds no fault with names, types and texts of a replica that has worked."""
    site.metrics.count_store_error(site.room.name, "beat")
    site.metrics.observe_batch(site.room.name, "beat", 3, 0.001)
    reply = await site.ops.get("/metrics")
    assert reply.content_type == "text/plain"
    run("promtool", "check", "metrics", stdin=await reply.read())


async def test_a_client_may_accept_openmetrics_and_gzip(site):
    """Both formats have the same samples; a plain GET gets neither."""
    plain = await site.ops.get("/metrics", skip_auto_headers=["Accept", "Accept-Encoding"])
    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "Content-Encoding" not in plain.headers
    accepts = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
    reply = await site.ops.get("/metrics", headers=accepts)
    assert reply.content_type == "application/openmetrics-text"
    assert reply.headers["Content-Encoding"] == "gzip"
    assert int(reply.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 3
    samples = {
        parse: {s.name for family in parse(await r.text()) for s in family.samples}
        for parse, r in ((text_string_to_metric_families, plain), (parse_openmetrics, reply))
    }
    assert samples[parse_openmetrics] == samples[text_string_to_metric_families]


async def test_what_is_said_is_what_is_declared(site):
    """Every family that a replica exports is declared with that type, and its samples have
    those labels."""
    for name, family in (await said(site)).items():
        kind, labels = DECLARED[name + "_total" * (family.type == "counter")]
        assert family.type == kind
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(labels)


async def test_the_stores_counters_are_counters(site):
    """Steps, endings and refusals by their reason, each from its first moment on, at 0."""
    await site.check()  # the line is full
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert (await said(site))["waitroom_stays"].type == "counter"
    kinds = ("joined", "admitted", "called", "expired", "left", "released")
    counted = {kind: value(site, "waitroom_stays_total", kind=kind) for kind in kinds}
    assert counted == {**dict.fromkeys(kinds, 0), "joined": 1, "admitted": 1}
    reasons = ("full", "address", "closed")
    refused = [value(site, "waitroom_refused_total", reason=reason) for reason in reasons]
    assert refused == [1, 0, 0]
    site.turn.forward(600)
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    reasons = ("session", "silent", "swept", "no_show")
    expired = [value(site, "waitroom_expired_total", reason=reason) for reason in reasons]
    assert expired == [1, 1, 0, 0]
    site.waits = cookie_of(await site.check())
    await site.check()
    leaver = site.room.tokens.read(site.waits.partition("=")[2])
    await site.room.store.leave(leaver.visitor)
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    left = {what: value(site, "waitroom_left_total", what=what) for what in ("waiting", "session")}
    assert left == {"waiting": 0, "session": 1}
    await site.room.store.reset()
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert value(site, "waitroom_resets_total") == 1


async def test_counters_do_not_fall_when_redis_has_older_data(site):
    """Prometheus would count all of them again. After Redis was emptied, it has to."""
    counters = site.room.snapshot.counters
    stays = site.metrics.of(RoomMetrics).stays
    for born, joined, exported in ((1, 1000, 1000), (1, 990, 1000), (1, 1001, 1001), (2, 3, 3)):
        stays.update(site.room.name, {**counters, "born": born, "joined": joined})
        assert value(site, "waitroom_stays_total", kind="joined") == exported


async def test_requests_are_timed_by_endpoint(site):
    """In cumulative buckets, as many as are counted."""
    sample = site.metrics.registry.get_sample_value
    name = "waitroom_request_duration_seconds"
    before = sample(f"{name}_count", {"door": "status"})
    await site.status(site.waits)
    assert sample(f"{name}_count", {"door": "status"}) == before + 1
    assert sample(f"{name}_bucket", {"door": "status", "le": "+Inf"}) == before + 1
    assert 0 < sample(f"{name}_sum", {"door": "status"}) < 5
    site.metrics.requests.observe("example", 0.0025)
    site.metrics.requests.observe("example", 60)
    limits = ("0.001", "0.0025", "2.5", "+Inf")
    buckets = [sample(f"{name}_bucket", {"door": "example", "le": limit}) for limit in limits]
    assert buckets == [0, 1, 1, 2]


async def test_a_renamed_histogram_keeps_its_old_name(site):
    """With the same values, and a text that names the new one."""
    site.metrics.observe_batch(site.room.name, "beat", 3, 0.001)
    families = await said(site)
    old, new = families["waitroom_batch_seconds"], families["waitroom_batch_duration_seconds"]
    assert "use waitroom_batch_duration_seconds" in old.documentation
    assert [(s.labels, s.value) for s in old.samples] == [(s.labels, s.value) for s in new.samples]
    assert len(old.samples) > 10


async def test_a_wait_is_observed_once_and_of_those_who_waited(site):
    """Not of who found a free slot, and not again at a renewal or in a second tab."""
    assert value(site, "waitroom_wait_duration_seconds_count") == 0
    await site.room.store.leave(site.room.tokens.read(site.inside.partition("=")[2]).visitor)
    site.turn.forward(5)
    admitted = await site.status(site.waits)
    assert (await admitted.json())["state"] == "admitted"
    site.turn.forward(1)
    await site.status(site.waits)
    site.turn.forward(300)
    renewed = await site.check(cookie_of(admitted))
    assert (renewed.status, "Set-Cookie" in renewed.headers) == (204, True)
    assert value(site, "waitroom_wait_duration_seconds_count") == 1
    assert value(site, "waitroom_wait_duration_seconds_sum") == 65


async def test_settings_are_gauges(site):
    """Those that alarms need, as they are in force."""
    names = ("total_active_users", "session_duration_seconds", "queue_all", "suspended")
    assert [value(site, f"waitroom_{name}") for name in names] == [1, 600, 0, 0]
    await site.room.store.configure({"queue_all": True, "queueing_method": "passthrough"})
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert [value(site, f"waitroom_{name}") for name in names] == [1, 600, 1, 1]


async def test_an_unknown_wait_is_absent(site):
    """Known for a room that lets people in, absent while it is paused."""
    assert value(site, "waitroom_wait_estimate_seconds") > 0
    await site.room.store.configure({"queue_all": True})
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert value(site, "waitroom_wait_estimate_seconds") is None


async def test_each_line_has_gauges(replica):
    """Its length and its wait; those of a line that is gone, or of a store that is away, go too."""
    lines = [{"name": "fast", "weight": 1}, {"name": "ordinary", "weight": 3}]
    site = await replica(
        lines=lines, classes={"vip": {"line": "fast"}}, class_header=True, session_duration=600
    )
    for name in ("", "", "vip", ""):
        await site.check(headers={"X-Waitroom-Class": name})

    async def seen():
        assert await refresh_once(WaitingRooms([site.room]), site.metrics)
        return [value(site, "waitroom_line_waiting", line=name) for name in ("fast", "ordinary")]

    assert await seen() == [1, 2]
    waits = [
        value(site, "waitroom_line_wait_estimate_seconds", line=line["name"]) for line in lines
    ]
    assert all(wait > 0 for wait in waits)
    await site.room.store.configure({"queue_all": True})
    assert await seen() == [1, 2]
    assert value(site, "waitroom_line_wait_estimate_seconds", line="fast") is None
    await site.room.store.configure({"lines": [], "classes": {}})
    assert await seen() == [None, None]
    await site.room.store.configure({"lines": None, "classes": None})
    assert await seen() == [1, 2]
    site.metrics.of(RoomMetrics).remove_store_samples(site.room.name)
    assert value(site, "waitroom_line_waiting", line="fast") is None


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ([], 0),
        ([{"name": "sale", "opens_at": "2027-01-15 07:00"}], 0),
        (
            [{"name": "sale", "prequeue_from": "2027-01-15 07:00", "opens_at": "2027-01-15 09:00"}],
            1,
        ),
        ([{"name": "sale", "opens_at": "2027-01-15 09:00"}], 2),
    ],
)
async def test_the_phase_is_a_gauge(replica, events, phase):
    """Open, pre-queue, closed."""
    site = await replica(events=events)
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert value(site, "waitroom_phase") == phase


async def test_the_shield_is_told(site):
    """1 until it is down again."""
    assert value(site, "waitroom_shield_up") == 0
    await site.room.store.raise_shield(site.turn.now_ms + 4000)
    await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert value(site, "waitroom_shield_up") == 1


async def test_without_the_store_nothing_stale_is_told(site, monkeypatch):
    """The line's gauges go when the store counts as away, not at the first call that fails;
    counters and settings stay."""
    assert all(value(site, name) is not None for name in GONE_WITH_THE_STORE)

    async def no_answer(**_: object) -> None:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(type(site.room.store), "snapshot", lambda *_, **__: no_answer())
    assert not await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert value(site, "waitroom_waiting") == 1
    for _ in range(3):
        site.room.store._scripts.breaker.record_failure()
    assert not await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert value(site, "waitroom_store_away") == 1
    assert all(value(site, name) is None for name in GONE_WITH_THE_STORE)
    assert value(site, "waitroom_stays_total", kind="joined") == 1
    assert value(site, "waitroom_total_active_users") == 1
