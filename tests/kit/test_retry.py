"""Exponential backoff."""

from sidecar.kit.retry import Backoff


def test_a_delay_grows_by_its_factor_up_to_its_maximum():
    """After the first failure it is the first; any number of failures has a delay."""
    backoff = Backoff(0.5, 10, factor=3)
    assert [backoff.delay_s(failures) for failures in (0, 1, 2, 3, 4)] == [0.5, 0.5, 1.5, 4.5, 10]
    assert backoff.delay_s(10**9) == 10


def test_jitter_makes_a_delay_shorter_by_its_share_at_most():
    """Also the longest one."""
    backoff = Backoff(1, 4, jitter=0.25)
    assert (backoff.delay_s(9, lambda: 0), backoff.delay_s(9, lambda: 1)) == (4, 3)
    assert {0.75 <= backoff.delay_s(1) <= 1 for _ in range(100)} == {True}
