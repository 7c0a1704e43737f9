"""The Redis keys of a rate limit. All keys share a hash tag, and so one cluster slot."""


def redis_key(limit: str, limited_key: str, part: str) -> str:
    """Return the Redis key that stores `part` of the state of one rate-limited key. Parts are:

    ALGORITHM  what is used: a string "time of the last call, µs, used" (fixed_window, token_bucket,
               leaky_bucket), or a zset with a member for each unit of cost: number -> time of its
               call, µs (sliding_window), or permit~n -> end of its lease, µs (concurrency). If the
               limit paces, the string ends with "paced", and numbers begin with 2
    ALGORITHM.permits  zset  permit whose id the client chose -> time of its call, µs
    ALGORITHM.booked   zset  paced permit whose id the replica made -> time of its call, µs; the
               member "lowered" -> the latest of these times when the limit was last lowered
    ALGORITHM.free     zset  released permit -> time of its call, which another call can take, µs"""
    return f"waitroom:{{limit:{limit}}}:{part}:{limited_key}"


def recent_decisions_key(limit: str) -> str:
    """Return the Redis key of a limit's decision counts (recent_decisions.py), a hash with fields:

    MINUTE REPLICA       how many calls of the minute the replica allowed, paced and refused
    MINUTE REPLICA keys  the keys whose calls the replica refused most, and how often, as JSON"""
    return f"waitroom:{{limit:{limit}}}:recent"


def limit_values_keys(limit: str) -> list[str]:
    """Return the Redis keys of the limits that were set at run time:

    values     hash    rate-limited key -> its limit
    revisions  zset    rate-limited key -> revision of its last change; a key that was reset too
    digest     string  the sum of the revisions (limits/lua/parts/revisions.lua)"""
    return [f"waitroom:{{limit:{limit}}}:{part}" for part in ("values", "revisions", "digest")]
