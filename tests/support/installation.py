"""The installation for tests of the client: two replicas, a job worker and a target server."""

from tests.support.works import JobSystem

TARGETS = {
    "images": {"concurrency": 4},
    "held": {"paused": True, "max_pending": 3},
    "files": {"kinds": ["online"], "concurrency": 1},
    "brief": {"kinds": ["online"], "concurrency": 1, "claim_window": "1s"},
}
RULES = """
[rooms]
shop = {total_active_users = 1}

[leases]
title = {term = "60s", renewable = true}

[limits]
many = {algorithm = "sliding_window", limit = 300, window = "1h", key = "{n}"}
export = {algorithm = "concurrency", limit = 1, lease = "600ms", key = "{n}"}
"""


def installation(more_rules: str = "") -> JobSystem:
    """Return the installation, which runs within a `with` block, with settings beside RULES."""
    return JobSystem(TARGETS, replicas=2, runners=1, more=RULES + more_rules)
