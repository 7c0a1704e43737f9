"""The alerts that the dashboard judges: as the rules of Prometheus have them."""

import json
from unittest.mock import Mock

import pytest

from scripts.docs_pages import alerts as alert_pages
from sidecar.dashboard.alerts import AT_ONCE_S, Alerts, Increases, sum_samples
from sidecar.dashboard.pages import load_files
from sidecar.history.metrics import HistoryMetrics
from sidecar.http.metrics import Metrics
from sidecar.jobs.metrics import JobMetrics
from sidecar.limits.metrics import LimitMetrics
from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.service import WaitingRooms
from sidecar.rooms.worker import refresh_once
from sidecar.webhooks.metrics import WebhookMetrics
from tests.support.monitoring import RULES
from tests.support.rooms import new_room_name
from tests.support.visitors import go_in

JUDGED = [alert for alert in alert_pages.ALERTS if "when" in alert]


@pytest.fixture
async def watched(replica):
    """Makes a room, and what judges it."""

    async def make(**settings):
        site = await replica(**settings)
        await site.room.refresh()
        return site, Alerts(WaitingRooms([site.room]), site.metrics)

    return make


async def look(site, alerts):
    await site.room.refresh()
    alerts.update()
    return {(one["alert"], one["name"]) for one in alerts.firing}


async def later(site, alerts, minutes):
    """What fires after so long, looked at once a minute."""
    fires = set()
    for _ in range(minutes):
        site.turn.forward(60)
        fires = await look(site, alerts)
    return fires


def test_the_files_are_those_of_the_table():
    """Prometheus's rules and the dashboard's conditions and texts: python -m scripts.docs_pages."""
    assert load_files()["alerts.json"] == alert_pages.dashboard()
    assert RULES.read_text() == alert_pages.rules()


async def test_every_figure_of_a_condition_is_computed(watched, monkeypatch):
    """Those of rooms, limits, webhooks, the history, targets and the site."""
    site, alerts = await watched(adaptive='{"p90": 1}')
    await site.room.store.store_learned(Learned().to_json(), expected="")
    judged = set()
    monkeypatch.setattr(alerts, "_match_rules", lambda figures: judged.update(figures) or ())
    alerts._jobs = Mock(targets=[Mock()])
    alerts._metrics.of(JobMetrics).targets.find = lambda _: Mock(breaker="closed")
    alerts._metrics.of(LimitMetrics).limit_decisions.labels("api", "admitted_alone")
    alerts._metrics.of(WebhookMetrics).webhooks.labels("shop", "room_full", "failed")
    alerts._metrics.of(WebhookMetrics).lag.labels("team")
    alerts._metrics.of(HistoryMetrics).recorder_errors.labels("shop")
    alerts._metrics.of(HistoryMetrics).recorder_lag.labels("shop")
    await look(site, alerts)
    terms = [term.split() for alert in JUDGED for term in alert["when"]]
    assert {term[0] for term in terms} <= judged | {"wait_seconds", "store_away"}


async def test_a_queue_that_stands_fires_after_the_rules_time(watched):
    """The room is full, and nobody leaves: half an hour and the five minutes of the increase. A new
    replica knows the last hour from the samples in the store."""
    site, alerts = await watched(
        total_active_users=1, heartbeat_timeout=7200, session_duration=7200
    )
    name = site.room.name
    await site.enters()
    for _ in range(2):
        await site.check()
    assert await look(site, alerts) == set()
    assert ("WaitroomLineStands", name) not in await later(site, alerts, 20)
    assert ("WaitroomLineStands", name) in await later(site, alerts, 20)
    begun = Alerts(WaitingRooms([site.room]), Metrics())
    assert ("WaitroomLineStands", name) not in await look(site, begun)
    await begun.evaluate_last_hour()
    assert ("WaitroomLineStands", name) in await look(site, begun)


