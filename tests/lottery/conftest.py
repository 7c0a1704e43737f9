"""Replicas to ask."""

from __future__ import annotations

from tests.support.replica import replica, service

__all__ = ["replica", "service"]
