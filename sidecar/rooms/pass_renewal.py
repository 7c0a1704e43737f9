"""When a pass is due for renewal: by its own life, and only where a renewal changes something."""

from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import RENEW_MIN_MS, Pass


def renewal_due_ms(pass_: Pass, settings: RoomSettings) -> int:
    """From when on a request with this pass renews it.

    The pass lives as long as the settings said when it was given; those of now say how long the
    next one may live. A renewal that would end no later waits, but not beyond a session_duration:
    replicas remember for so long who was released, and then only the store knows.
    """
    life_ms = pass_.expires_ms - pass_.renewed_ms
    session_ms = int(settings.session_duration * 1000)
    in_time_ms = pass_.renewed_ms + min(max(life_ms // 6, RENEW_MIN_MS), life_ms // 2)
    latest_ms = pass_.renewed_ms + session_ms
    ends_ms = _longest_ms(pass_, settings)
    if ends_ms is not None and ends_ms <= pass_.expires_ms:
        return latest_ms
    return min(max(in_time_ms, pass_.expires_ms - session_ms), latest_ms)


def _longest_ms(pass_: Pass, settings: RoomSettings) -> int | None:
    """When the session ends at the latest (rooms/lua/parts/admit.lua); None: never."""
    terms_s = [settings.session_max_duration] if settings.session_max_duration else []
    if settings.disable_session_renewal:
        terms_s.append(settings.session_duration)
    return pass_.started_ms + int(min(terms_s) * 1000) if terms_s else None
