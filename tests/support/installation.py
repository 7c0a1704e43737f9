"""Starts two replicas, a job worker and a target server, for tests of the client."""

import contextlib
from pathlib import Path

from tests.support.processes import WAITROOM
from tests.support.service import Service
from tests.support.target import run_target

ADMIN = "test-admin-token-000000"
RULES = """
admin_token = "{admin}"
jobs = "sqlite:///{folder}/jobs.db"

[rooms]
shop = {{total_active_users = 1}}

[targets]
images = {{url = "{url}", private = true, concurrency = 4}}
held = {{url = "{url}", private = true, paused = true, max_pending = 3}}
files = {{kinds = ["online"], concurrency = 1}}
brief = {{kinds = ["online"], concurrency = 1, claim_window = "1s"}}

[leases]
title = {{term = "60s", renewable = true}}

[limits]
many = {{algorithm = "sliding_window", limit = 300, window = "1h", key = "{{n}}"}}
export = {{algorithm = "concurrency", limit = 1, lease = "600ms", key = "{{n}}"}}
"""


@contextlib.contextmanager
def installation(folder: Path, more_rules: str = ""):
    """Start the installation, with settings beside RULES."""
    with run_target(folder) as target:
        rules = RULES.format(admin=ADMIN, folder=folder, url=target.url)
        with Service(rules + more_rules, replicas=2) as service:
            config = service.folder / "replica-0.toml"
            service.run("worker", [WAITROOM, "run-jobs", "--config", str(config)])
            yield service
