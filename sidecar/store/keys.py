"""Every key's name, and nothing else spells one.

All keys of a room share the hash tag `{room}`: one slot of a Redis Cluster.
"""

from __future__ import annotations

#: In the order of KEYS in every room script (see lua/shared/room.lua).
ROOM_KEYS = (
    "waiting",   # zset    visitor -> order
    "due",       # zset    waiting visitor -> when its next heartbeat is due, ms
    "active",    # zset    visitor -> when its session ends, ms; provisional ones too
    "admitted",  # zset    visitor -> when its session began, ms; not the provisional ones
    "revoked",   # zset    visitor -> when it left or was released, ms; for as long as a pass
    "spent",     # zset    visitor whose ticket is worth nothing: let in, or left -> when, ms
    "polls",     # hash    visitor -> early polls in this minute
    "config",    # hash    settings changed at run time (JSON), epoch, revision
    "stats",     # hash    counters, and what the estimate and the rate need
    "events",    # stream  joined, called, admitted, expired, left, released, operator
    "arrivals",  # zset    waiting visitor -> what is shown goes by, where that is not the order
    "drawn",     # zset    visitor who joined the last pre-queue -> order
    "addresses", # zset    address~visitor, all of score 0, while max_places_per_address is set
    "grants",    # zset    id of a grant that was used and gives its class once -> its expiry, ms
    "moved",     # zset    waiting visitor whom an operator moved -> order before
    "replicas",  # zset    replica -> when it was last here, ms
    "log",       # list    what operators did, latest first (JSON)
    "minutes",   # list    the room once a minute, latest first (JSON)
)  # fmt: skip


def room_key(room: str, name: str) -> str:
    return f"waitroom:{{{room}}}:{name}"


def room_keys(room: str) -> list[str]:
    return [room_key(room, name) for name in ROOM_KEYS]


def turn_key(room: str, work: str) -> str:
    """Says that this interval's turn at some work is taken: "sweeping", "tidying". It runs out by
    itself."""
    return room_key(room, work)


def record_turn_key(room: str) -> str:
    """Holds the replica that writes the room's history; it runs out by itself."""
    return room_key(room, "recording")


def notify_turn_key(room: str) -> str:
    """Holds the replica that tells the room's webhooks; it runs out by itself."""
    return room_key(room, "notifying")


def notices_key(room: str) -> str:
    """What the webhooks were told, and what is still on its way (JSON, core/notify.py)."""
    return room_key(room, "notices")


def draws_key(room: str) -> str:
    """What was published of the room's draws (hash, store/draws.py)."""
    return room_key(room, "draws")


def calls_key(room: str) -> str:
    """Calls that webhooks are not told yet, and how far the stream was read for them (hash,
    store/calls.py)."""
    return room_key(room, "calls")


def called_key(room: str) -> str:
    """How far the stream was read for calls: the recorder trims no further. It runs out by
    itself."""
    return room_key(room, "called")


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


#: The dashboard's sessions that were logged out of (zset, session -> when it would have ended, unix
#: seconds; store/desk.py). It runs out by itself.
ENDED_SESSIONS = "waitroom:dashboard:ended"

#: What scripts tell each other's callers (store/news.py): a target's name, where somebody waits
#: whom nobody may have seen; "abort NAME", where a runner is to cut a call off; "settings
#: NAME", where they were changed.
JOBS_CHANNEL = "waitroom:jobs"

#: In the order of KEYS in every script of a target (see lua/targets/parts/head.lua).
TARGET_KEYS = (
    "state",     # hash    what lua/targets/parts/state.lua lists; born: when it was found new, µs
    "line",      # zset    job that waits for its turn -> order
    "later",     # zset    job that is not to be called before a moment -> that, µs
    "orders",    # hash    job of `later` or `active` -> order
    "active",    # zset    job that is called -> when its lock, permit or term ends, µs
    "facts",     # hash    the same -> number of its lock or permit, r (a runner has it), c (called,
                 #         the permit is unused) or u (used), since when, µs, 1 if it is a trial,
                 #         the request that used the permit; ~ between them
    "online",    # set     jobs of all three that make their call themselves
    "ended",     # zset    job~unused or job~term, an online one that ended by itself -> when, µs
    "reserved",  # zset    job that is being submitted -> until when its place is kept, µs
    "aborts",    # set     jobs whose runner is to cut them off
)  # fmt: skip


def target_key(target: str, name: str) -> str:
    """One of TARGET_KEYS, or rate.ALGORITHM: what was called, as limit_key tells."""
    return f"waitroom:{{target:{target}}}:{name}"


def target_keys(target: str) -> list[str]:
    return [target_key(target, name) for name in TARGET_KEYS]
