"""The headers of W3C Trace Context (traceparent, tracestate), as the Recommendation reads them."""

import pytest
from multidict import CIMultiDict

from sidecar.kit.trace_context import read_trace_context

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


def read(*headers: tuple[str, str]) -> dict[str, str]:
    return read_trace_context(CIMultiDict(headers))


@pytest.mark.parametrize("value", [VALID, f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-ff"])
def test_a_valid_traceparent_stays_as_it_is(value):
    assert (
        read(("Traceparent", value))
        == read(("traceparent", f" {value}\t"))
        == {"traceparent": value}
    )


@pytest.mark.parametrize(
    "value",
    [
        "", "x", TRACE, f"00-{TRACE}-{PARENT}", f"{VALID}-", f"{VALID}-more", f"{VALID}0",
        f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT.upper()}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g", f"00_{TRACE}_{PARENT}_01", f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-1", f"cc-{TRACE}-{PARENT}-01.more", f"cc-{TRACE}-{PARENT}",
        f"{VALID},{VALID}", "é" * 55,
    ],
)  # fmt: skip
def test_a_malformed_traceparent_is_dropped(value):
    """And with it the tracestate, which must not be read without it."""
    assert read(("traceparent", value), ("tracestate", "a=1")) == {}


def test_two_traceparents_are_none():
    assert read(("traceparent", VALID), ("traceparent", VALID)) == {}


@pytest.mark.parametrize(
    ("flags", "sent"), [("01", "01"), ("00", "00"), ("ff", "01"), ("02-new-part", "00")]
)
def test_a_later_version_is_sent_on_as_the_version_that_is_known(flags, sent):
    """With what is known of it: the ids, and whether the trace is sampled."""
    assert read(("traceparent", f"cc-{TRACE}-{PARENT}-{flags}")) == {
        "traceparent": f"00-{TRACE}-{PARENT}-{sent}"
    }


@pytest.mark.parametrize(
    ("states", "sent"),
    [
        (["a=1"], "a=1"),
        (["a=1,b=2", "c=3"], "a=1,b=2,c=3"),  # several headers are one list
        (["a=1 ,\tb=2,,"], "a=1 ,\tb=2,,"),  # empty members are allowed
        (["0tenant@system=a b!~"], "0tenant@system=a b!~"),
        ([",".join(f"k{n}={n}" for n in range(32))], ",".join(f"k{n}={n}" for n in range(32))),
        ([f"a={'x' * 256}"], f"a={'x' * 256}"),
        (["a=1,a=2"], None),  # a key comes once
        ([",".join(f"k{n}={n}" for n in range(33))], None),
        ([f"a={'x' * 257}"], None),
        ([f"a={'x' * 256},b={'x' * 256}"], None),  # more than 512 characters
        (["A=1"], None),
        (["a"], None),
        (["a="], None),
        (["a=b=c"], None),
        (["a=é"], None),
        ([""], None),
    ],
)
def test_a_tracestate_is_kept_whole_or_dropped(states, sent):
    """Without it the traceparent is as good as before."""
    found = read(("traceparent", VALID), *(("tracestate", state) for state in states))
    assert found.pop("traceparent") == VALID
    assert found.get("tracestate") == sent
