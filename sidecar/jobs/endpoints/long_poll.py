"""Clients that wait for their jobs: all of these are looked up together, a few times a second."""

import asyncio

from aiohttp import web

from sidecar.http.long_poll import LongPolls
from sidecar.jobs.model import ENDED, State
from sidecar.jobs.service import Jobs, JobView
from sidecar.kit.tasks import wait_for

#: How often to look, seconds.
LOOK_S = 0.25
#: States in which a job is no longer waited for.
OVER = ENDED | {State.CALLED}


class JobPolls(LongPolls):
    def __init__(self, jobs: Jobs) -> None:
        super().__init__(self._look)
        self._service = jobs
        self._jobs: dict[asyncio.Event, JobView] = {}
        self._failures: dict[asyncio.Event, Exception] = {}

    async def wait(self, request: web.Request, view: JobView, wait_s: float) -> JobView:
        """Wait until a job has ended or is called, and return it as it stands then or after
        `wait_s`."""
        with self.opened(request) as over:
            self._jobs[over] = view
            try:
                await wait_for(over, wait_s)
            finally:
                view, failure = self._jobs.pop(over), self._failures.pop(over, None)
        if failure is not None:
            raise failure
        return view

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            waiting = {over: view.job.id for over, view in self._jobs.items() if not over.is_set()}
            try:
                rows = await self._service.store.jobs.find_many(set(waiting.values()))
                now = {view.job.id: view for view in await self._service.view([*rows.values()])}
            except Exception as error:  # noqa: BLE001 - each of them gets it
                for over in waiting.keys() & self._jobs.keys():
                    self._failures[over] = error
                    over.set()
                continue
            for over, id_ in waiting.items():
                if over not in self._jobs:
                    continue
                view = self._jobs[over] = now.get(id_, self._jobs[over])
                if id_ not in now or view.state in OVER:
                    over.set()


JOB_POLLS = web.AppKey("job polls", JobPolls)
