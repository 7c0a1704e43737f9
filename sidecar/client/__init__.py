"""A client of the service API: leases and limits, for threads and for tasks.

    room = Waitroom("http://127.0.0.1:8401", token="...")
    room.acquire("pay", biz="refund", channel="wx", wait=True)
    with room.lease("title", "A", wait=60) as lease:
        store.write("A", data, fence=lease.fence)

AsyncWaitroom is the same with `await` and `async with`.
"""

try:
    import httpx as _httpx  # noqa: F401
except ImportError:
    raise ImportError('the client needs httpx: pip install "waitroom[client]"') from None

from sidecar.client.aio import AsyncLease, AsyncWaitroom
from sidecar.client.answers import Permit
from sidecar.client.errors import AwayError, LeaseLost, Queued, Refused, RejectedError
from sidecar.client.sync import Lease, Waitroom
from sidecar.kit.errors import ConfigError, WaitroomError

__all__ = [
    "AsyncLease",
    "AsyncWaitroom",
    "AwayError",
    "ConfigError",
    "Lease",
    "LeaseLost",
    "Permit",
    "Queued",
    "Refused",
    "RejectedError",
    "Waitroom",
    "WaitroomError",
]
