"""Limits for how long events and messages of webhooks are stored, and how many of them."""

from sidecar.webhooks.retry import EXPIRY_S

#: How long the recorder of the history (history/store/event_stream.py) keeps events that webhooks
#: have not read in a room's stream, seconds after a replica last read the stream for webhooks.
UNREAD_EVENTS_S = 60
#: How long Redis stores the cursor, up to which the calls were read (calls.py), seconds after the
#: last read. All calls after an older cursor have expired.
CURSOR_S = 3 * 3600
#: The maximum number of messages about a room that wait to be enqueued. The oldest are dropped.
UNSENT_LIMIT = 100
#: The maximum number of messages in a webhook's queue, besides the first. The oldest are dropped.
QUEUE_LIMIT = 1000
#: A waiting message of this age that is in no queue counts as failed, in seconds.
LOST_S = 2 * EXPIRY_S
#: How many delivered and failed messages of a webhook are stored, and for how long.
DELIVERED_LIMIT = 200
FAILED_LIMIT = 500
STORED_S = 7 * 86_400
