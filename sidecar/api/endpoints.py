"""All declared endpoints."""

from __future__ import annotations

from sidecar.leases.endpoints import ENDPOINTS as _LEASES
from sidecar.limits.endpoints import ENDPOINTS as _LIMITS

#: Of the ops listener.
OPS = (*_LEASES, *_LIMITS)
