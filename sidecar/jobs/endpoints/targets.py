"""Endpoints that return the state and history of targets, and change their settings at run time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import structlog
from aiohttp import web

from sidecar.http.auth.session import find_logged_name, has_role
from sidecar.http.endpoint import OPERATORS, Endpoints, programs
from sidecar.http.problem_kinds import DATABASE_UNAVAILABLE, ROLE_TOO_LOW
from sidecar.http.problems import ProblemError
from sidecar.jobs.estimate import estimate_calls_per_s, estimate_wait_s, has_runner, name_state
from sidecar.jobs.model import EndedJobs
from sidecar.jobs.schemas import (
    UNKNOWN_TARGET,
    HistoryParameters,
    HistoryStep,
    RestoredTarget,
    TargetChanges,
    TargetDocument,
    TargetHistory,
    TargetPath,
    Targets,
)
from sidecar.jobs.service import JOBS
from sidecar.jobs.targets import AdminNeededError, Target
from sidecar.kit.errors import InputError, StoreError
from sidecar.kit.names import is_plain_name

#: The number of steps of time in a target's history.
HISTORY_STEPS = 60
HOUR_MS = 3_600_000
#: The fields of a HistoryStep that count calls.
_CALL_FIELDS = ("calls_completed", "calls_failed", "calls_retried")

log = structlog.get_logger()

ENDPOINTS = Endpoints("targets", problems=(DATABASE_UNAVAILABLE,))
_READS = programs("jobs", "read", role="viewer")
_TARGET = "/v1/targets/{name}"


@ENDPOINTS.get("/v1/targets", _READS, replies={200: "The targets."})
async def list_targets(request: web.Request) -> Targets:
    """List all targets and their state."""
    jobs = request.app[JOBS]
    counts = await jobs.count_jobs()
    documents = await asyncio.gather(*(_make_document(target, counts) for target in jobs.targets))
    return Targets(targets=documents)


@ENDPOINTS.get(_TARGET, _READS, replies={200: "The target."}, problems=(UNKNOWN_TARGET,))
async def look_at_target(request: web.Request, path: TargetPath) -> TargetDocument:
    """Get a target and its state."""
    jobs = request.app[JOBS]
    return await _make_document(jobs.targets.get(path.name), await jobs.count_jobs())


@ENDPOINTS.patch(_TARGET, OPERATORS, replies={200: "The target."})
async def change_target(
    request: web.Request, path: TargetPath, body: TargetChanges
) -> TargetDocument:
    """Change a target, or create one.

    For operators. Only admins may create a target, or change `url`, `private`, `headers`,
    `callback_urls`, `callback_secret` or `previous_callback_secret`. If the new `url` is on another
    server, you must send the secret values of `headers` again. All replicas and workers apply
    the changes within two seconds. They override the configuration until you send DELETE."""
    jobs, changes = request.app[JOBS], body.model_extra or {}
    if not is_plain_name(path.name):
        raise InputError(["a name has lower-case letters, digits, - and _, 48 at most"])
    is_admin = has_role(request, "admin")
    try:
        target, changed = await jobs.targets.change(path.name, changes, is_admin=is_admin)
    except AdminNeededError as error:
        raise ProblemError(ROLE_TOO_LOW, detail=f"{error} needs the role admin.") from None
    log.info("target_set", target=path.name, settings=changed, by=find_logged_name(request))
    return await _make_document(target, await jobs.count_jobs())


@ENDPOINTS.delete(
    _TARGET, OPERATORS, replies={200: "The target as configured."}, problems=(UNKNOWN_TARGET,)
)
async def restore_target(request: web.Request, path: TargetPath) -> RestoredTarget:
    """Reset a target to its configured settings.

    For operators. A target that is not configured is removed."""
    jobs = request.app[JOBS]
    target = await jobs.targets.restore(path.name)
    log.info("target_restored", target=path.name, by=find_logged_name(request))
    document = None if target is None else await _make_document(target, await jobs.count_jobs())
    return RestoredTarget(target=document)


@ENDPOINTS.get(
    _TARGET + "/history", _READS, replies={200: "The steps."}, problems=(UNKNOWN_TARGET,)
)
async def get_target_history(request: web.Request, params: HistoryParameters) -> TargetHistory:
    """Count the ended jobs and the calls of a target, per time step.

    The last step is the one that has just begun."""
    jobs = request.app[JOBS]
    target = jobs.targets.get(params.name)
    step_ms = params.hours * HOUR_MS // HISTORY_STEPS
    now_ms = target.clock.now_ms()
    begins = [(now_ms // step_ms - number) * step_ms for number in range(HISTORY_STEPS, -1, -1)]
    rows, calls = await asyncio.gather(
        jobs.store.jobs.count_ended_jobs(target.name, begins[0], now_ms + 1, step_ms),
        _count_ended_calls(target, [*begins, now_ms + 60_000]),
    )
    by_time = {row.at_ms: row for row in rows}
    steps = [
        HistoryStep.model_validate(
            {
                **asdict(by_time.get(at_ms) or EndedJobs(at_ms, 0, 0, 0, None, None)),
                **dict(zip(_CALL_FIELDS, counts or (), strict=False)),
            }
        )
        for at_ms, counts in zip(begins, calls, strict=True)
    ]
    return TargetHistory(target=target.name, step_seconds=step_ms / 1000, steps=steps)


async def _count_ended_calls(
    target: Target, times_ms: Sequence[int]
) -> Sequence[Sequence[int] | None]:
    try:
        return await target.store.count_ended_calls(times_ms, target.settings)
    except StoreError:  # the history of jobs is in SQL
        return [None] * (len(times_ms) - 1)


async def _make_document(target: Target, counts: Mapping[tuple[str, str], int]) -> TargetDocument:
    settings = target.settings
    state, _ = await target.store.inspect([], settings)
    return TargetDocument.model_validate(
        {
            **asdict(state),
            "name": target.name,
            "source": "file" if target.is_from_file else "run time",
            "settings": settings.without_secrets(),
            "calls_per_second": estimate_calls_per_s(settings, state),
            "wait_seconds": estimate_wait_s(settings, state, state.waiting + 1),
            "has_runner": has_runner(settings, state),
            "state": name_state(settings, state),
            "jobs": {key: count for (name, key), count in counts.items() if name == target.name},
        }
    )
