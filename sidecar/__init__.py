"""Waitroom's sidecar, floor by floor.

A floor imports only from the floors above it in this list:

    base/      words, no I/O: model, errors, settings, tokens, clock, metrics
    store/     the only code that talks to a database
    core/      rules: rooms, leases, limits, jobs, estimate, history, notify
    workers/   loops: refresher, sweeper, recorder, archivist, notifier, caller, runner, watchdog
    web/       doors: routes, check, waiting, claim, events, draw, leases, limits, jobs, admin, ops
    jobs_app.py  the wiring of jobs: what a replica has of them, and a runner
    app.py     the only wiring: what starts, in order, and stops, in reverse
    client/    talks to a replica from outside; knows base/ only
    doctor/    looks at an installation from outside
    cli/       commands

`tests/test_floors.py` holds it.
"""

__version__ = "0.1.0"
