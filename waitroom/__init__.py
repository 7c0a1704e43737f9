"""Python client for leases, limits, jobs and rooms, by the ops listener of a Waitroom replica.

    client = Client("http://127.0.0.1:8401", token="...")
    client.acquire("pay", biz="refund", channel="wx", wait=True)
    with client.lease("title", "A", wait=60) as lease:
        store.write("A", data, fence=lease.fence)

AsyncClient has the same methods, with `await` and `async with`.

Several addresses are several replicas of one installation. If a replica does not answer a request,
the client tries the next one, provided that the request never arrived or is safe to repeat. Safe
are all GET, PUT, PATCH and DELETE requests, all releases, and all requests with an id (`id`,
`idempotency_key` or a holder), which the client makes up if it may have to repeat a request.
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
