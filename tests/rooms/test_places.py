"""Which class a newcomer asks for, which lot is theirs, what a ticket of a pre-queue is worth."""

import random

import pytest

from sidecar.kit.errors import StoreError
from sidecar.lottery.commitment import compute_commitment, compute_lot, derive_secret
from sidecar.lottery.service import Draws
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.rooms.places import (
    LOWEST_DRAWN_ORDER,
    add_drawn_order,
    apply_claim,
    find_lot,
    issue_ticket,
    make_hidden_order,
    read_claim,
)
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import NO_CLAIM, ClassClaim
from sidecar.visitors.grants import Grant
from sidecar.visitors.model import LOT_BITS, QueueOutcome, Standing, Ticket
from tests.support.draws import HOUR_MS, START_MS, make_event, make_ids

KEY = "k" * 32
VISITOR = "a" * 22
#: One after the other, with hours between; the second has no pre-queue.
FIRST = make_event("first")
SECOND = make_event(
    "second", prequeue_from=None, opens_at=START_MS + 5 * HOUR_MS, closes_at=START_MS + 6 * HOUR_MS
)
THIRD = make_event("third", START_MS + 9 * HOUR_MS)
SETTINGS = RoomSettings(
    total_active_users=1, events=(THIRD, FIRST, SECOND), classes={"member": {"head_start": 60}}
)
PLAIN = RoomSettings(total_active_users=1)


@pytest.fixture
def draws():
    """Return the draws of a room whose commitments are published."""
    draws = Draws("shop", [KEY], None)
    draws.record_commitments(
        {event.draw_key: draws.get_commitment(event) for event in (FIRST, THIRD)}
    )
    return draws


def lot_in(event, visitor=VISITOR):
    return compute_lot(derive_secret(KEY, "shop", event), visitor)


# Classes ----------------------------------------------------------------------------------------


def test_what_nginx_says_goes_before_what_a_grant_says():
    """Without both there is no claim. A grant with an id gives its class once, until it expires."""
    grant = Grant("member", 1_800_000_000, "order-17")
    assert read_claim(NOBODY) == NO_CLAIM
    assert read_claim(Bearer(grant=grant)) == ClassClaim("member", "order-17", 1_800_000_000_000)
    assert read_claim(Bearer(class_name="staff", grant=grant)) == ClassClaim("staff")


