"""The metrics of webhooks."""

from __future__ import annotations

from sidecar.kit.metrics import MetricSet, counter


class WebhookMetrics(MetricSet):
    webhooks = counter(
        "waitroom_webhooks",
        "Webhooks of this replica, by result: delivered, failed, dropped.",
        "room",
        "event",
        "result",
    )
    calls = counter(
        "waitroom_calls",
        "Calls that webhooks are sent for, by result: delivered, failed, dropped, came, over, "
        "lost.",
        "room",
        "result",
    )
