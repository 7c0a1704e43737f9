"""Fixtures of others that these tests share."""

from __future__ import annotations

from tests.nginx.conftest import stamps
from tests.web.conftest import replica

__all__ = ["replica", "stamps"]
