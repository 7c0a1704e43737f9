"""The draw: exactly the documented HMAC, and whoever changes it afterwards is found out."""

import hashlib
import hmac
import random

import pytest
from pydantic import ValidationError

from sidecar.lottery import commitment as draws
from sidecar.lottery.commitment import (
    PublishedDraw,
    SavedDraw,
    compute_commitment,
    compute_lot,
    derive_secret,
    format_list,
    sort_by_lot,
    verify,
)
from sidecar.lottery.publication import choose_shown_draw
from sidecar.rooms.openings import RoomEvent
from sidecar.visitors.model import LOT_BITS
from tests.support.draws import HOUR_MS, START_MS, make_event, make_ids, with_places

# The lot ------------------------------------------------------------------------------------------


def test_the_lot_is_the_first_50_bits_of_the_hmac():
    """The HMAC is that of RFC 2104 over the id, with the secret as key."""
    whole = int(hmac.new(b"secret", b"visitor", hashlib.sha256).hexdigest(), 16)
    assert compute_lot("secret", "visitor") == whole >> (256 - LOT_BITS)


def test_a_double_holds_every_lot():
    """The order in Redis, lot - 2^53, gives back the smallest and the largest lot."""
    for one in (0, 1, 2**LOT_BITS - 1):
        assert int(float(one - 2**53)) + 2**53 == one


