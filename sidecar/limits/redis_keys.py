"""The Redis keys of a rate limit. All keys share a hash tag, and so one cluster slot."""


def limit_key(limit: str, key: str, name: str) -> str:
    """Return the name of a Redis key about one key of a limit; `name` is one of:

    ALGORITHM  the key's state: string "time of the last call, used" (fixed_window, token_bucket,
               leaky_bucket), or zset number -> time of a call, µs (sliding_window), permit~n ->
               end of its lease, µs (concurrency). If a limit that paces set the last time, the
               string ends with "paced", and the number begins with 2
    ALGORITHM.permits  zset  permit whose id the caller made -> when its call may go, µs
    ALGORITHM.booked   zset  paced permit whose id the replica made -> when its call may go, µs;
               the member "lowered" -> the latest such time from before the limit was lowered
    ALGORITHM.free     zset  released permit -> when its call was to go, µs
    """
    return f"waitroom:{{limit:{limit}}}:{name}:{key}"


def limit_values_key(limit: str) -> str:
    """Return the name of the hash that maps keys to their limits set at run time."""
    return f"waitroom:{{limit:{limit}}}:values"