class Reclassifier:
    """A store that gives every call the same result, and counts the calls."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    async def reclassify(self, visitor, claim):
        self.asked.append((visitor, claim.class_name))
        if self.answer is None:
            raise StoreError("away")
        return self.answer


TICKET = Ticket(VISITOR, 7, START_MS, 0, signed_ms=START_MS)


async def test_a_class_that_is_claimed_while_waiting_is_asked_for_once():
    """The ticket then has the class, and is signed again."""
    store = Reclassifier(3)
    ticket = await apply_claim(TICKET, ClassClaim("member"), SETTINGS, store)
    assert (ticket.class_name, ticket.signed_ms, ticket.order) == ("member", 0, TICKET.order)
    assert await apply_claim(ticket, ClassClaim("member"), SETTINGS, store) is ticket
    assert store.asked == [(VISITOR, "member")]


@pytest.mark.parametrize("answer", [0, -1, -2])
async def test_a_class_that_was_not_given_is_not_noted(answer):
    """After a refusal the next poll claims the class again."""
    store = Reclassifier(answer)
    for _ in range(2):
        assert await apply_claim(TICKET, ClassClaim("member"), SETTINGS, store) is TICKET
    assert len(store.asked) == 2


async def test_the_store_is_not_asked_about_no_class_or_one_that_the_room_does_not_have():
    store = Reclassifier(None)
    for claim in (NO_CLAIM, ClassClaim("emperor")):
        assert await apply_claim(TICKET, claim, SETTINGS, store) is TICKET
    with pytest.raises(StoreError):
        await apply_claim(TICKET, ClassClaim("member"), SETTINGS, store)


@pytest.mark.parametrize("is_classed", [True, False])
def test_a_newcomers_ticket_says_the_class_that_was_given(is_classed):
    """The ticket has no drawn order, because its bearer can read it."""
    standing = Standing(
        QueueOutcome.WAITING, START_MS, order=lot_in(FIRST) - 2**53, epoch=4, is_classed=is_classed
    )
    ticket = issue_ticket(VISITOR, standing, ClassClaim("member"))
    name = "member" if is_classed else ""
    assert ticket == Ticket(VISITOR, START_MS * 1000, START_MS, 4, class_name=name)
    assert ticket.order == make_hidden_order(ticket.joined_ms)


# Lots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_ms", "event"),
    [
        (START_MS - HOUR_MS, FIRST),
        (START_MS, FIRST),
        (START_MS + HOUR_MS - 1, FIRST),
        (START_MS + HOUR_MS + 1999, FIRST),  # our clock may be ahead of the store's
        (START_MS + HOUR_MS + 2000, None),  # the next event has no pre-queue
        (START_MS + 5 * HOUR_MS + 1999, None),
        (START_MS + 5 * HOUR_MS + 2000, THIRD),
        (START_MS + 10 * HOUR_MS + 2000, None),
    ],
)
def test_a_newcomers_lot_is_that_of_the_prequeue_that_is_on_or_comes_next(draws, now_ms, event):
    """The lot names the beginning of its pre-queue."""
    found = find_lot(VISITOR, SETTINGS, draws, now_ms)
    if event is None:
        assert found is None
    else:
        assert (found.number * 2**LOT_BITS, found.begins_ms) == (lot_in(event), event.begins_ms)


def test_without_what_all_replicas_agree_on_there_is_no_lot(draws):
    """There is no lot without draws, without events, or before the commitment is published."""
    assert find_lot(VISITOR, SETTINGS, None, START_MS) is None
    assert find_lot(VISITOR, PLAIN, draws, START_MS) is None
    assert find_lot(VISITOR, SETTINGS, Draws("shop", [KEY], None), START_MS) is None


def test_lots_are_those_of_the_key_whose_commitment_was_published():
    """This holds also while keys are changed."""
    draws = Draws("shop", [KEY, "n" * 32], None)
    draws.record_commitments(
        {FIRST.draw_key: compute_commitment(derive_secret(KEY, "shop", FIRST))}
    )
    assert find_lot(VISITOR, SETTINGS, draws, START_MS).number * 2**LOT_BITS == lot_in(FIRST)


@pytest.mark.parametrize(
    ("joined_ms", "event"),
    [
        (START_MS - 1, None), (START_MS, FIRST), (START_MS + HOUR_MS - 1, FIRST),
        (START_MS + HOUR_MS, None), (START_MS + 5 * HOUR_MS - 1, None),
        (START_MS + 9 * HOUR_MS, THIRD),
    ],
)  # fmt: skip
def test_a_ticket_of_a_prequeue_is_worth_the_lot(draws, joined_ms, event):
    """This holds from the first millisecond of the pre-queue to the last, for each event."""
    ticket = Ticket(
        VISITOR, make_hidden_order(joined_ms), joined_ms, 3, signed_ms=5, class_name="member"
    )
    found = add_drawn_order(ticket, SETTINGS, draws)
    order = ticket.order if event is None else LOWEST_DRAWN_ORDER + lot_in(event)
    assert found == Ticket(VISITOR, order, joined_ms, 3, signed_ms=5, class_name="member")


def test_a_ticket_that_says_the_order_is_believed(draws):
    """Such a ticket was signed after the opening, or after an operator moved its visitor."""
    for order in (LOWEST_DRAWN_ORDER + 17, make_hidden_order(START_MS) + 1, 0):
        ticket = Ticket(VISITOR, order, START_MS, 0)
        assert add_drawn_order(ticket, SETTINGS, draws) is ticket
    hidden = Ticket(VISITOR, make_hidden_order(START_MS), START_MS, 0)
    assert add_drawn_order(hidden, SETTINGS, None) is hidden
    assert add_drawn_order(hidden, PLAIN, draws) is hidden


def test_a_lot_that_is_found_again_is_the_one_that_was_drawn(draws):
    """The newcomer's number below 1 and the ticket's order have the same bits."""
    for visitor in make_ids(random.Random(2), 1000):
        newcomer = find_lot(visitor, SETTINGS, draws, START_MS)
        assert 0 <= newcomer.number < 1
        ticket = add_drawn_order(
            Ticket(visitor, make_hidden_order(START_MS), START_MS, 0), SETTINGS, draws
        )
        assert int(float(repr(newcomer.number)) * 2**LOT_BITS) == ticket.order - LOWEST_DRAWN_ORDER
        assert LOWEST_DRAWN_ORDER <= ticket.order < LOWEST_DRAWN_ORDER + 2**LOT_BITS
        assert float(ticket.order) == ticket.order
