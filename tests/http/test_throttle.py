"""How often an address may guess a token: by address, for a minute, in bounded memory."""

import pytest

from sidecar.http.auth.throttle import FAILURES_S, MAX_ADDRESSES, MAX_FAILURES, Throttle

HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def now():
    return [1000.0]


@pytest.fixture
def throttle(now):
    return Throttle(lambda: now[0])


def guess(throttle: Throttle, address: str | None, times: int = MAX_FAILURES) -> None:
    for _ in range(times):
        throttle.count_wrong(address)


def test_an_address_is_refused_for_the_rest_of_the_minute(throttle, now):
    """From the tenth wrong token on; nobody else is."""
    guess(throttle, HERE, MAX_FAILURES - 1)
    assert throttle.refused_s(HERE) == 0
    now[0] += 20
    throttle.count_wrong(HERE)
    assert (throttle.refused_s(HERE), throttle.refused_s(THERE)) == (FAILURES_S - 20, 0)
    now[0] += FAILURES_S - 20
    assert throttle.refused_s(HERE) == 0
    guess(throttle, HERE, MAX_FAILURES - 1)
    assert throttle.refused_s(HERE) == 0


@pytest.mark.parametrize(
    ("one", "other"), [("2001:db8::1", "2001:db8::2:3"), ("::ffff:192.0.2.1", HERE), (None, "")]
)
def test_who_is_one_address(throttle, one, other):
    """An IPv6 network of 64 bits, IPv4 within IPv6, and whoever comes by a unix socket."""
    guess(throttle, one)
    assert throttle.refused_s(other) > 0
    assert throttle.refused_s("2001:db8:0:1::1") == 0


def test_memory_is_bounded(throttle, now):
    """Addresses beyond share one record, so that who has many has no more guesses by it; they are
    forgotten after their minute."""
    for number in range(MAX_ADDRESSES):
        throttle.count_wrong(f"10.0.{number >> 8}.{number & 255}")
    assert throttle.refused_s(THERE) == 0
    for number in range(MAX_FAILURES):
        throttle.count_wrong(f"172.16.0.{number}")
    assert throttle.refused_s(THERE) > 0
    assert throttle.refused_s("10.0.0.1") == 0
    assert len(throttle._failures) <= MAX_ADDRESSES + 1
    now[0] += FAILURES_S
    assert throttle.refused_s(THERE) == 0
    throttle.count_wrong(THERE)
    assert len(throttle._failures) == 1


def test_a_clock_that_is_put_back_locks_nobody_out(throttle, now):
    guess(throttle, HERE)
    now[0] -= 1_000
    assert throttle.refused_s(HERE) == 0
