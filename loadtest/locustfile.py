"""Load for a waiting room: locust -f loadtest/locustfile.py --host https://… (docs/loadtest.md)."""

import sys
from pathlib import Path

# Locust puts this file's folder first; the package is beside it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadtest import conduct
from loadtest.journeys import ApiClient, Flood, Shopper, Storm

conduct.listen()

__all__ = ["ApiClient", "Flood", "Shopper", "Storm"]
