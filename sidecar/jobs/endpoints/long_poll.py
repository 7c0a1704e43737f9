"""Long polls: requests that wait for a job to end or to be called. One query reads all these
jobs."""

import asyncio

from aiohttp import web

from sidecar.http.long_poll import LongPolls
from sidecar.jobs.model import ENDED, State
from sidecar.jobs.service import Jobs, JobView
from sidecar.kit.tasks import wait_for

#: How often the awaited jobs are read, in seconds.
POLL_S = 0.25
#: The states that end a long poll.
AWAITED_STATES = ENDED | {State.CALLED}


class JobPolls(LongPolls):
    """The long polls for jobs at this replica."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(self._poll_forever)
        self._service = jobs
        self._jobs: dict[asyncio.Event, JobView] = {}
        self._failures: dict[asyncio.Event, Exception] = {}

    async def wait(self, request: web.Request, view: JobView, wait_s: float) -> JobView:
        """Wait up to `wait_s` until a job has ended or is called. Return the job's latest view."""
        with self.opened(request) as over:
            self._jobs[over] = view
            try:
                await wait_for(over, wait_s)
            finally:
                view, failure = self._jobs.pop(over), self._failures.pop(over, None)
        if failure is not None:
            raise failure
        return view

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            waiting = {over: view.job.id for over, view in self._jobs.items() if not over.is_set()}
            try:
                rows = await self._service.store.jobs.find_many(set(waiting.values()))
                views = {view.job.id: view for view in await self._service.view([*rows.values()])}
            except Exception as error:  # noqa: BLE001 - each waiting client gets it
                for over in waiting.keys() & self._jobs.keys():
                    self._failures[over] = error
                    over.set()
                continue
            for over, id_ in waiting.items():
                if over not in self._jobs:
                    continue
                view = self._jobs[over] = views.get(id_, self._jobs[over])
                if id_ not in views or view.state in AWAITED_STATES:
                    over.set()


JOB_POLLS = web.AppKey("job polls", JobPolls)
