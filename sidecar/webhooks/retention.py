"""How long events and messages of webhooks are stored, and at most how many."""

from sidecar.webhooks.retry import EXPIRY_S

#: How long the recorder keeps events in a room's stream that webhooks have not read, seconds after
#: a replica last read the stream for webhooks. history/store/event_stream.py trims the stream.
UNREAD_EVENTS_S = 60
#: How long Redis stores up to which event the calls were read, seconds after the last reading.
#: The calls of older events have expired.
CURSOR_S = 3 * 3600
#: How many messages of a room are stored while they cannot be enqueued. The oldest are dropped.
UNSENT_LIMIT = 100
#: How many messages wait in a queue of a webhook, besides the first. The oldest are dropped.
QUEUE_LIMIT = 1000
#: A waiting message of this age that is in no queue counts as failed, seconds.
LOST_S = 2 * EXPIRY_S
#: How many delivered and how many failed messages of a webhook are stored, and for how long.
DELIVERED_LIMIT = 200
FAILED_LIMIT = 500
STORED_S = 7 * 86_400
