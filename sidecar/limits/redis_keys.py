"""The names of a rate limit's keys. All share a hash tag: one slot of a Redis Cluster."""


def limit_key(limit: str, key: str, name: str) -> str:
    """Return the name of a Redis key about one key of a limit; `name` is one of:

    ALGORITHM  its state: text "last moment, used" (fixed_window, token_bucket, leaky_bucket), or
               zset number -> moment, µs (sliding_window), permit~n -> end of its lease, µs
               (concurrency). If the last moment was given by a limit that paces, the text
               ends with "paced", and the number begins with 2
    ALGORITHM.permits  zset  permit with an id of the caller's -> when it may go, µs
    ALGORITHM.booked   zset  paced permit with an id that the replica made -> its moment, µs; the
               member "lowered" -> the last moment given before the limit was lowered
    ALGORITHM.free     zset  permit that was given back -> its moment, µs
    """
    return f"waitroom:{{limit:{limit}}}:{name}:{key}"


def limit_values_key(limit: str) -> str:
    """Return the name of the hash key -> limit, of keys whose limit was set at run time."""
    return f"waitroom:{{limit:{limit}}}:values"
