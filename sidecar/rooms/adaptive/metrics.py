"""Exports the metrics of adaptive rooms."""

from typing import get_args

from sidecar.http.metrics import SHARED, MetricSet, counter, gauge
from sidecar.rooms.adaptive.controller import Learned, StateName

_STATES = get_args(StateName)


class AdaptiveMetrics(MetricSet):
    """The metrics of the sites behind adaptive rooms, as of the last tick."""

    reports = counter(
        "waitroom_site_reports",
        "Reports of nginx that this replica got. left_out: not about the site's speed. "
        "unreadable: not a report. unknown_room: not an adaptive room. lost: Redis did not answer. "
        "released, extended: a header ended or extended the visit. unbelieved: the visitor has no "
        "valid cookie. not_allowed: the room's settings ignore the header.",
        "room",
        "result",
    )
    ceiling = gauge(
        "waitroom_ceiling",
        "How many visitors an adaptive room lets in, or would let in with mode = advise." + SHARED,
        "room",
    )
    sustainable = gauge(
        "waitroom_sustainable",
        "How many visitors the site can probably sustain. Absent before the first overload."
        + SHARED,
        "room",
    )
    p90 = gauge(
        "waitroom_site_p90_seconds", "The p90 of the site's response times." + SHARED, "room"
    )
    errors = gauge(
        "waitroom_site_error_share", "The share of errors, from 0 to 1." + SHARED, "room"
    )
    responses = gauge(
        "waitroom_site_responses",
        "Responses that nginx reported in the time of the p90, at most five minutes. Absent unless "
        "the room is adaptive." + SHARED,
        "room",
    )
    state = gauge(
        "waitroom_adaptive_state", "1 for the state that the site is in." + SHARED, "room", "state"
    )

    def export(self, room: str, learned: Learned | None) -> None:
        """Export what a room has learned. If it is None, remove the number of responses."""
        if learned is None:
            self.responses.remove(room)
            return
        self.responses.labels(room).set(learned.responses)
        self.ceiling.labels(room).set(int(learned.ceiling))
        self.p90.labels(room).set(learned.p90_s)
        self.errors.labels(room).set(learned.error_share)
        if learned.good is not None:
            self.sustainable.labels(room).set(int(learned.good))
        for state in _STATES:
            self.state.labels(room, state).set(state == learned.state)
