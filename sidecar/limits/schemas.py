"""Requests and responses of rate limits."""

from __future__ import annotations

from sidecar.kit.http.problem_kinds import Kind

OVER_LIMIT = Kind(
    "over_limit",
    429,
    "Over the limit",
    "Over the limit, or beyond `max_wait`; nothing was counted.",
)
