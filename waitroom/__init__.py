"""The Python client of a Waitroom replica's ops listener: leases, limits, jobs and rooms.

    client = Client("http://127.0.0.1:8401", token="...")
    client.acquire("pay", biz="refund", channel="wx", wait=True)
    with client.lease("title", "A", wait=60) as lease:
        store.write("A", data, fence=lease.fence)

AsyncClient is the same with `await` and `async with`.

Several addresses are several replicas of one installation: a call that one does not answer goes to
the next, if it is safe to repeat or never arrived. Safe are all GET, PUT, PATCH and DELETE calls,
whatever has a name of its own (`id`, `idempotency_key`, a holder; the client makes one up where it
may have to repeat the call), and giving something back.
"""

from waitroom.async_client import AsyncClient
from waitroom.client import Client
from waitroom.errors import (
    ConfigError,
    LeaseLost,
    Problem,
    Queued,
    Refused,
    RejectedError,
    UnavailableError,
    WaitroomError,
)
from waitroom.jobs import AsyncJobs, JobRequest, Jobs
from waitroom.leases import AsyncLease, Lease
from waitroom.model import Job, JobResult, Permit, Room, Visitor
from waitroom.rooms import AsyncRooms, Rooms

__all__ = [
    "AsyncClient",
    "AsyncJobs",
    "AsyncLease",
    "AsyncRooms",
    "Client",
    "ConfigError",
    "Job",
    "JobRequest",
    "JobResult",
    "Jobs",
    "Lease",
    "LeaseLost",
    "Permit",
    "Problem",
    "Queued",
    "Refused",
    "RejectedError",
    "Room",
    "Rooms",
    "UnavailableError",
    "Visitor",
    "WaitroomError",
]
