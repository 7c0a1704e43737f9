"""What a job costs, counted and not timed: commands to Redis and statements to SQL, with bounds a
little above what they are now."""

import asyncio

from tests.jobs.bench import running, until
from tests.support.jobs import record_statements

JOBS = 100


async def test_many_submissions_share_scripts_and_statements(here, sent):
    """A place and a row for each, and into the queue: 100 at once take six script calls, of which
    some are loaded first, and one statement."""
    target = await here.target()
    statements = record_statements(here.store)
    await asyncio.gather(*(here.submit(target) for _ in range(JOBS)))
    assert len(sent) <= 12
    assert len(statements) <= 3


async def test_calls_under_way_share_scripts_and_statements(here, sent):
    """Fifty at a time: claimed together, begun together, and those that end at the same time are
    written and released together: 100 jobs take seven script calls and ten statements."""
    target = await here.target(concurrency=50)
    await asyncio.gather(*(here.submit(target) for _ in range(JOBS)))
    here.egress.over.set()
    worker = here.worker(target, most=50)
    statements = record_statements(here.store)
    sent.clear()
    async with running(worker.run()):
        await until(lambda: len(here.egress.called) == JOBS and not len(worker))
    assert len(sent) <= 16
    assert len(statements) <= 20
