"""The names of a template's keys. All share a hash tag: one slot of a Redis Cluster."""


def lease_key(template: str, name: str) -> str:
    """A template's own; `name` is one of:

    state      hash    when it was born, the last fencing number or order, how long leases are held,
                       until when nothing is granted because the store was emptied
    resources  zset    resource that somebody holds or waits for, all of score 0
    ends       zset    the same -> when something happens to it by itself, ms
    """
    return f"waitroom:{{lease:{template}}}:{name}"


def resource_key(template: str, resource: str, name: str) -> str:
    """A resource's own; `name` is one of:

    holders  zset    holder -> when the lease, or the turn to take it, ends, ms
    facts    hash    holder -> fencing number and when it began; missing: it is their turn only
    line     zset    who waits -> order
    due      zset    who waits -> when the next heartbeat is due, ms
    """
    return f"waitroom:{{lease:{template}}}:{name}:{resource}"
