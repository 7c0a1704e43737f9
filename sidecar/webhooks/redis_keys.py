"""The Redis keys of webhooks. Those of one webhook share a hash tag, and so one cluster slot."""

#: hash: the name of a target -> its latch, and messages about it that are not enqueued yet (JSON)
TARGET_NOTICES_KEY = "waitroom:{webhook-targets}:notices"
#: string: the replica that holds the leader lease of the target detector; expires
TARGET_LEASE_KEY = "waitroom:{webhook-targets}:notifying"


def webhook_key(webhook: str, part: str) -> str:
    """Return the Redis key that stores `part` of the state of a webhook. Parts are:

    deliveries  hash    id of a message -> the message and the result of its last attempt (JSON)
    resends     hash    id of a message to resend -> random id and operator of the request
    waiting, delivered, failed
                zset    id of a message in this state -> when the event happened, ms
    events, calls
                zset    id of a waiting message in this queue -> its rank in the queue
    retries     zset    id of a waiting message that has left its queue -> when the next attempt is
                        due, ms
    failures    zset    an attempt that failed since the last delivered message -> when it began,
                        ms; only the first ones
    resending   string  the replica that holds the leader lease of the sender; expires
    """
    return f"waitroom:{{webhook:{webhook}}}:{part}"
