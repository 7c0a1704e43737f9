"""Findings about stamps: whether nginx knows by itself who is inside, by the replicas' key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.doctor.finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.doctor.visit import Visit

#: A stamp lives for two seconds at least. What comes later says nothing of it.
FRESH_S = 1.5

_KEY = "`waitroom nginx-key /etc/nginx/waitroom-stamp.conf`"


def stamps(seen: Visit) -> Iterator[Finding]:
    """Only a visitor who is inside, and is known again, can tell."""
    back, again = seen.back, seen.stamped
    is_inside = any(beat.document.get("state") == "admitted" for beat in seen.beats)
    if not back.status or not is_inside or back.cookie is not None or back.is_waiting_page:
        return
    if back.stamp is None:
        if "unknown" in seen.nginx_keys:
            yield problem(
                "nginx has a key that a replica does not know: stamps are off there",
                f"Write it again with the replicas' settings, {_KEY}, and reload nginx. All "
                "replicas need the same `secret_keys`.",
            )
        else:
            yield ok(
                "nginx keeps for seconds what replicas say of visitors inside; stamps are off "
                f"({_KEY} turns them on, but in rooms where it matters who asks)"
            )
    elif not again.status or again.at_s > back.at_s + FRESH_S:
        yield ok("nginx brings stamps; the answers were too slow to see whether it takes them")
    elif again.stamp is not None or again.is_waiting_page:
        yield warning(
            "nginx does not take the stamp that was just given: it asks replicas all the same",
            "Several nginx whose clocks agree need one `$waitroom_stamp_binding` in "
            f"waitroom/settings.conf, and each the same key: {_KEY}.",
        )
    else:
        yield ok("nginx knows visitors inside by itself (stamps), by the replicas' key")
