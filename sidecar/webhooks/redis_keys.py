"""The names of a webhook's Redis keys, which are all in one slot of a Redis Cluster."""


def webhook_key(webhook: str, name: str) -> str:
    """Return the key of a webhook. `name` is one of:

    deliveries  hash    id of a message -> the message and the result of its last attempt (JSON)
    resends     hash    id of a message that an operator resends -> id of the request, operator
    waiting, delivered, failed
                zset    id of a message in this state -> when the event happened, ms
    events, calls
                zset    id of a waiting message in this queue -> its position
    resending   string  the leader lease of the sender, which expires
    """
    return f"waitroom:{{webhook:{webhook}}}:{name}"
