"""The Redis keys of a lease template. All keys share a hash tag, and so one cluster slot."""


def lease_key(template: str, name: str) -> str:
    """Return the name of a template's Redis key; `name` is one of:

    state      hash    creation time, last fencing number or order, average time that leases are
                       held, time before which nothing is granted because Redis was emptied
    resources  zset    resources that are held or waited for, all with score 0
    ends       zset    resource -> latest time of its next sweep, ms
    """
    return f"waitroom:{{lease:{template}}}:{name}"


def resource_key(template: str, resource: str, name: str) -> str:
    """Return the name of a resource's Redis key; `name` is one of:

    holders  zset    holder -> end of the lease, or of a called holder's reservation, ms
    facts    hash    holder with a lease -> fencing number and start of the lease
    line     zset    waiting holder -> order
    due      zset    waiting holder -> when the next heartbeat is due, ms
    """
    return f"waitroom:{{lease:{template}}}:{name}:{resource}"
