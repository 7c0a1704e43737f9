"""How often one address may give up places in a queue.

Each is remembered for as long as its ticket would be valid, and costs its visitor nothing.
"""

from __future__ import annotations

from collections import OrderedDict

from sidecar.rooms.bearer import network_of

#: A second, and how many at once: more than a company's or a mobile network's visitors do by hand,
#: and at 127 bytes each some 60 MB a day of the store's memory.
LEAVES_PER_S = 5
BURST = 200
#: Addresses that are remembered. Those that were quiet for longest are forgotten first.
MOST_ADDRESSES = 10_000


class LeaveLimit:
    """A token bucket for each address, as the time at which it will be full again."""

    def __init__(self) -> None:
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """0: it may, and that is counted. Else how long until it may. `now_s`: of any clock that
        only goes forward."""
        key = network_of(address)
        full_at = max(self._full_at.get(key, now_s), now_s)
        wait_s = full_at - now_s - (BURST - 1) / LEAVES_PER_S
        if wait_s > 0:
            return wait_s
        self._full_at[key] = full_at + 1 / LEAVES_PER_S
        self._full_at.move_to_end(key)
        if len(self._full_at) > MOST_ADDRESSES:
            self._full_at.popitem(last=False)
        return 0.0
