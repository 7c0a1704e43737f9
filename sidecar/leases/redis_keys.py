"""The names of a template's keys. All share a hash tag: one slot of a Redis Cluster."""


def lease_key(template: str, name: str) -> str:
    """Return the name of a template's Redis key; `name` is one of:

    state      hash    when it was created, the last fencing number or order, how long leases are
                       held, until when nothing is granted because Redis was emptied
    resources  zset    resource that is held or waited for, all of score 0
    ends       zset    resource -> when the next thing is due there, ms
    """
    return f"waitroom:{{lease:{template}}}:{name}"


def resource_key(template: str, resource: str, name: str) -> str:
    """Return the name of a resource's Redis key; `name` is one of:

    holders  zset    holder -> when the lease, or the turn to take it, ends, ms
    facts    hash    holder -> fencing number and when the lease began; missing: only a turn
    line     zset    waiting holder -> order
    due      zset    waiting holder -> when the next heartbeat is due, ms
    """
    return f"waitroom:{{lease:{template}}}:{name}:{resource}"
