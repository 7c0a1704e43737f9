"""The names of a target's keys. All share a hash tag: one slot of a Redis Cluster."""

#: Wake-ups (jobs/wake_ups.py): a target's name, if a job may be called; "abort NAME", if a
#: worker is to cut a call off; "settings NAME", if these were changed.
JOBS_CHANNEL = "waitroom:jobs"

#: In the order of KEYS in every script of a target (see jobs/lua/parts/head.lua).
TARGET_KEYS = (
    "state",     # hash    what jobs/lua/parts/state.lua lists; born: when it was found new, µs
    "line",      # zset    job that waits -> order
    "later",     # zset    job that is not to be called before a moment -> that, µs
    "orders",    # hash    job of `later` or `active` -> order
    "active",    # zset    job that is called -> when its lock, permit or term ends, µs
    "facts",     # hash    the same -> number of its lock or permit, r (a worker has it), c (called,
                 #         the permit is unused) or u (used), since when, µs, 1 if it is a trial,
                 #         the request that used the permit; ~ between them
    "online",    # set     jobs of all three that make their call themselves
    "ended",     # zset    job~unused or job~term, an online one that ended by itself -> when, µs
    "reserved",  # zset    job that is being submitted -> until when its place is kept, µs
    "aborts",    # set     jobs whose worker is to cut them off
)  # fmt: skip


def target_key(target: str, name: str) -> str:
    """Return the key of one of TARGET_KEYS, or of rate.ALGORITHM: the calls that count against the
    rate."""
    return f"waitroom:{{target:{target}}}:{name}"


def target_keys(target: str) -> list[str]:
    return [target_key(target, name) for name in TARGET_KEYS]
