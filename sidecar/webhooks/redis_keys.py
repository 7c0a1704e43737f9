"""The names of a webhook's keys. All share a hash tag: one slot of a Redis Cluster."""


def webhook_key(webhook: str, name: str) -> str:
    """Return the key of a webhook. `name` is one of:

    deliveries  hash    id -> the message and what became of it (JSON)
    resends     hash    id of a message that an operator sends again -> the request, and by whom
    waiting, delivered, failed
                zset    id -> when it happened, ms: each id is in one of them
    events, calls
                zset    id of a waiting message -> its place in the order of sending
    resending   string  the sender's leader lease; it expires
    """
    return f"waitroom:{{webhook:{webhook}}}:{name}"
