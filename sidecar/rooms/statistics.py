"""Computes a room's figures for operators: sub-queues, time series and wait percentiles."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from sidecar.rooms.adaptive.settings import AdaptiveSettings
from sidecar.rooms.adaptive.words import describe_site_health
from sidecar.rooms.schemas.rooms import RoomStateName
from sidecar.rooms.schemas.series import SeriesStep
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Phase

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
#: The counters (rooms/lua/parts/stats.lua) of visitors who gave up, before or after being called.
ABANDONMENTS = ("expired_silent", "expired_swept", "expired_no_show", "left_waiting", "left_called")
#: The counters of ended sessions.
ENDED_SESSIONS = ("expired_session", "left_session", "released")
#: The recovery_stage in which nobody is called.
STAGE_WITHOUT_CALLS = 2
_WAIT_PREFIX = "wait_"


def name_state(settings: RoomSettings, snapshot: Snapshot | None) -> RoomStateName:
    """Return the name of the room's state: the first that applies. What an operator has set takes
    precedence over the events. `snapshot` is None if Redis does not answer."""
    if snapshot is None:
        return "no_redis"
    if snapshot.recovery_stage == STAGE_WITHOUT_CALLS:
        return "recovering"
    if settings.mode != "running":
        return "off" if settings.mode == "open" else settings.mode
    if snapshot.phase is not Phase.OPEN:
        return "closed" if snapshot.phase is Phase.CLOSED else "prequeue"
    if settings.total_active_users == 0:
        return "cap_0"
    return "at_cap" if snapshot.active >= settings.find_cap(snapshot.learned) else "running"


def describe_site(adaptive: AdaptiveSettings | None, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the members of SiteState for an adaptive room. Return None without a measurement."""
    learned = snapshot.learned
    if adaptive is None or adaptive.mode == "off" or learned is None:
        return None
    return {
        "state": learned.state,
        "text": describe_site_health(learned, adaptive, snapshot.active),
        "ceiling": int(learned.ceiling),
        "sustainable": None if learned.good is None else int(learned.good),
        "p90_seconds": learned.p90_s,
        "error_share": learned.error_share,
        "responses": learned.responses,
    }


def describe_sub_queues(settings: RoomSettings, snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return each sub-queue's length, without drawn places, and a newcomer's wait estimate."""
    return [
        {"line": line.name, "waiting": visitors, "wait_seconds": None if ms is None else ms // 1000}
        for line, (visitors, ms) in zip(settings.lines, snapshot.lines, strict=False)
    ]


def compute_steps(
    samples: list[dict[str, Any]], from_ms: int, until_ms: int, step_ms: int = MINUTE_MS
) -> list[SeriesStep]:
    """Compute the steps of a time series, oldest first. `samples` are sorted latest first.

    A step is the difference of two samples, so the sum of all steps is the difference of the first
    and the last sample. Where samples are missing, a step is longer than `step_ms`."""
    samples = [sample for sample in samples if from_ms <= sample["minute"] * MINUTE_MS <= until_ms]
    # The earliest sample of each step comes last, so it replaces the other samples of the step.
    bounds = list({sample["minute"] * MINUTE_MS // step_ms: sample for sample in samples}.values())
    if samples and bounds[0] is not samples[0]:
        bounds.insert(0, samples[0])  # the end of the current step
    return [_make_step(new, old) for new, old in pairwise(bounds)][::-1]


def _make_step(new: dict[str, Any], old: dict[str, Any]) -> SeriesStep:
    growth = compute_growth(new["totals"], old["totals"])
    waits = compute_wait_percentiles(new["totals"], old["totals"], (0.5, 0.9))
    ceiling, p90, error_share = new.get("site") or (None, None, None)
    return SeriesStep.model_construct(
        from_ms=old["minute"] * MINUTE_MS,
        ends_ms=new["minute"] * MINUTE_MS,
        waiting=new["waiting"],
        active=new["active"],
        cap=new["cap"],
        ceiling=ceiling,
        p90=p90,
        error_share=error_share,
        joined=growth.get("joined", 0),
        admitted=growth.get("admitted", 0),
        abandoned=sum(growth.get(name, 0) for name in ABANDONMENTS),
        wait_half=waits[0.5],
        wait_most=waits[0.9],
    )


def compute_growth(new: Mapping[str, float], old: Mapping[str, float]) -> dict[str, int]:
    """Return the growth of each counter. A counter that is lower than before began at 0 again."""
    return {
        name: int(value - old.get(name, 0)) if value >= old.get(name, 0) else int(value)
        for name, value in new.items()
    }


def compute_wait_percentiles(
    new: Mapping[str, float], old: Mapping[str, float], shares: Iterable[float]
) -> dict[float, float | None]:
    """Return the percentiles `shares` (0.5 is the median) of the waits, in seconds, of the visitors
    admitted between two samples. The percentiles are None if nobody was admitted.

    The counter wait_n counts waits from 2^(n/2) to 2^((n+1)/2) seconds, and wait_0 also shorter
    ones. Waits count as evenly spread in this range, so a percentile may be wrong by some 20 %."""
    buckets = sorted(
        (int(name.removeprefix(_WAIT_PREFIX)), count)
        for name, count in compute_growth(new, old).items()
        if name.removeprefix(_WAIT_PREFIX).isdecimal() and count > 0
    )
    total = sum(count for _, count in buckets)
    return {share: _find_wait_s(buckets, share * total) if total else None for share in shares}


def _find_wait_s(buckets: list[tuple[int, int]], rank: float) -> float:
    before = 0
    bucket = 0
    for bucket, count in buckets:
        if before + count >= rank:
            fraction = (rank - before) / count
            low = 2 ** (bucket / 2) if bucket else 0.0
            return low + fraction * (2 ** ((bucket + 1) / 2) - low)
        before += count
    return 2 ** ((bucket + 1) / 2)
