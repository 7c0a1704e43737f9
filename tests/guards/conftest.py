"""Fixtures of others that these tests share."""

from __future__ import annotations

from tests.nginx.conftest import stamps
from tests.support.replica import replica

__all__ = ["replica", "stamps"]
