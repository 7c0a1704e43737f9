"""The metrics of webhooks."""

from sidecar.http.metrics import SHARED, MetricSet, counter, gauge


class WebhookMetrics(MetricSet):
    """The counters of webhooks' messages, and of the called visitors in them."""

    lag = gauge(
        "waitroom_webhook_lag_seconds",
        "Age of the oldest message that waits to be delivered. 0: none waits." + SHARED,
        "webhook",
    )
    failing = gauge(
        "waitroom_webhook_failing_since_timestamp_seconds",
        "Unix time of the first failed attempt since the last delivery, if three or more have "
        "failed. Otherwise 0." + SHARED,
        "webhook",
    )
    webhooks = counter(
        "waitroom_webhooks",
        "Messages that this replica sent, by final result: delivered, failed, dropped. Messages "
        'about targets have the room "".',
        "room",
        "event",
        "result",
    )
    calls = counter(
        "waitroom_calls",
        "Called visitors in webhooks, by result: delivered, failed and dropped with "
        "their message; came: arrived before the message was made; over: the turn was over; lost: "
        "removed from the stream before it was read.",
        "room",
        "result",
    )
