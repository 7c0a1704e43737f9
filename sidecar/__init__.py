"""Waitroom's sidecar: a folder for each product, and folders that all products use.

    kit/         helpers that know no product: errors, clock, signing, retries, outgoing POSTs
    http/        the parts of every HTTP API: endpoints, models, problem documents, long polls,
                 metrics; auth/: operators, sessions, roles and scopes
    storage/     redis/: connections, scripts, leader leases; sql/: connections, migrations
    visitors/    tickets, passes, classes, grants and estimates, used by several products; lua/
    settings/    the configuration file and WAITROOM_*; each product brings its own section
    rooms/       the waiting room: sessions, openings, shield, fail-open, exemptions
    lottery/     the lottery draw of a pre-queue: commitment, secret, places
    leases/      leases on named resources
    limits/      rate limits
    jobs/        queued calls to an API: targets, workers, callbacks, permits
    history/     stays and events in SQL: recorder, look-ups, reports
    webhooks/    notifications about rooms and calls
    gate/        endpoints for proxies and visitors: check, status, cookies, stamps; page/
    dashboard/   the operators' page, and its log-in
    app/         a replica (replica.py) and a worker (jobs.py): what each starts, and stops in
                 reverse order; all routes (routes.py), access, health, OpenAPI
    cli/         the command `waitroom`: a file or folder for each product; doctor/ checks an
                 installation, setup/ writes its files (waitroom init, waitroom update-files)
    __main__.py  the entry point of `waitroom` and `python -m sidecar`

A file name means the same in every product: settings.py (its settings), model.py (types),
service.py (rules), store.py and lua/ (Redis), redis_keys.py, endpoints.py and schemas.py (HTTP),
worker.py (loops), metrics.py. Where one file would be too long, there is a folder of that name.
The key by which handlers find a product is in service.py; app_keys.py has the keys that cannot be.

pyproject.toml lists which folder may import which others, with a reason for each exception;
import-linter checks it.
"""

__version__ = "0.1.0"
