"""Deprecated: `waitroom` has all of this, as Client, AsyncClient and UnavailableError."""

import warnings

from waitroom import AsyncClient as AsyncWaitroom
from waitroom import (
    AsyncLease,
    ConfigError,
    Lease,
    LeaseLost,
    Permit,
    Queued,
    Refused,
    RejectedError,
    WaitroomError,
)
from waitroom import Client as Waitroom
from waitroom import UnavailableError as AwayError

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

warnings.warn("sidecar.client is deprecated: import waitroom", DeprecationWarning, stacklevel=2)
