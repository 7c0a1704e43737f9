"""Deprecated: `waitroom` has all of this, as Client, AsyncClient and UnavailableError."""

import warnings

import waitroom
from waitroom import *  # noqa: F403 - the names that did not change
from waitroom import AsyncClient as AsyncWaitroom
from waitroom import Client as Waitroom
from waitroom import UnavailableError as AwayError

__all__ = ["AsyncWaitroom", "AwayError", "Waitroom"]
__all__ += waitroom.__all__

warnings.warn("sidecar.client is deprecated: import waitroom", DeprecationWarning, stacklevel=2)
