"""Holds requests (long polls) until their job has ended or is called, with one query for all."""

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
    """The long polls for jobs that this replica holds open."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(self._poll_forever)
        self._service = jobs
        self._jobs: dict[asyncio.Event, JobView] = {}
        self._failures: dict[asyncio.Event, Exception] = {}

    async def wait(self, request: web.Request, view: JobView, wait_s: float) -> JobView:
        """Wait up to `wait_s` until a job has ended or is called. Return the job's latest view."""
        with self.opened(request) as ended:
            self._jobs[ended] = view
            try:
                await wait_for(ended, wait_s)
            finally:
                view, failure = self._jobs.pop(ended), self._failures.pop(ended, None)
        if failure is not None:
            raise failure
        return view

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            waiting = {
                ended: view.job.id for ended, view in self._jobs.items() if not ended.is_set()
            }
            try:
                rows = await self._service.store.jobs.find_many(set(waiting.values()))
                views = {view.job.id: view for view in await self._service.view([*rows.values()])}
            except Exception as error:  # noqa: BLE001 - each waiting client gets it
                for ended in waiting.keys() & self._jobs.keys():
                    self._failures[ended] = error
                    ended.set()
                continue
            for ended, id_ in waiting.items():
                if ended not in self._jobs:
                    continue
                view = self._jobs[ended] = views.get(id_, self._jobs[ended])
                if id_ not in views or view.state in AWAITED_STATES:
                    ended.set()


JOB_POLLS = web.AppKey("job polls", JobPolls)
