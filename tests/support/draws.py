"""Events and visitor ids for tests of lottery draws."""

import base64
import random

from sidecar.rooms.openings import RoomEvent

HOUR_MS = 3_600_000
#: Start of the pre-queue of `make_event`, ms since 1970.
START_MS = 1_800_000_000_000


def make_event(name: str = "autumn", begins: int = START_MS, **more) -> RoomEvent:
    """Create an event: from `begins`, a pre-queue of one hour, and then one hour of admission."""
    times = {
        "prequeue_from": begins,
        "opens_at": begins + HOUR_MS,
        "closes_at": begins + 2 * HOUR_MS,
    }
    return RoomEvent(name=name, **{**times, **more})


def make_ids(rng: random.Random, count: int) -> list[str]:
    """Create `count` visitor ids from a seeded random generator."""
    made = (base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:22] for _ in range(count))
    return [visitor.replace("-", "A", 1) if visitor[0] == "-" else visitor for visitor in made]


def with_places(ids: list[str]) -> list[tuple[str, int]]:
    """Return pairs of a visitor id and its place in the list. The first place is 1."""
    return [(visitor, place) for place, visitor in enumerate(ids, 1)]
