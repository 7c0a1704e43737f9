"""How often one address may do something."""

from collections import OrderedDict

from sidecar.rooms.bearer import network_of

#: Addresses that are remembered. Those that were quiet for longest are forgotten first.
MOST_ADDRESSES = 10_000


class AddressLimit:
    """A token bucket for each address (of IPv6 the network of 64 bits), as the time at which it
    will be full again: so many `per_s`, and `burst` at once."""

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """0: it may, and that is counted. Else how long until it may. `now_s`: of any clock that
        only goes forward."""
        key = network_of(address)
        full_at = max(self._full_at.get(key, now_s), now_s)
        wait_s = full_at - now_s - (self._burst - 1) / self._per_s
        if wait_s > 0:
            return wait_s
        self._full_at[key] = full_at + 1 / self._per_s
        self._full_at.move_to_end(key)
        if len(self._full_at) > MOST_ADDRESSES:
            self._full_at.popitem(last=False)
        return 0.0
