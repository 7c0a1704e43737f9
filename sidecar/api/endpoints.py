"""All declared endpoints."""

from __future__ import annotations

from sidecar.history.endpoints import ENDPOINTS as _HISTORY
from sidecar.leases.endpoints import ENDPOINTS as _LEASES
from sidecar.limits.endpoints import ENDPOINTS as _LIMITS

#: Of the ops listener.
OPS = (*_HISTORY, *_LEASES, *_LIMITS)
