"""The Redis keys of a lease template. They share a hash tag, so they are in one cluster slot."""


def lease_key(template: str, name: str) -> str:
    """Return the name of a template's Redis key; `name` is one of:

    state      hash    when it was created, the last fencing number or order, how long leases are
                       held on average, when the recovery ends (leases/lua/parts/state_and_fence)
    resources  zset    resources that somebody holds or waits for, all with score 0
    ends       zset    resource -> when a sweep must update it at the latest, ms
    calls      pub/sub channel: resource and called holder, with a space between"""
    return f"waitroom:{{lease:{template}}}:{name}"


def resource_key(template: str, resource: str, name: str) -> str:
    """Return the name of a resource's Redis key; `name` is one of:

    holders  zset    holder -> end of the lease, or of a called holder's reservation, ms
    facts    hash    holder with a lease -> fencing number and start of the lease
    line     zset    waiting holder -> order
    due      zset    waiting holder -> when the next heartbeat is due, ms"""
    return f"waitroom:{{lease:{template}}}:{name}:{resource}"
