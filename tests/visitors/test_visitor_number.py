"""The visitor number: what somebody reads out on the telephone, and what it finds."""

import re

import pytest

from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.visitor_number import NUMBER, get_id_prefix, read_number, visitor_number

ID = "hQmVzkXy3c1tA9bWn0Lr-Q"


def test_a_number_leads_back_to_the_beginning_of_the_id():
    """The number of any id leads back to the id's beginning."""
    for visitor in [ID, "_" * 22, "A" * 22, "--" + "z" * 20, *(new_visitor() for _ in range(500))]:
        number = visitor_number(visitor)
        assert re.fullmatch(NUMBER, number)
        assert read_number(number) == number
        assert get_id_prefix(number) == visitor[:6]


def test_a_number_has_forty_bits():
    """The 41st makes no difference, the 40th does: so four characters may come seventh."""
    alike = [ID[:6] + seventh + ID[7:] for seventh in "UVWX"]
    assert {visitor_number(visitor) for visitor in alike} == {visitor_number(alike[0])}
    assert visitor_number(ID[:6] + "Y" + ID[7:]) != visitor_number(alike[0])


@pytest.mark.parametrize(
    ("typed", "number"),
    [("7K2Q-9XDM", "7K2Q-9XDM"), ("7k2q9xdm", "7K2Q-9XDM"), ("iIlL-oO00", "1111-0000")],
)
def test_a_number_is_read_as_people_write_it(typed, number):
    """A number is read in any case, without the hyphen, and with letters that look like digits."""
    assert read_number(typed) == number


@pytest.mark.parametrize(
    "typed",
    ["", "7K2Q-9XD", "7K2Q-9XDMM", "7K2-Q9XDM", "7K2Q--9XDM", "7U2Q-9XDM", "7K2Q-9XDM\n", ID],
)
def test_what_is_no_number(typed):
    """U is no digit, and an id is no number."""
    assert read_number(typed) is None
