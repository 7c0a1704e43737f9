"""Those who wait for their jobs: all of them are looked up together, a few times a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from sidecar.jobs.model import ENDED, State
from sidecar.kit.http.long_poll import is_gone

if TYPE_CHECKING:
    from sidecar.jobs.service import Jobs, Seen

#: How often it is looked, seconds.
LOOK_S = 0.25


class Waiters:
    def __init__(self) -> None:
        self.is_closed = False
        self._jobs: dict[asyncio.Future[Seen], tuple[Seen, web.Request]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, request: web.Request, jobs: Jobs, seen: Seen, wait_s: float) -> Seen:
        """The job when it has ended, or was called, or how it stands after so long."""
        future: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        self._jobs[future] = seen, request
        if self._task is None:
            self._task = asyncio.create_task(self._look(jobs))
        try:
            async with asyncio.timeout(wait_s):
                return await future
        except TimeoutError:
            return self._jobs[future][0]
        finally:
            del self._jobs[future]
            if not self._jobs and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _look(self, jobs: Jobs) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            waiting = {future: seen for future, (seen, _) in self._jobs.items()}
            try:
                rows = await jobs.store.jobs.find_many({seen.job.id for seen in waiting.values()})
                now = {seen.job.id: seen for seen in await jobs.see(list(rows.values()))}
            except Exception as error:  # noqa: BLE001 - each of them is told
                for future in waiting:
                    if not future.done():
                        future.set_exception(error)
                continue
            for future, before in waiting.items():
                seen = now.get(before.job.id, before)
                _, request = self._jobs.get(future, (None, None))
                if request is None or future.done():
                    continue
                self._jobs[future] = seen, request
                is_over = seen.state in ENDED | {State.CALLED} or before.job.id not in now
                if is_over or self.is_closed or is_gone(request):
                    future.set_result(seen)

    def close(self) -> None:
        self.is_closed = True


WAITERS = web.AppKey("job waiters", Waiters)


async def close(app: web.Application) -> None:
    """Whoever waits hears how their job stands."""
    app[WAITERS].close()
