"""The metrics of webhooks."""

from sidecar.http.metrics import MetricSet, counter


class WebhookMetrics(MetricSet):
    """The counters of webhooks' messages, and of the called visitors in them."""

    webhooks = counter(
        "waitroom_webhooks",
        "Webhooks of this replica, by their final result: delivered, failed, dropped. Messages "
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