def test_a_draw_has_a_secret_of_its_own():
    """Another room, event or beginning of the pre-queue gives another secret. Another opening does
    not, so it can be moved after the commitment was published."""
    secret = derive_secret("k" * 32, "shop", make_event())
    later = make_event(begins=START_MS + 1, opens_at=START_MS + HOUR_MS)
    others = [
        derive_secret("l" * 32, "shop", make_event()),
        derive_secret("k" * 32, "hall", make_event()),
        derive_secret("k" * 32, "shop", make_event("winter")),
        derive_secret("k" * 32, "shop", later),
    ]
    assert len({secret, *others}) == 5
    assert derive_secret("k" * 32, "shop", make_event(opens_at=START_MS + HOUR_MS // 2)) == secret
    assert compute_commitment(secret) == hashlib.sha256(secret.encode()).hexdigest()


def test_of_two_equal_lots_the_id_that_sorts_first_goes_first(monkeypatch):
    """Ids sort by their bytes: -, digits, capitals, _, small letters."""
    monkeypatch.setattr(draws, "compute_lot", lambda _secret, visitor: len(visitor))
    assert sort_by_lot("s", ["b", "_", "A", "a", "-", "0", "aa"]) == [*"-0A_ab", "aa"]


# Which draw ---------------------------------------------------------------------------------------


def test_the_draw_that_is_shown_is_that_of_the_event_that_is_on():
    """Without a current event the next draw is shown, else the last. Events without a pre-queue
    have no draw."""
    first, second = make_event("one"), make_event("two", START_MS + 10 * HOUR_MS)
    plain = RoomEvent(
        name="plain", opens_at=START_MS + 5 * HOUR_MS, closes_at=START_MS + 6 * HOUR_MS
    )
    events = [second, plain, first]
    at = {
        hours: choose_shown_draw(events, START_MS + round(hours * HOUR_MS))
        for hours in (-9, 1.5, 3, 5.5, 99)
    }
    assert at == {-9: first, 1.5: first, 3: second, 5.5: second, 99: second}
    assert choose_shown_draw([plain], START_MS) is None
    assert choose_shown_draw([], START_MS) is None


def test_an_event_that_does_not_close_is_on_until_the_next_begins():
    """This holds also if the next event has no pre-queue."""
    first = make_event("one", closes_at=None)
    plain = RoomEvent(name="plain", opens_at=START_MS + 5 * HOUR_MS)
    coming = make_event("two", START_MS + 9 * HOUR_MS)
    events = [first, plain, coming]
    assert choose_shown_draw(events, START_MS + 4 * HOUR_MS) == first
    assert choose_shown_draw(events, START_MS + 6 * HOUR_MS) == coming
    assert first.draw_key != make_event("one", START_MS + 1).draw_key


# The check ----------------------------------------------------------------------------------------

SECRET = "5e" * 32


def published(ids: list[str], **more) -> PublishedDraw:
    """Return the data that a correct room publishes about these visitors."""
    right = sort_by_lot(SECRET, ids)
    said = {
        "room": "shop",
        "event": "autumn",
        "revealed_at": "2027-01-15T08:00:03.000+00:00",
        "commitment": compute_commitment(SECRET),
        "secret": SECRET,
        "count": len(ids),
        "places_sha256": hashlib.sha256(format_list(right)).hexdigest(),
    }
    return PublishedDraw(**{**said, **more})


@pytest.fixture(scope="module")
def ids():
    return sort_by_lot(SECRET, make_ids(random.Random(1), 500))


def wrong(checks) -> dict[str, str]:
    return {check.subject: check.explanation for check in checks if not check.is_passed}


def test_a_draw_that_is_right_passes(ids):
    """The order of the rows does not matter. Noted values and any visitor of the list pass too."""
    draw, rows = published(ids), with_places(ids)
    random.Random(2).shuffle(rows)
    checks = verify(
        draw, rows, commitment=draw.commitment.upper(), digest=draw.places_sha256, visitor=ids[6]
    )
    assert wrong(checks) == {}
    said = [check.subject for check in checks]
    assert said == [
        "secret", "commitment", "ids", "places", "lots", "count", "list", "list", "visitor"
    ]  # fmt: skip
    assert f"{ids[6]} has place 7 of 500" in checks[-1].explanation


def test_a_draw_of_nobody_passes():
    """A pre-queue without visitors has a valid draw."""
    assert wrong(verify(published([]), [])) == {}


def test_a_changed_secret_is_found(ids):
    """A changed secret does not fit the commitment, and a changed commitment is not the noted
    one."""
    rows, other = with_places(ids), "5f" * 32
    found = wrong(verify(published(ids, secret=other), rows))
    assert {"secret", "lots"} <= set(found)
    draw = published(ids, secret=other, commitment=compute_commitment(other))
    assert set(wrong(verify(draw, rows))) == {"lots"}
    drawn_again = with_places(sort_by_lot(other, ids))
    noted = published(ids).commitment
    assert "commitment" in wrong(verify(draw, drawn_again, commitment=noted))


def test_an_id_that_was_added_is_found(ids):
    """An added id at a wrong place is found by the lots, at its right place by the count and the
    SHA-256, and if those were forged too, by the noted SHA-256."""
    draw, new = published(ids), make_ids(random.Random(3), 1)[0]
    pushed = with_places([new, *ids])
    assert wrong(verify(draw, pushed))["lots"] == (
        f"place 1 is listed as {new}'s; by the lots it is {ids[0]}'s"
    )
    fitted = sort_by_lot(SECRET, [*ids, new])
    assert set(wrong(verify(draw, with_places(fitted)))) == {"count", "list"}
    forged = verify(published(fitted), with_places(fitted), digest=draw.places_sha256)
    assert set(wrong(forged)) == {"list"}


def test_an_id_that_was_removed_is_found(ids):
    """A removed id leaves a gap. If the others moved up, the count and the SHA-256 show it."""
    draw, rows = published(ids), with_places(ids)
    gap = wrong(verify(draw, rows[:99] + rows[100:]))
    assert gap["places"] == f"place 101 ({ids[100]}) comes where 100 should"
    assert set(wrong(verify(draw, with_places(ids[:99] + ids[100:])))) == {"count", "list"}


def test_two_ids_that_were_swapped_are_found(ids):
    """Even neighbours are found by the lots, also if the SHA-256 was forged to fit."""
    swapped = [*ids[:9], ids[10], ids[9], *ids[11:]]
    said = f"place 10 is listed as {ids[10]}'s; by the lots it is {ids[9]}'s"
    assert wrong(verify(published(ids), with_places(swapped)))["lots"] == said
    forged = published(ids, places_sha256=hashlib.sha256(format_list(swapped)).hexdigest())
    assert wrong(verify(forged, with_places(swapped))) == {"lots": said}


def test_a_changed_place_is_found(ids):
    """A place that is listed twice, is below 1, or belongs to an id with another place is found."""
    draw, rows = published(ids), with_places(ids)
    twice = [*rows[:5], (rows[5][0], 5), *rows[6:]]
    assert wrong(verify(draw, twice))["places"] == f"place 5 ({ids[5]}) is there twice"
    for low in (0, -1):
        found = wrong(verify(draw, [(ids[0], low), *rows[1:]]))
        assert found["places"] == f"place {low} ({ids[0]}) is below 1, and the first place is 1"
    again = [*rows, (ids[0], 501)]
    assert wrong(verify(draw, again))["ids"] == f"place 501: {ids[0]} has place 1 already"


def test_what_is_no_id_is_found(ids):
    """Otherwise two lists could look the same because of a line break in an id."""
    odd = f"{ids[1]}\n3 {ids[2]}"
    found = wrong(verify(published(ids), with_places([ids[0], odd, *ids[3:]])))
    assert found["ids"].startswith("place 2: ")


@pytest.mark.parametrize("odd", ["", "\x1b[2J", "\ud800", "a\nb", "a b", "\u202e", "é", "x" * 65])
def test_what_would_speak_to_a_terminal_is_not_read(ids, odd):
    """Strings that are printed cannot contain control sequences."""
    said = published(ids[:1]).model_dump()
    row = {"draw": said, "places": [(odd, 1)]}
    fields = ("room", "event", "revealed_at", "store_emptied_at", "commitment", "secret")
    drawn = [{"draw": {**said, name: odd}, "places": []} for name in fields]
    for document in (row, *drawn):
        with pytest.raises(ValidationError):
            SavedDraw.model_validate(document)
    assert SavedDraw.model_validate({"draw": said, "places": [(ids[0], 1)]}).places == [(ids[0], 1)]


def test_what_was_not_published_is_not_right(ids):
    """A missing count or SHA-256, and a visitor who is not in the list, fail the check."""
    draw = published(ids, count=None, places_sha256=None)
    found = wrong(verify(draw, with_places(ids), visitor="x" * 22))
    assert set(found) == {"count", "list", "visitor"}


def test_before_the_opening_only_what_was_noted_is_checked(ids):
    """Without the secret only the noted commitment can be checked."""
    draw = published(ids, secret=None)
    assert verify(draw, []) == []
    assert wrong(verify(draw, [], commitment="0" * 64)).keys() == {"commitment"}
