"""The target workers of one process."""

import asyncio
from typing import TypeAlias

import structlog

from sidecar.jobs.service import Jobs
from sidecar.jobs.wake_ups import WakeUps
from sidecar.jobs.worker.target_call import Egress
from sidecar.jobs.worker.target_worker import TargetWorker
from sidecar.kit.tasks import stop_workers, wait_for

Running: TypeAlias = tuple[TargetWorker, asyncio.Task[None]]

log = structlog.get_logger()


class WorkerPool:
    """A worker for each target, those that are made at run time too."""

    def __init__(self, jobs: Jobs, wake_ups: WakeUps, egress: Egress, *, most: int) -> None:
        self._jobs = jobs
        self._wake_ups = wake_ups
        self._egress = egress
        self._most = most
        self._running: dict[str, Running] = {}
        #: Of targets that were removed or made again: their calls go on.
        self._ending: list[Running] = []

    async def run(self, stop: asyncio.Event, *, grace_s: float = 0.0, look_s: float = 1.0) -> None:
        """Until `stop`; then until its calls are over, for so many seconds."""
        try:
            while not stop.is_set():
                self._look()
                await wait_for(stop, look_s)
            under_way = sum(len(worker) for worker, _ in self._running.values())
            log.info("stopping", under_way=under_way, grace_seconds=grace_s)
            for worker, _ in self._running.values():
                worker.stop()
            if tasks := self._tasks():
                await asyncio.wait(tasks, timeout=grace_s)
        finally:
            await stop_workers(*self._tasks())

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in (*self._running.values(), *self._ending)]

    def _look(self) -> None:
        targets = {target.name: target for target in self._jobs.targets}
        self._ending = [(worker, task) for worker, task in self._ending if not task.done()]
        for name, (worker, task) in list(self._running.items()):
            if worker.target is not targets.get(name):
                worker.stop()
                self._ending.append((worker, task))
                del self._running[name]
            elif task.done():
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("target_worker_failed", target=name, exc_info=error)
                del self._running[name]
        for name, target in targets.items():
            if name not in self._running and "offline" in target.settings.kinds:
                worker = TargetWorker(
                    target, self._jobs, self._egress, self._wake_ups, most=self._most
                )
                self._running[name] = worker, asyncio.create_task(worker.run())
