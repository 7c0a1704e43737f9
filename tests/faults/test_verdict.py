"""The verdict must be able to fail: diaries made up to hold each thing that must not be."""

from random import Random

import pytest

from tests.faults.diary import PASS, TICKET, Diary, Entry, Token, read_token
from tests.faults.verdict import Call, Evidence, Excuse, inversions, judge, overtaking
from tests.faults.visitors import Plan, Visitor
from tests.support.tokens import signed_pass, signed_ticket


def entry(at, state, token=None, *, what="status", status=200, **more):
    return Entry(what, at, at + 0.01, status=status, state=state, token=token, refresh_s=2, **more)


def line(name, order, *, waits=(), called=None):
    """Somebody who waits at these moments and is inside from `called` on."""
    ticket, pass_ = Token(TICKET, name, order), Token(PASS, name, order)
    diary = Diary(name, [entry(at, "waiting", ticket) for at in waits])
    if called is not None:
        diary.entries.append(entry(called, "admitted", pass_))
        diary.entries.append(entry(called + 1, "admitted", pass_, what="page"))
    return diary


def verdict(*diaries, cap=10, **more):
    return judge(Evidence(diaries, cap, **more))


def test_what_is_as_it_should_be():
    diaries = [line("a", 1, waits=(0, 2, 4), called=6), line("b", 2, waits=(1, 3, 5), called=7)]
    origin = [(7, "a"), (9, "a"), (8, "b")]
    found = verdict(*diaries, calls=[Call(5, "a"), Call(6, "b")], origin=origin)
    assert found.problems() == []
    assert (found.requests, found.peak, found.recover_s) == (10, 2, 0)


def test_a_failure():
    diary = line("a", 1, waits=(0,))
    diary.entries.append(entry(2, "", status=502))
    diary.entries.append(Entry("status", 3, 8, error="TimeoutError()"))
    diary.entries.append(entry(9, "", status=503, ours=True))
    away = Excuse(begin=8.5, end=10, status=503)
    assert len(verdict(diary, excuses=[away]).failures) == 2
    assert len(verdict(diary).failures) == 3
    assert len(verdict(diary, excuses=[Excuse(0, 8, 503)]).failures) == 3


def test_a_lost_place():
    other_order = line("a", 1, waits=(0, 2))
    other_order.entries.append(entry(4, "waiting", Token(TICKET, "a", 5)))
    nobody = line("b", 2, waits=(0, 2))
    nobody.entries.append(entry(4, "not_queued", Token(TICKET, "b", 2)))
    somebody_else = line("c", 3, waits=(0, 2))
    somebody_else.entries.append(entry(4, "waiting", Token(TICKET, "d", 3)))
    for diary in (other_order, nobody, somebody_else):
        assert len(verdict(diary).lost) == 1, diary.name


def test_a_lost_session():
    diary = line("a", 1, called=0)
    diary.entries.append(entry(5, "waiting", Token(TICKET, "a", 1), what="page", status=202))
    assert len(verdict(diary).lost) == 1
    left = line("a", 1, called=0)
    left.entries.append(entry(5, "not_queued", Token(PASS, "a", 1), what="leave"))
    assert verdict(left).lost == []


def test_an_inversion():
    """b was called 3 s before a, whose refresh is 2 s; c within the refresh."""
    a = line("a", 1, waits=(0, 2, 4, 6, 8, 10), called=11)
    b, c = line("b", 2, waits=(1, 3), called=8), line("c", 3, waits=(1, 3), called=11)
    calls = [Call(10.5, "a"), Call(7, "b"), Call(9, "c")]
    assert len(inversions([a, b, c], calls)) == 1
    assert "b (2)" in inversions([a, b, c], calls)[0]
    assert inversions([a, c], calls) == []
    assert len(inversions([a, c], calls, tolerance=0)) == 1
    # Without the store's events: what a was told, and when b came in.
    assert len(inversions([a, b], [])) == 0  # 8.01 is not before 10 - 2
    assert len(inversions([line("a", 1, waits=range(0, 14, 2)), b], [])) == 1


def test_a_call_that_the_store_forgot():
    """It was emptied between the call of a and a's next poll: b, who came in after that call,
    overtook nobody; c, who was called before a was called again, did."""
    a = line("a", 1, waits=(0, 2, 4, 6, 8, 10), called=11)
    calls = [Call(3, "a"), Call(3.5, "b"), Call(10.5, "a")]
    assert inversions([a, line("b", 2, waits=(1,), called=3.6)], calls) == []
    calls.append(Call(6, "c"))
    assert len(inversions([a, line("c", 3, waits=(1,), called=7)], calls)) == 1


