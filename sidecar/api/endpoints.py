"""All declared endpoints."""

from __future__ import annotations

from sidecar.leases.endpoints import ENDPOINTS as _LEASES

#: Of the ops listener.
OPS = (*_LEASES,)
