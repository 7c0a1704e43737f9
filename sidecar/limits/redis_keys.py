"""The names of a rate limit's keys. All share a hash tag: one slot of a Redis Cluster."""


def limit_key(limit: str, key: str, name: str) -> str:
    """A part of what is counted for one key of a rate limit; `name` is one of:

    ALGORITHM  its state: text "last moment, used" (fixed_window, token_bucket, leaky_bucket), or
               zset number -> moment, µs (sliding_window), permit~n -> end of its lease, µs
               (concurrency). Where the last moment was promised by a rule that paces, the text
               ends with "paced", and the number begins with 2
    ALGORITHM.permits  zset  permit with an id of the caller's -> when it may go, µs
    ALGORITHM.booked   zset  paced permit with an id that the replica made -> its moment, µs; the
               member "lowered" -> the last that was promised when the limit was lowered
    ALGORITHM.free     zset  permit that was given back -> its moment, µs
    """
    return f"waitroom:{{limit:{limit}}}:{name}:{key}"


def limit_values_key(limit: str) -> str:
    """Limits of single keys that were set at run time (hash key -> limit)."""
    return f"waitroom:{{limit:{limit}}}:values"
