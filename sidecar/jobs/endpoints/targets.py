"""Targets for operators and programs: how they stand; and what they bear, changed at run time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from sidecar.jobs.app_keys import JOBS
from sidecar.jobs.targets import has_runner, rate_per_s, wait_s
from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError
from sidecar.kit.http.auth.session import operator
from sidecar.kit.http.request_parameters import object_of
from sidecar.kit.names import is_plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.jobs.store.target_replies import Line
    from sidecar.jobs.targets import Target

MAX_HOURS = 24 * 31
#: Steps of a history, about.
STEPS = 60

log = structlog.get_logger()


async def list_targets(request: web.Request) -> web.Response:
    jobs = request.app[JOBS]
    counts = await jobs.counts()
    told = await asyncio.gather(*(_told(target, counts) for target in jobs.targets))
    return web.json_response({"targets": told})


async def show_target(request: web.Request) -> web.Response:
    jobs = request.app[JOBS]
    target = jobs.targets.get(request.match_info["name"])
    return web.json_response(await _told(target, await jobs.counts()))


async def change_target(request: web.Request) -> web.Response:
    """Settings from now on, on all replicas and runners within some seconds; a name that is new
    makes a target."""
    jobs, name = request.app[JOBS], request.match_info["name"]
    if not is_plain_name(name):
        raise ConfigError(["a name has lower-case letters, digits, - and _, 48 at most"])
    changes = await object_of(request)
    known = jobs.targets.find(name)
    at_ms = known.clock.now_ms() if known else 0
    target = await jobs.targets.change(name, changes, at_ms=at_ms)
    log.info("target_set", target=name, settings=sorted(changes), by=operator(request))
    return web.json_response(await _told(target, await jobs.counts()))


async def restore_target(request: web.Request) -> web.Response:
    """Back to what the file says; a target that the file has not is gone."""
    jobs, name = request.app[JOBS], request.match_info["name"]
    target = await jobs.targets.restore(name)
    log.info("target_restored", target=name, by=operator(request))
    told = None if target is None else await _told(target, await jobs.counts())
    return web.json_response({"target": told})


async def show_history(request: web.Request) -> web.Response:
    """What became of its jobs in the last hours, step by step."""
    jobs = request.app[JOBS]
    target = jobs.targets.get(request.match_info["name"])
    text = request.query.get("hours", "24")
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_HOURS):
        raise ConfigError([f"hours: a whole number from 1 to {MAX_HOURS} (got {text[:40]!r})"])
    step_ms = int(text) * 3_600_000 // STEPS
    now_ms = target.clock.now_ms()
    since_ms = now_ms - int(text) * 3_600_000
    rows = await jobs.store.history.steps(target.name, since_ms, now_ms, step_ms)
    steps = [
        {
            "at": iso(row.at_ms),
            "completed": row.completed,
            "failed": row.failed,
            "other": row.other,
            "mean_wait_seconds": _seconds(row.mean_wait_ms),
            "mean_seconds": _seconds(row.mean_ms),
        }
        for row in rows
    ]
    return web.json_response({
        "target": target.name, "step_seconds": step_ms / 1000, "steps": steps,
    })  # fmt: skip


async def _told(target: Target, counts: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    line, _ = await target.store.look([], target.settings)
    settings = target.settings
    return {
        "name": target.name,
        "source": "file" if target.is_of_file else "run time",
        "settings": settings.told(),
        "waiting": line.waiting,
        "later": line.later,
        "running": line.active,
        "calls_in_window": line.calls_in_window,
        "mean_seconds": line.mean_s,
        "calls_per_second": round(rate_per_s(settings, line), 3),
        "wait_seconds": round(wait_s(settings, line, line.waiting + 1), 3),
        "breaker": line.breaker,
        "open_until": _iso(line, line.open_until_ms),
        "held_until": _iso(line, line.held_until_ms),
        "is_ready": line.is_ready,
        "runner_seen_at": None if line.runner_ms is None else iso(line.runner_ms),
        "has_runner": has_runner(settings, line),
        "counters": line.counters,
        "jobs": {state: count for (name, state), count in counts.items() if name == target.name},
    }


def _iso(line: Line, at_ms: int | None) -> str | None:
    return iso(at_ms) if at_ms is not None and at_ms > line.now_ms else None


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else round(float(value_ms) / 1000, 3)
