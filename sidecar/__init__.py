"""Waitroom's sidecar: one folder per product, and one for the machinery that they share.

    kit/         knows no product: errors, clock, signing, retry, outgoing POSTs
    http/        endpoints declared once, models, problems, long polls; auth/: who may ask
    storage/     redis/: connections, scripts, leader leases; sql/: connections, migrations
    visitors/    what all products use: tickets, passes, classes, grants, the estimate; lua/
    settings/    the configuration file and WAITROOM_*; each product brings its own section
    rooms/       the waiting room: sessions, openings, shield, fail-open, exemptions
    lottery/     the draw of a pre-queue: commitment, secret, places
    leases/      leases on named resources
    limits/      rate limits
    jobs/        calls that wait for their turn: targets, workers, callbacks, permits
    history/     stays and events in SQL: recorder, look-ups, reports
    webhooks/    notifications about rooms and calls
    gate/        what proxies ask and visitors see: check, status, cookies, stamps; page/
    dashboard/   the operators' page, and the way in to it
    app/         a replica (replica.py) and a worker (jobs.py): what starts, in order, and stops, in
                 reverse; all endpoints on one page (routes.py), access, health, OpenAPI
    cli/         the command: a file or folder for each product; doctor/ looks at an installation
                 from outside, setup/ writes its files (waitroom init, waitroom update-files)
    __main__.py  the process of a command: `waitroom`, `python -m sidecar`

In a product the same names mean the same: settings.py (what may be configured), model.py (types),
service.py (rules), store.py and lua/ (Redis), redis_keys.py, endpoints.py and schemas.py (HTTP),
worker.py (loops), metrics.py, app_keys.py (where handlers find it). A
large one has a folder of that name.

pyproject.toml says who may import whom, and why where it is an exception; import-linter holds it.
"""

__version__ = "0.1.0"
