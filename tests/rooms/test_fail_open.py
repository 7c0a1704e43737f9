"""What a replica does by itself: never more than its share of what was free."""

from dataclasses import replace

import pytest

from sidecar.rooms.fail_open import Fallback
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Pass, Ticket

NOW = 1_800_000_000_000
SEEN = Snapshot(
    now_ms=NOW, waiting=0, active=4, provisional=0, epoch=3, revision=0, wait_ms=0, overrides={},
    counters={}, revoked={}, shield_until_ms=0, born_ms=1, recovery_ms=0, recovers_until_ms=0,
    recovery_stage=0, replicas=3,
)  # fmt: skip
TICKET = Ticket("w" * 22, 7, NOW - 1000, 3)


def room(**settings) -> RoomSettings:
    return RoomSettings(**{"total_active_users": 14, **settings})


def alone(settings: RoomSettings, **seen) -> Fallback:
    fallback = Fallback()
    fallback.update_limits(replace(SEEN, **seen), settings)
    return fallback


def let_in(fallback: Fallback, settings: RoomSettings, tries: int = 50, now_ms: int = NOW) -> int:
    return sum(fallback.admit_newcomer(settings, now_ms) is not None for _ in range(tries))


@pytest.mark.parametrize(
    ("seen", "share"),
    [
        ({}, 3),  # ten free, three replicas
        ({"replicas": 1}, 10),
        ({"replicas": 0}, 10),  # this one had not been counted yet
        ({"active": 13}, 0),
        ({"active": 20}, 0),
        ({"waiting": 1}, 0),
        ({"recovery_stage": 1}, 0),
    ],
)
def test_bounded_lets_in_a_share_of_what_was_free(seen, share):
    settings = room()
    assert let_in(alone(settings, **seen), settings) == share


def test_all_replicas_together_stay_within_the_cap():
    for free in range(40):
        settings = room(total_active_users=4 + free)
        assert sum(let_in(alone(settings), settings) for _ in range(3)) <= free


def test_as_many_are_taken_to_have_come_since_as_came_before():
    """Other replicas may have admitted visitors since the last snapshot."""
    settings = room()
    fallback = alone(settings, counters={"admitted": 90.0})
    assert let_in(fallback, settings) == 0
    fallback.update_limits(replace(SEEN, counters={"admitted": 94.0}), settings)
    assert let_in(fallback, settings) == 2
    fallback.update_limits(replace(SEEN, counters={"admitted": 94.0}), settings)
    assert let_in(fallback, settings) == 3


def test_who_came_in_since_the_last_snapshot_is_counted():
    settings = room()
    fallback = alone(settings)
    fallback.count_admission()
    assert let_in(fallback, settings) == 2


def test_a_replica_that_never_saw_the_store_lets_in_nobody():
    assert let_in(Fallback(), room()) == 0


def test_the_rate_is_shared_too():
    settings = room(total_active_users=10_000, new_users_per_minute=180)
    fallback = alone(settings)  # one a second for each of three
    assert let_in(fallback, settings) == 1
    assert let_in(fallback, settings, now_ms=NOW + 999) == 0
    assert let_in(fallback, settings, now_ms=NOW + 1000) == 1
    assert let_in(fallback, settings, now_ms=NOW + 60_000) == 2  # as many as it holds


@pytest.mark.parametrize(("policy", "some"), [("wait", 0), ("admit", 50)])
def test_the_other_policies(policy, some):
    settings = room(on_store_failure=policy)
    assert let_in(alone(settings, active=14, waiting=5), settings) == some


def test_a_room_that_lets_in_nobody_lets_in_nobody():
    settings = room(on_store_failure="admit", queue_all=True)
    assert let_in(alone(settings), settings) == 0
    assert alone(settings).admit_from_queue(TICKET, settings, NOW) is None


def test_who_waits_goes_on_waiting_but_with_admit():
    assert alone(room()).admit_from_queue(TICKET, room(), NOW) is None
    settings = room(on_store_failure="admit")
    given = alone(settings).admit_from_queue(TICKET, settings, NOW)
    assert given
    assert (given.visitor, given.order, given.joined_ms) == ("w" * 22, 7, NOW - 1000)


def test_what_is_given_is_due_at_once_so_that_the_store_hears_of_it():
    settings = room(session_duration=60, session_max_duration=40)
    given = alone(settings).admit_newcomer(settings, NOW)
    assert given
    assert (given.renewed_ms, given.started_ms, given.expires_ms) == (0, NOW, NOW + 40_000)
    assert given.epoch == 3


def test_a_pass_is_made_longer_when_half_of_it_is_gone():
    """The extended pass is due for renewal at once, so that Redis gets it."""
    settings = room(session_duration=60)
    pass_ = Pass("p" * 22, 7, NOW, 3, NOW, NOW, NOW + 60_000)
    fallback = alone(settings)
    assert fallback.extend_pass(pass_, settings, NOW + 29_999) is None
    longer = fallback.extend_pass(pass_, settings, NOW + 30_000)
    assert longer == replace(pass_, renewed_ms=0, expires_ms=NOW + 90_000)


@pytest.mark.parametrize(
    "settings", [{"disable_session_renewal": True}, {"session_max_duration": 60}]
)
def test_a_pass_that_must_end_is_not_made_longer(settings):
    settings = room(session_duration=60, **settings)
    pass_ = Pass("p" * 22, 7, NOW, 3, NOW, NOW, NOW + 60_000)
    assert alone(settings).extend_pass(pass_, settings, NOW + 59_000) is None