def test_who_was_silent_is_not_overtaken():
    a = line("a", 1, waits=(0, 2, 60, 62), called=63)
    b = line("b", 2, waits=(1, 3), called=20)
    assert inversions([a, b], [Call(62.5, "a"), Call(19, "b")]) == []


def of_an_outage(*called, newcomers=()):
    """a, b and c wait in this order; the outage lasts from 10 to 70."""
    diaries = [line(name, n, waits=(0, 2, 80)) for n, name in enumerate("abc", 1)]
    diaries += [line(name, 9, waits=(72,)) for name in newcomers]
    calls = [Call(70.5 + n, name) for n, name in enumerate(called)]
    return overtaking(diaries, [Call(5, "z"), *calls], broken=10, mended=70)


@pytest.mark.parametrize(
    ("called", "newcomers", "people", "worst", "by_newcomers", "problem"),
    [
        ("abcd", "d", 0, 0, 0, ""),
        ("a", "", 0, 0, 0, ""),
        ("cba", "", 2, 2, 0, "2 overtaken by people behind, by 2 at worst"),
        # a was never called.
        ("b", "", 1, 1, 0, "1 overtaken by people behind, by 1 at worst"),
        ("adb", "d", 0, 0, 2, "2 overtaken by newcomers"),
        # The last call of a counts: it led inside.
        ("aba", "", 1, 1, 0, "1 overtaken by people behind, by 1 at worst"),
        ("", "", 0, 0, 0, "nobody who had waited was called after the outage"),
    ],
)
def test_an_outage_is_judged_by_the_order_of_calls(
    called, newcomers, people, worst, by_newcomers, problem
):
    found = of_an_outage(*called, newcomers=newcomers)
    assert (found.people, found.worst, found.by_newcomers) == (people, worst, by_newcomers)
    assert found.problems() == ([problem] if problem else [])
    assert found.first_call_s == (0.5 if called else None)
    assert found.called == len({*called} & {*"abc"})


@pytest.mark.parametrize(
    ("status", "retry_after_s", "failures", "low", "high"),
    [
        (503, 0, 1, 2, 4), (0, 0, 3, 2, 16), (503, 0, 9, 2, 60),
        (503, 30, 1, 30, 30), (429, 7, 0, 7, 7.35), (429, 0, 0, 10, 10.5),
    ],
)  # fmt: skip
def test_a_page_backs_off_as_the_script_does(status, retry_after_s, failures, low, high):
    failed = Entry("status", 0, 1, status=status, retry_after_s=retry_after_s)
    visitor = Visitor("http://127.0.0.1", "shop", Plan(backs_off=True), Diary("v"), Random(1))
    waits = [visitor._back_off_s(failed, failures) for _ in range(1000)]
    assert low <= min(waits) <= low + 0.2
    assert high - 0.2 <= max(waits) <= high


def test_an_overshoot():
    diaries = [line(name, 1, called=0) for name in "abc"]
    together = [(at, name) for at in (1, 5) for name in "abc"]
    assert verdict(*diaries, cap=2, origin=together).problems() == ["3 inside at once, cap 2"]
    apart = [(at + 10 * i, name) for at in (1, 5) for i, name in enumerate("abc")]
    assert verdict(*diaries, cap=2, origin=apart).problems() == []
    assert verdict(*diaries, cap=2, sessions=[2, 3]).problems() == ["3 sessions, cap 2"]


def test_who_was_sent_out_was_not_inside_meanwhile():
    a, b = line("a", 1, called=0), line("b", 2, called=5)
    a.entries.append(entry(3, "waiting", Token(TICKET, "a", 1)))
    origin = [(0, "a"), (2, "a"), (9, "a"), (4, "b"), (8, "b")]
    assert verdict(a, b, cap=1, origin=origin).peak == 1


def test_the_time_to_recover():
    diary = line("a", 1, waits=(0, 2))
    diary.entries.append(entry(4, "waiting", Token(TICKET, "a", 1), paused=True))
    diary.entries.append(entry(6, "waiting", Token(TICKET, "a", 1)))
    found = verdict(diary, broken=3, mended=3.5)
    assert round(found.recover_s, 2) == 0.51


def test_nobody_asked():
    assert verdict().problems() == ["nobody asked for anything"]


def test_the_cookie_can_be_read_without_its_key():
    token = read_token(signed_ticket("shop"))
    assert token.kind == TICKET
    assert len(token.visitor) == 22
    assert token.order > 10**15
    token = read_token(signed_pass("shop"))
    assert (token.kind, token.renewed_ms > 10**12) == (PASS, True)
    assert read_token("x~y") is None
    assert read_token("") is None
