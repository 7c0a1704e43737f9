"""The names of a room's keys. No other module spells them.

All keys of a room share the hash tag `{room}`: one slot of a Redis Cluster.
"""

#: In the order of KEYS in every room script (see rooms/lua/parts/room.lua).
ROOM_KEYS = (
    "waiting",   # zset    visitor -> order
    "due",       # zset    waiting, reserved visitor -> when its next heartbeat is due, ms
    "active",    # zset    visitor -> when its session ends, ms; provisional ones too
    "admitted",  # zset    visitor -> when its session began, ms; not the provisional ones
    "revoked",   # zset    visitor -> when it left or was released, ms; for as long as a pass
    "spent",     # zset    visitor whose ticket is void: admitted, or left -> when, ms
    "polls",     # hash    visitor -> early polls in this minute
    "config",    # hash    settings changed at run time (JSON), epoch, revision
    "stats",     # hash    counters, and what the estimate and the rate need
    "events",    # stream  joined, called, admitted, expired, left, released, operator
    "arrivals",  # zset    waiting visitor -> order of shown positions, where they go by arrival
    "drawn",     # zset    visitor who joined the last pre-queue -> order
    "reserved",  # zset    visitor who polls seldom and is next -> order
    "addresses", # zset    address~visitor, all of score 0, while max_places_per_address is set
    "grants",    # zset    id of a grant that was used and gives its class once -> its expiry, ms
    "moved",     # zset    waiting visitor whom an operator moved -> order before
    "replicas",  # zset    replica -> when it last read the room, ms
    "log",       # list    what operators did, latest first (JSON)
    "minutes",   # list    the room once a minute, latest first (JSON)
    "look",      # hash    settings of the page changed at run time (JSON; rooms/appearance.py)
)  # fmt: skip


def room_key(room: str, name: str) -> str:
    return f"waitroom:{{{room}}}:{name}"


def room_keys(room: str) -> list[str]:
    return [room_key(room, name) for name in ROOM_KEYS]


def leader_key(room: str, work: str) -> str:
    """Return the key of the leader lease for "sweeping" or "tidying". It expires after the
    interval."""
    return room_key(room, work)


def recorder_leader_key(room: str) -> str:
    """Return the key of the leader lease of the recorder, which writes the room's history."""
    return room_key(room, "recording")


def draws_key(room: str) -> str:
    """Return the key of what was published about the room's draws (hash, lottery/store.py)."""
    return room_key(room, "draws")


def called_key(room: str) -> str:
    """Return the key that holds how far the stream was read for calls. The recorder trims no
    further. It expires."""
    return room_key(room, "called")
