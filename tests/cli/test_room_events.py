"""`waitroom rooms events` and what check-config says of events, run as their user runs them."""

import re

import pytest

CONFIG = """
[rooms.plain]
total_active_users = 1

[rooms.shop]
total_active_users = 2
between_events = "open"
events = [{{ name = "gala", opens_at = 2150-06-01 10:00:00, closes_at = "2150-06-01 12:00" }}]

[rooms.tickets]
total_active_users = 1200
message = "Soon."

[[rooms.tickets.events]]
name = "sale"
timezone = "Europe/Zurich"
prequeue_from = "2150-06-01 09:30"
opens_at = 2150-06-01T10:00:00
closes_at = "2150-06-01 18:00"
new_users_per_minute = 6000

[[rooms.tickets.events]]
name = "rest"
opens_at = 2150-06-02T00:00:00Z
total_active_users = 0

[[rooms.tickets.events]]
name = "last"
opens_at = "2150-06-03 00:00"

[[rooms.tickets.events]]
name = "past"
timezone = "America/New_York"
opens_at = "2001-01-01 00:00"
closes_at = "2001-01-02 00:00"
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory, start_replica):
    with start_replica(tmp_path_factory.mktemp("waitroom"), CONFIG) as file:
        yield file


def test_check_config_tells_when_events_are(run):
    """check-config has a line for each event, with its times, and for each warning."""
    done = run("check-config")
    assert (done.exit_code, done.stderr) == (0, "")
    gala = (
        "shop: gala: opens Mon 2150-06-01 10:00:00 UTC, ends Mon 2150-06-01 12:00:00 UTC (UTC); "
        "opens in N"
    )
    past = (
        "tickets: past: opens Mon 2001-01-01 00:00:00 -05:00, "
        "closes Tue 2001-01-02 00:00:00 -05:00 (America/New_York); opens N ago"
    )
    sale = (
        "tickets: sale: pre-queue from Mon 2150-06-01 09:30:00 +02:00, opens Mon 2150-06-01 "
        "10:00:00 +02:00, closes Mon 2150-06-01 18:00:00 +02:00 (Europe/Zurich); opens in N"
    )
    lines = re.sub(r"\d+ d \d+ h", "N", done.stdout).splitlines()
    assert [line for line in lines if not line.startswith("warning: store:")] == [
        "The configuration is right: 3 room(s), plain, shop, tickets.",
        gala,
        past,
        sale,
        "tickets: rest: opens Tue 2150-06-02 00:00:00 UTC (UTC); opens in N",
        "tickets: last: opens Wed 2150-06-03 00:00:00 UTC (UTC); opens in N",
        "tickets: warning: past: is over",
        "tickets: warning: rest: total_active_users is 0, so nobody is let in",
    ]


def test_a_rooms_events_are_shown(run):
    """The state at a time is shown, then the steps of each event in two time zones."""
    done = run("rooms", "events", "tickets", "--at", "2150-06-01T10:05+02:00")
    assert (done.exit_code, done.stderr) == (0, "")
    shown = re.sub(r"\d+ d \d+ h", "N", done.stdout)
    assert (
        shown
        == """\
tickets at Mon 2150-06-01 08:05:00 UTC
  open, sale; next is rest
  1,200 inside at most, 6,000 a minute, message: Soon.

past (America/New_York): over
  closed until    Mon 2001-01-01 00:00:00 -05:00   Mon 2001-01-01 05:00:00 UTC   N ago
  opens           Mon 2001-01-01 00:00:00 -05:00   Mon 2001-01-01 05:00:00 UTC   N ago
  closes          Tue 2001-01-02 00:00:00 -05:00   Tue 2001-01-02 05:00:00 UTC   N ago
  while it is open: 1,200 inside at most, as fast as slots come free, message: Soon.

sale (Europe/Zurich): open
  closed until    Mon 2150-06-01 09:30:00 +02:00   Mon 2150-06-01 07:30:00 UTC   in N
  pre-queue from  Mon 2150-06-01 09:30:00 +02:00   Mon 2150-06-01 07:30:00 UTC   in N
  opens           Mon 2150-06-01 10:00:00 +02:00   Mon 2150-06-01 08:00:00 UTC   in N
  closes          Mon 2150-06-01 18:00:00 +02:00   Mon 2150-06-01 16:00:00 UTC   in N
  while it is open: 1,200 inside at most, 6,000 a minute, message: Soon.

rest (UTC): to come
  closed until    Tue 2150-06-02 00:00:00 UTC   in N
  opens           Tue 2150-06-02 00:00:00 UTC   in N
  stays open until last begins
  while it is open: 0 inside at most, as fast as slots come free, message: Soon.

last (UTC): to come
  open until      Wed 2150-06-03 00:00:00 UTC   in N
  opens           Wed 2150-06-03 00:00:00 UTC   in N
  stays open
  while it is open: 1,200 inside at most, as fast as slots come free, message: Soon.

warning: past: is over
warning: rest: total_active_users is 0, so nobody is let in
"""
    )


def test_a_room_without_events_says_so(run):
    """A room without events is open."""
    done = run("rooms", "events", "plain")
    assert done.exit_code == 0
    now, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"plain at [A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", now)
    assert lines == [
        "  open",
        "  1 inside at most, as fast as slots come free, no message",
        "",
        "It has no events.",
    ]


def test_a_mistake_is_named(run):
    """A time without an offset exits 2 and says so."""
    done = run("rooms", "events", "tickets", "--at", "2150-06-01 10:05")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "at: give the offset too" in done.stderr
