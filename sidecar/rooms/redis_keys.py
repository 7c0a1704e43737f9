"""The names of a room's Redis keys. All other modules get them from here.

All keys of a room share the hash tag `{room}`, so they are in one slot of a Redis Cluster."""

#: The keys of a room, in the order of KEYS in every room script (see rooms/lua/parts/room.lua).
ROOM_KEYS = (
    "waiting",   # zset    visitor -> order
    "due",       # zset    waiting or reserved visitor -> when the next heartbeat is due, ms
    "active",    # zset    visitor -> when the session ends, ms; with provisional sessions
    "admitted",  # zset    visitor -> when the session began, ms; without provisional sessions
    "revoked",   # zset    visitor who left or was released -> when, ms; kept for a pass's lifetime
    "spent",     # zset    admitted or departed visitor -> when the ticket became void, ms
    "polls",     # hash    visitor -> number of early polls in this minute
    "config",    # hash    settings changed at run time (JSON), epoch, revision
    "stats",     # hash    counters, and the data for the estimate and the rate
    "events",    # stream  joined, called, admitted, expired, left, released, operator
    "arrivals",  # zset    waiting visitor -> order of arrival, if positions are shown by arrival
    "drawn",     # zset    visitor of the last pre-queue -> order
    "reserved",  # zset    visitor with a reservation (rooms/lua/parts/reserved.lua) -> order
    "addresses", # zset    address~visitor, all of score 0, while max_places_per_address is set
    "grants",    # zset    id of a used one-time grant -> when the grant expires, ms
    "moved",     # zset    waiting visitor whom an operator moved -> order before the move
    "replicas",  # zset    replica id -> when it last read the room, ms
    "log",       # list    operators' actions, latest first (JSON)
    "minutes",   # list    a sample of the room for each minute, latest first (JSON)
    "look",      # hash    long settings changed at run time (JSON): appearance, message's table
)  # fmt: skip


def room_key(room: str, name: str) -> str:
    """Return the Redis key for a name in ROOM_KEYS, or for "draws", the hash of the published data
    of the room's lottery draws (lottery/store.py)."""
    return f"waitroom:{{{room}}}:{name}"


def room_keys(room: str) -> list[str]:
    return [room_key(room, name) for name in ROOM_KEYS]


def leader_key(room: str, task: str) -> str:
    """Return the key of the leader lease for a task that one replica does for all, such as
    "sweeping", "tidying" or "recording". Most of these keys expire after the task's interval."""
    return room_key(room, task)


def cursor_key(room: str) -> str:
    """Return the key that stores the id of the last stream entry that the call notifier has read.
    The recorder trims the stream only up to that entry. The key expires."""
    return room_key(room, "called")


def site_key(room: str, step: int) -> str:
    """Return the key of the hash with the counts of one step (rooms/adaptive/signals.py)."""
    return room_key(room, f"site:{step}")
