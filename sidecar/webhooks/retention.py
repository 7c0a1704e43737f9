"""Limits for how long events and messages of webhooks are stored, and how many of them."""

from sidecar.webhooks.retry import EXPIRY_S

#: The recorder of the history keeps a room's events that webhooks have not read until this many
#: seconds after webhooks last read the room's stream (history/store/event_stream.py).
UNREAD_EVENTS_S = 60
#: Redis stores the cursor up to which calls were read (calls.py) until this many seconds after
#: the last read. All calls after an older cursor have expired.
CURSOR_S = 3 * 3600
#: The maximum number of messages about a room that wait to be enqueued. The oldest are dropped.
UNSENT_LIMIT = 100
#: The maximum number of messages in a webhook's queue, besides the first. The oldest are dropped.
QUEUE_LIMIT = 1000
#: The age, in seconds, from which a waiting message that is in no queue counts as failed.
LOST_S = 2 * EXPIRY_S
#: How many delivered and failed messages of a webhook are stored, and for how many seconds.
DELIVERED_LIMIT = 200
FAILED_LIMIT = 500
STORED_S = 7 * 86_400
