"""The schedule by which messages of webhooks are retried, until they fail for good."""

from sidecar.kit.retry import Backoff, Schedule

#: The timeout of an HTTP request that sends a message, in seconds.
TIMEOUT_S = 5.0
#: After this many failed attempts a message leaves its queue, so that the messages behind it are
#: sent. After this many failed attempts in a row, a webhook counts as failing.
ORDERED_ATTEMPTS = 3
#: All attempts together take about a quarter of an hour.
SCHEDULE = Schedule(8, Backoff(1.0, 300.0, factor=4, jitter=0.2))
#: The age at which a message about an event of a room is no longer sent, in seconds.
EXPIRY_S = 3600
