"""Titles that one user holds at a time, for a term. Users are processes, and all times are those of
Redis."""

import sqlite3
from itertools import pairwise

import pytest

from tests.stories import fenced
from tests.stories.preparer import PREPARES_S
from tests.support.service import Api, Service, to_ms, to_us

TERM_MS = 3000
RULES = """
[leases.title]
term = "3s"
renewable = true

[leases.document]
term = "60s"

[limits.prepare]
algorithm = "concurrency"
limit = 1
lease = "10s"
"""
USERS = 4
PREPARES_MS = 1000 * PREPARES_S


@pytest.fixture(scope="module")
def service():
    with Service(RULES) as service:
        yield service


def test_a_title_goes_to_the_next_when_the_term_ends(service):
    """The next user gets the title with the first poll at or after the end of the term. A user of
    another title gets it at once."""
    first_url, second_url = service.urls
    one = service.program("user", first_url, "title/A", "one")
    two = service.program("user", second_url, "title/A", "two")
    three = service.program("user", second_url, "title/B", "three")
    one.send("take")
    first = one.read()
    assert first["state"] == "granted"
    two.send("take")
    waited = [two.read()]
    assert (waited[0]["state"], waited[0]["position"]) == ("waiting", 1)
    three.send("take")
    other = three.read()
    assert other["state"] == "granted"
    one.kill()

    waited += two.read_until("granted")
    second = waited.pop()
    end = to_ms(first["expires_at"])
    assert end == to_ms(first["granted_at"]) + TERM_MS
    assert to_ms(second["granted_at"]) >= end
    # The last poll before the end was told to poll again at the end, and this poll took the title.
    asked = [to_ms(reply["updated_at"]) for reply in waited]
    assert {reply["state"] for reply in waited} == {"waiting"}
    assert max(asked) < end
    assert asked[-1] + 1000 * waited[-1]["refresh_after_seconds"] <= end + 10
    assert second["granted_at"] == second["updated_at"]
    assert to_ms(second["expires_at"]) == to_ms(second["granted_at"]) + TERM_MS
    assert first["fence"] < other["fence"] < second["fence"]

    # User 1 continues after a pause, and is refused because of its fencing number.
    late = Api(first_url)
    two.send("renew")
    assert two.read()["status"] == 200
    status, said = late.call("PUT", "/leases/title/A", {"holder": "one", "fence": first["fence"]})
    assert (status, said["title"]) == (409, "The lease is over")
    late.close()
    with sqlite3.connect(":memory:") as database:
        fenced.make_table(database)
        database.execute("INSERT INTO titles (name) VALUES ('A')")
        assert fenced.write(database, "A", "by user 1", first["fence"])
        assert fenced.write(database, "A", "by user 2", second["fence"])
        assert not fenced.write(database, "A", "by user 1, late", first["fence"])
        assert fenced.write(database, "A", "by user 2 again", second["fence"])
        assert database.execute("SELECT text FROM titles").fetchall() == [("by user 2 again",)]
    database.close()


def test_an_early_release_hands_over_at_the_next_poll(service):
    """The next user gets the lease before the end of the term, through another replica than the one
    that released it."""
    first_url, second_url = service.urls
    one = service.program("user", first_url, "document/A", "one")
    two = service.program("user", second_url, "document/A", "two")
    one.send("take")
    first = one.read()
    two.send("take")
    waited = [two.read()]
    assert waited[0]["state"] == "waiting"
    one.send("release")
    assert one.read() == {"status": 200, "released": True}
    api = Api(first_url)
    _, after = api.call("GET", "/leases/document/A?holder=nobody")
    api.close()
    waited += two.read_until("granted")
    second = waited.pop()
    # The document was already free when this response was made.
    assert all(to_ms(reply["updated_at"]) <= to_ms(after["updated_at"]) for reply in waited)
    assert to_ms(second["granted_at"]) < to_ms(first["expires_at"])
    assert second["fence"] > first["fence"]


def test_a_shared_preparation_holds_up_no_term(service):
    """Four users prepare one at a time. Then each takes a title of its own, at once and for the
    whole term."""
    mark = service.folder / "somebody-prepares"
    api = Api(service.urls[0])
    _, first = api.call("POST", "/limits/prepare/acquire", {"id": "first"})
    users = [
        service.program("preparer", service.urls[n % 2], f"user-{n}", mark) for n in range(USERS)
    ]
    assert {user.read()["outcome"] for user in users} == {"refused"}
    api.call("POST", "/limits/prepare/release", {"permit": first["permit"]})
    api.close()
    told = [user.read_all() for user in users]  # this fails if two users prepared at the same time
    for *_, permit, lease in told:
        assert (permit["outcome"], lease["state"]) == ("granted", "granted")
        # One time is in ms, the other in µs.
        assert to_ms(lease["granted_at"]) + 1 > to_us(permit["at"]) / 1000 + PREPARES_MS
        assert to_ms(lease["expires_at"]) == to_ms(lease["granted_at"]) + TERM_MS
    began = sorted(to_ms(permit["at"]) for *_, permit, _ in told)
    assert all(after - before >= PREPARES_MS for before, after in pairwise(began))
