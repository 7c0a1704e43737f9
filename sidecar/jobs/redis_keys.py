"""The names of a target's Redis keys, which have the same hash tag and so the same cluster slot."""

#: The pub/sub channel of wake-ups (jobs/wake_ups.py). A message is a target's NAME if a job may be
#: called, "abort NAME" if a worker has to abort a call, or "settings NAME" if settings changed.
JOBS_CHANNEL = "waitroom:jobs"

#: The pub/sub channel that announces jobs that ended or were called (jobs/changes.py). A message
#: has the ids of such jobs, separated by spaces.
CHANGES_CHANNEL = "waitroom:jobs:changes"

#: A target's keys, in the order of KEYS in each of its scripts (see jobs/lua/parts/head.lua).
TARGET_KEYS = (
    "state",     # hash    numbers (jobs/lua/parts/state.lua); born: when this was found missing, µs
    "line",      # zset    job that waits -> order
    "later",     # zset    job that must not be called yet -> when it may be called, µs
    "orders",    # hash    job of `later` or `active` -> order
    "active",    # zset    job whose call is active -> when its lock, permit or term ends, µs
    "facts",     # hash    job of `active` -> fence; r (a worker has it), c (permit not used yet) or
                 #         u (permit used); since when, in µs; 1 if it is a trial call, else 0; id
                 #         of the request that used the permit; separated by ~
    "online",    # set     online jobs of `line`, `later` and `active`
    "ended",     # zset    online job that ended by timeout, as job~unused (permit) or job~term
                 #         (call) -> when, µs
    "reserved",  # zset    job that is being submitted -> when its reservation ends, µs
    "aborts",    # set     jobs whose calls the workers have to abort
    "minutes",   # list    counters when a minute began, latest first (jobs/lua/parts/state.lua)
)  # fmt: skip


def target_key(target: str, name: str) -> str:
    """Return a target's Redis key: one of TARGET_KEYS, or rate.ALGORITHM for the rate limit."""
    return f"waitroom:{{target:{target}}}:{name}"


def target_keys(target: str) -> list[str]:
    return [target_key(target, name) for name in TARGET_KEYS]