async def test_a_site_without_signal_fires_while_visitors_are_inside(watched):
    """Only of an adaptive room, and only as long as nginx reports nothing."""
    site, alerts = await watched(
        total_active_users=99, session_duration=7200, adaptive='{"p90": 1}'
    )
    store, alert = site.room.store, ("WaitroomSiteNoSignal", site.room.name)
    await store.store_learned(Learned().to_json(), expected="")
    for _ in range(10):
        await go_in(store)
    assert alert not in await later(site, alerts, 9)
    assert alert in await later(site, alerts, 3)
    heard = Learned(responses=1).to_json()
    await store.store_learned(heard, expected=await store.read_learned())
    assert alert not in await later(site, alerts, 1)


async def test_a_full_adaptive_room_is_not_one_that_lets_nobody_in(watched):
    """The cap in force is its ceiling, for the dashboard and for Prometheus."""
    adaptive = '{"mode": "on", "p90": 1, "min": 1}'
    site, alerts = await watched(
        total_active_users=99, session_duration=7200, heartbeat_timeout=7200, adaptive=adaptive
    )
    await site.enters()
    await site.check()
    fires = await later(site, alerts, 20)
    assert ("WaitroomNobodyAdmitted", site.room.name) not in fires
    assert await refresh_once(WaitingRooms([site.room]), site.metrics)
    assert sum_samples(site.metrics.of(RoomMetrics).cap) == {(site.room.name,): 1}


async def test_what_is_held_on_purpose_does_not_stand(watched):
    """A pause is told of after half an hour, as what it is."""
    site, alerts = await watched(queue_all=True, heartbeat_timeout=7200)
    await site.check()
    assert await later(site, alerts, 29) == set()
    assert await later(site, alerts, 4) == {("WaitroomPaused", site.room.name)}


async def test_a_full_queue_fires_at_once_and_for_five_minutes(watched):
    """Prometheus waits two minutes, so that nobody is woken for nothing; who looks sees it now."""
    alert = json.loads(load_files()["alerts.json"])["alerts"]["WaitroomTurnedAway"]
    assert alert["for_s"] <= AT_ONCE_S
    site, alerts = await watched(max_waiting=1, heartbeat_timeout=7200, session_duration=7200)
    await look(site, alerts)
    await site.enters()
    for _ in range(2):
        await site.check()
    (alert,) = await look(site, alerts)
    assert alert == ("WaitroomTurnedAway", site.room.name)
    assert ("WaitroomTurnedAway", site.room.name) not in await later(site, alerts, 7)


def test_webhooks_that_fail_fire_by_room_and_event():
    """A delivery is none."""
    metrics, room = Metrics(WebhookMetrics), new_room_name()
    alerts = Alerts(WaitingRooms([]), metrics)
    sent = metrics.of(WebhookMetrics).webhooks
    for result in ("delivered", "failed", "dropped"):
        sent.labels(room, "room_full", result)
    alerts.update()
    sent.labels(room, "room_full", "delivered").inc()
    alerts.update()
    assert alerts.firing == []
    sent.labels(room, "room_full", "failed").inc()
    alerts.update()
    (one,) = alerts.firing
    assert (one["alert"], one["name"], one["event"]) == ("WaitroomWebhooksFail", room, "room_full")


def test_a_message_that_is_not_delivered_fires_for_its_webhook():
    """By the age of the oldest message that waits."""
    metrics = Metrics(WebhookMetrics)
    alerts = Alerts(WaitingRooms([]), metrics)
    metrics.of(WebhookMetrics).lag.labels("team").set(59)
    alerts.update()
    assert alerts.firing == []
    metrics.of(WebhookMetrics).lag.labels("team").set(61)
    alerts.update()
    (one,) = alerts.firing
    assert (one["alert"], one["kind"], one["name"]) == ("WaitroomWebhookLate", "webhook", "team")


def test_an_increase_forgets_what_is_older_and_what_began_anew():
    """As Prometheus counts it."""
    went = Increases()
    steps = [(0, 5), (60, 7), (120, 7), (400, 7), (401, 2)]
    found = [went.compute(300, "k", second * 1000, value) for second, value in steps]
    assert found == [0, 2, 2, 0, 0]
