"""The bases of requests and replies: what they take, and that they can always be written."""

import json
from typing import Annotated, Any

import pytest
from pydantic import Field

from sidecar.http.models import Parameters, Reply, read
from sidecar.kit.errors import InputError


class Page(Parameters):
    room: str = ""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: Annotated[int, Field(ge=0, le=9)] | None = None


class Document(Reply):
    name: str
    others: dict[str, Any]


@pytest.mark.parametrize(
    "text", ["1_0", " 5 ", "+5", "5.0", "5\n", "-5", "\u0665", "1e2", "0x5", "", " "]
)
@pytest.mark.parametrize("field", ["limit", "after"])
def test_a_number_is_ascii_digits(field, text):
    """Nothing else that Python would read as one; the problem names the parameter."""
    with pytest.raises(InputError, match=rf"^{field}: a whole number from \d to \d+ \(got '") as e:
        read(Page, {field: text}, from_text=True)
    assert len(e.value.problems) == 1


def test_digits_are_a_number_and_text_stays_text():
    """Zeros before it change nothing; a name may look like a number."""
    page = read(Page, {"room": " 1_0 ", "limit": "007", "after": "9"}, from_text=True)
    assert (page.room, page.limit, page.after) == (" 1_0 ", 7, 9)


@pytest.mark.parametrize("name", ["\ud800", "a\udc80b"])
def test_a_reply_with_text_that_is_no_utf_8_is_written(name):
    """Half of a surrogate pair, of a client's JSON or of a header's bytes, in a value or a name."""
    reply = Document(name="é", others={}).model_copy(
        update={"name": name, "others": {name: [name], "n": 1}}
    )
    body = reply.response().body
    assert json.loads(body) == {"name": name, "others": {name: [name], "n": 1}}
