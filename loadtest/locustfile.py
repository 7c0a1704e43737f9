"""Loads a waiting room: locust -f loadtest/locustfile.py --host https://… (docs/loadtest.md)."""

import sys
from pathlib import Path

# Locust puts this file's folder first in sys.path, but the package is in the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadtest import conduct
from loadtest.journeys import ApiClient, Flood, Joiner, Poller, Shopper, Storm

conduct.listen()

__all__ = ["ApiClient", "Flood", "Joiner", "Poller", "Shopper", "Storm"]
