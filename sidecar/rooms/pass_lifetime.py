"""Computes the times at which a pass is due for renewal and at which it ends."""

from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import RENEW_MIN_MS, Pass


def compute_renewal_due_ms(pass_: Pass, settings: RoomSettings) -> int:
    """Return the time, in ms, from which a request with this pass renews the pass.

    How long a pass is valid depends on the settings at its last renewal. A change of settings takes
    effect at the next renewal. A renewal that would not extend the pass is put off by at most one
    session_duration, because after that time replicas forget which visitors were released."""
    lifetime_ms = pass_.expires_ms - pass_.renewed_ms
    session_ms = int(settings.session_duration * 1000)
    usual_ms = pass_.renewed_ms + min(max(lifetime_ms // 6, RENEW_MIN_MS), lifetime_ms // 2)
    latest_ms = pass_.renewed_ms + session_ms
    if compute_pass_end_ms(pass_.started_ms, pass_.expires_ms, settings) <= pass_.expires_ms:
        return latest_ms
    return min(max(usual_ms, pass_.expires_ms - session_ms), latest_ms)


def compute_pass_end_ms(started_ms: int, now_ms: int, settings: RoomSettings) -> int:
    """Return the end of a pass that is issued or renewed now, as rooms/lua/parts/admit.lua does."""
    begins_ms = started_ms if settings.disable_session_renewal else now_ms
    ends_ms = begins_ms + int(settings.session_duration * 1000)
    if settings.session_max_duration is not None:
        ends_ms = min(ends_ms, started_ms + int(settings.session_max_duration * 1000))
    return ends_ms
