"""Clients that wait for their jobs: all of these are looked up together, a few times a second."""

import asyncio

from aiohttp import web

from sidecar.http.long_poll import LongPolls
from sidecar.jobs.model import ENDED, State
from sidecar.jobs.service import Jobs, Seen
from sidecar.kit.tasks import wait_for

#: How often to look, seconds.
LOOK_S = 0.25
#: A job in one of these is waited for no longer.
OVER = ENDED | {State.CALLED}


class JobPolls(LongPolls):
    def __init__(self, jobs: Jobs) -> None:
        super().__init__(self._look)
        self._service = jobs
        self._jobs: dict[asyncio.Event, Seen] = {}
        self._failures: dict[asyncio.Event, Exception] = {}

    async def wait(self, request: web.Request, seen: Seen, wait_s: float) -> Seen:
        """The job when it has ended, or was called, or how it stands after so long."""
        with self.opened(request) as over:
            self._jobs[over] = seen
            try:
                await wait_for(over, wait_s)
            finally:
                seen, failure = self._jobs.pop(over), self._failures.pop(over, None)
        if failure is not None:
            raise failure
        return seen

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            waiting = {over: seen.job.id for over, seen in self._jobs.items() if not over.is_set()}
            try:
                rows = await self._service.store.jobs.find_many(set(waiting.values()))
                now = {seen.job.id: seen for seen in await self._service.see(list(rows.values()))}
            except Exception as error:  # noqa: BLE001 - each of them gets it
                for over in waiting.keys() & self._jobs.keys():
                    self._failures[over] = error
                    over.set()
                continue
            for over, id_ in waiting.items():
                if over not in self._jobs:
                    continue
                seen = self._jobs[over] = now.get(id_, self._jobs[over])
                if id_ not in now or seen.state in OVER:
                    over.set()


JOB_POLLS = web.AppKey("job polls", JobPolls)
