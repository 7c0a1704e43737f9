"""Python client for leases, limits, jobs and rooms. It uses a Waitroom replica's ops listener.

    client = Client("http://127.0.0.1:8401", token="...")
    client.acquire("pay", biz="refund", channel="wx", wait=True)
    with client.lease("title", "A", wait=60) as lease:
        store.write("A", data, fence=lease.fence)

AsyncClient has the same methods, with `await` and `async with`.

`wait` has the same meaning in all methods. With None or False, a method does not wait. With True,
it waits as long as necessary. With a number, it waits for so many seconds and then raises
TimeoutError.

A client can get the addresses of several replicas of one installation. If a replica does not answer
a request, the client tries the next one, provided that the request never arrived or is safe to
repeat. GET, PUT, PATCH and DELETE requests, releases, and requests with an id (`id`,
`idempotency_key` or a holder) are safe to repeat. The client generates an id if it may need one.
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
    TimeoutError,  # noqa: A004 - a subclass of the built-in one
    UnavailableError,
    WaitroomError,
)
from waitroom.jobs import AsyncJobs, JobRequest, Jobs, JobSubmission
from waitroom.leases import AsyncLease, Lease
from waitroom.limits import HeldPermit
from waitroom.model import Job, JobResult, Permit, Room, SubmittedJobs, Visitor
from waitroom.rooms import AsyncRooms, Rooms

__all__ = [
    "AsyncClient",
    "AsyncJobs",
    "AsyncLease",
    "AsyncRooms",
    "Client",
    "ConfigError",
    "HeldPermit",
    "Job",
    "JobRequest",
    "JobResult",
    "JobSubmission",
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
    "SubmittedJobs",
    "TimeoutError",
    "UnavailableError",
    "Visitor",
    "WaitroomError",
]
