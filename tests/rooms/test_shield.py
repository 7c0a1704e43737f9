"""The shield before a room: up under a flood, down by itself, and nobody let past meanwhile."""

import pytest

from sidecar.rooms.shield import PERIOD_MS, PROBE_MS, Shield, ShieldVerdict
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS

ABOVE = 50
START = 1_800_000_000_000


def flood(shield: Shield, *, rate: int, seconds: float, from_ms: int) -> list[ShieldVerdict]:
    """Return how newcomers are treated who come at an even rate."""
    count = int(rate * seconds)
    return [
        shield.count_newcomer(ABOVE, from_ms + 1000 * number // rate) for number in range(count)
    ]


def raised(now_ms: int = START) -> Shield:
    shield = Shield()
    flood(shield, rate=100_000, seconds=0.001, from_ms=now_ms)
    assert shield.count_newcomer(ABOVE, now_ms + 1) is ShieldVerdict.UP
    return shield


@pytest.mark.parametrize("rate", [1, ABOVE // 2, ABOVE])
def test_never_goes_up_at_the_rate_that_is_allowed(rate):
    assert set(flood(Shield(), rate=rate, seconds=60, from_ms=START)) == {ShieldVerdict.NONE}


def test_a_seconds_worth_at_once_is_let_through():
    shield = Shield()
    assert [shield.count_newcomer(ABOVE, START) for _ in range(ABOVE)] == [
        ShieldVerdict.NONE
    ] * ABOVE
    assert shield.count_newcomer(ABOVE, START) is ShieldVerdict.UP


def test_goes_up_soon_and_stays_while_the_flood_lasts():
    """While probing, few newcomers are let in."""
    met = flood(Shield(), rate=1000, seconds=60, from_ms=START)
    let_in = [number for number, shelter in enumerate(met) if shelter is ShieldVerdict.NONE]
    assert max(let_in) < 2 * ABOVE
    assert 0 < met.count(ShieldVerdict.PROBING) < 60_000 / PERIOD_MS * ABOVE


def test_stays_up_for_one_to_two_periods():
    for at in range(0, PERIOD_MS, 500):
        shield = raised(START + at)
        assert shield.count_newcomer(ABOVE, START + at + PERIOD_MS) is ShieldVerdict.UP
        assert shield.until_ms <= START + at + 2 * PERIOD_MS
        assert shield.count_newcomer(ABOVE, shield.until_ms) is ShieldVerdict.PROBING


def test_all_replicas_look_at_the_same_moment():
    """So does a replica without requests, because nginx serves the answer of another."""
    shields = [raised(START + at) for at in (10, 700, 3900)]
    shields.append(Shield())
    shields[-1].raise_until(shields[0].until_ms)
    looks = START - START % PERIOD_MS + 2 * PERIOD_MS
    assert [shield.count_newcomer(ABOVE, looks - 1) for shield in shields] == [ShieldVerdict.UP] * 4
    assert [shield.count_newcomer(ABOVE, looks) for shield in shields] == [
        ShieldVerdict.PROBING
    ] * 4


def test_what_another_learnt_earlier_does_not_lower_it():
    shield = raised()
    until = shield.until_ms
    shield.raise_until(until - PERIOD_MS)
    assert shield.until_ms == until


def test_looks_longer_than_nginx_keeps_the_last_answer():
    """For that long a flood may not reach the replica."""
    shield = raised()
    met = flood(shield, rate=1000, seconds=1, from_ms=shield.until_ms + BRIEF_TTL_MS)
    assert ShieldVerdict.NONE not in met
    assert met[-1] is ShieldVerdict.UP


def test_comes_down_when_few_come():
    shield = raised()
    met = flood(shield, rate=ABOVE // 4, seconds=10, from_ms=shield.until_ms)
    assert met[0] is ShieldVerdict.PROBING
    looked = met.index(ShieldVerdict.NONE)
    assert looked == -(-PROBE_MS * (ABOVE // 4) // 1000)
    assert set(met[looked:]) == {ShieldVerdict.NONE}


def test_a_clock_that_steps_back_lets_nobody_in_who_should_not():
    shield = Shield()
    for _ in range(ABOVE):
        shield.count_newcomer(ABOVE, START)
    assert shield.count_newcomer(ABOVE, START - 5000) is ShieldVerdict.UP
