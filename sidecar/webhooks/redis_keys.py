"""The Redis keys of a webhook. All share a hash tag, and so one cluster slot."""


def webhook_key(webhook: str, part: str) -> str:
    """Return the Redis key that stores `part` of the state of a webhook. Parts are:

    deliveries  hash    id of a message -> the message and the result of its last attempt (JSON)
    resends     hash    id of a message to resend -> random id and operator of the request
    waiting, delivered, failed
                zset    id of a message in this state -> when the event happened, ms
    events, calls
                zset    id of a waiting message in this queue -> its rank in the queue
    resending   string  the replica that holds the leader lease of the sender; expires
    """
    return f"waitroom:{{webhook:{webhook}}}:{part}"
