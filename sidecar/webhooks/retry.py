"""The bounds of a webhook's deliveries: tries, age, number, and how long they are kept."""

from sidecar.kit.retry import Backoff, Schedule

#: How long a receiver may take to respond, in seconds.
TIMEOUT_S = 5.0
#: Takes about a quarter of an hour.
SCHEDULE = Schedule(8, Backoff(1.0, 300.0, factor=4, jitter=0.2))
#: How long after its event a message is sent at the latest, in seconds.
FRESH_S = 3600
#: A waiting message of this age that is in no queue has failed, in seconds.
LOST_S = 2 * FRESH_S
#: How many messages wait in a queue of a webhook, besides the one that is being sent.
BACKLOG = 1000
#: How many delivered and failed messages of a webhook are kept, and for how many seconds.
DELIVERED_KEPT = 200
FAILED_KEPT = 500
KEPT_S = 7 * 86_400
