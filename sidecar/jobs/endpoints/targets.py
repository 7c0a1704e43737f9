"""The endpoints of targets: get their state and history, and change settings at run time."""

import asyncio
from collections.abc import Mapping

import structlog
from aiohttp import web

from sidecar.http.auth.session import has_role, operator
from sidecar.http.endpoint import OPERATORS, Endpoints, programs
from sidecar.http.problem_kinds import DATABASE_UNAVAILABLE, ROLE_TOO_LOW
from sidecar.http.problems import ProblemError
from sidecar.jobs import targets
from sidecar.jobs.app_keys import JOBS
from sidecar.jobs.estimate import has_runner, rate_per_s, wait_s
from sidecar.jobs.schemas import (
    UNKNOWN_TARGET,
    HistoryParameters,
    HistoryStep,
    RestoredTarget,
    Target,
    TargetAddress,
    TargetChanges,
    TargetHistory,
    Targets,
)
from sidecar.jobs.targets import AdminNeededError
from sidecar.kit.clock import iso
from sidecar.kit.errors import InputError
from sidecar.kit.names import is_plain_name

#: About how many steps a history has.
STEPS = 60
HOUR_MS = 3_600_000

log = structlog.get_logger()

ENDPOINTS = Endpoints("targets", problems=(DATABASE_UNAVAILABLE,))
_READS = programs("jobs", "read", role="viewer")
_TARGET = "/v1/targets/{name}"


@ENDPOINTS.get("/v1/targets", _READS, replies={200: "The targets."})
async def list_targets(request: web.Request) -> Targets:
    """List all targets and their state."""
    jobs = request.app[JOBS]
    counts = await jobs.counts()
    documents = await asyncio.gather(*(_target(one, counts) for one in jobs.targets))
    return Targets(targets=documents)


@ENDPOINTS.get(_TARGET, _READS, replies={200: "The target."}, problems=(UNKNOWN_TARGET,))
async def look_at_target(request: web.Request, at: TargetAddress) -> Target:
    """Get a target and its state."""
    jobs = request.app[JOBS]
    return await _target(jobs.targets.get(at.name), await jobs.counts())


@ENDPOINTS.patch(_TARGET, OPERATORS, replies={200: "The target."})
async def change_target(request: web.Request, at: TargetAddress, body: TargetChanges) -> Target:
    """Change a target, or create one.

    For operators. Only admins may create a target, or change `url`, `private`, `headers`,
    `callback_urls` or `callback_secret`. If the new `url` is on another server, you must send the
    secret values of `headers` again. All replicas and workers have the changes within two seconds.
    The changes override the configuration until DELETE.
    """
    jobs, changes = request.app[JOBS], body.model_extra or {}
    if not is_plain_name(at.name):
        raise InputError(["a name has lower-case letters, digits, - and _, 48 at most"])
    is_admin = has_role(request, "admin")
    try:
        target, changed = await jobs.targets.change(at.name, changes, is_admin=is_admin)
    except AdminNeededError as error:
        raise ProblemError(ROLE_TOO_LOW, detail=f"{error} needs the role admin.") from None
    log.info("target_set", target=at.name, settings=changed, by=operator(request))
    return await _target(target, await jobs.counts())


@ENDPOINTS.delete(
    _TARGET, OPERATORS, replies={200: "The target as configured."}, problems=(UNKNOWN_TARGET,)
)
async def restore_target(request: web.Request, at: TargetAddress) -> RestoredTarget:
    """Reset a target to its configured settings.

    For operators. A target that is not configured is removed.
    """
    jobs = request.app[JOBS]
    target = await jobs.targets.restore(at.name)
    log.info("target_restored", target=at.name, by=operator(request))
    document = None if target is None else await _target(target, await jobs.counts())
    return RestoredTarget(target=document)


@ENDPOINTS.get(
    _TARGET + "/history", _READS, replies={200: "The steps."}, problems=(UNKNOWN_TARGET,)
)
async def get_target_history(request: web.Request, at: HistoryParameters) -> TargetHistory:
    """Count the jobs of a target that ended, per step of time."""
    jobs = request.app[JOBS]
    target = jobs.targets.get(at.name)
    step_ms, now_ms = at.hours * HOUR_MS // STEPS, target.clock.now_ms()
    rows = await jobs.store.jobs.steps(target.name, now_ms - at.hours * HOUR_MS, now_ms, step_ms)
    steps = [HistoryStep.model_validate(row) for row in rows]
    return TargetHistory(target=target.name, step_seconds=step_ms / 1000, steps=steps)


async def _target(target: targets.Target, counts: Mapping[tuple[str, str], int]) -> Target:
    settings = target.settings
    state, _ = await target.store.look([], settings)

    def time_of(at_ms: int | None) -> str | None:
        return None if at_ms is None else iso(at_ms)

    return Target(
        name=target.name,
        source="file" if target.is_from_file else "run time",
        settings=settings.without_secrets(),
        waiting=state.waiting,
        later=state.later,
        running=state.active,
        calls_in_window=state.calls_in_window,
        mean_seconds=state.mean_s,
        calls_per_second=round(rate_per_s(settings, state), 3),
        wait_seconds=round(wait_s(settings, state, state.waiting + 1), 3),
        breaker=state.breaker,
        open_until=time_of(state.open_until_ms),
        held_until=time_of(state.held_until_ms),
        is_ready=state.is_ready,
        runner_seen_at=time_of(state.runner_ms),
        has_runner=has_runner(settings, state),
        counters=state.counters,
        jobs={key: count for (name, key), count in counts.items() if name == target.name},
    )
