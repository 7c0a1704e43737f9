"""The header Idempotency-Key, as clients and libraries send it."""

import pytest
from multidict import CIMultiDict

from sidecar.http.idempotency_key import read_idempotency_key
from sidecar.kit.errors import InputError


def read(*sent: str, body: str | None = None) -> str | None:
    headers = CIMultiDict(("Idempotency-Key", value) for value in sent)
    return read_idempotency_key(headers, body, member="id", pattern=r"[!-~]{1,8}", hint="1 to 8")


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ('"order-17"', "order-17"),  # a string of structured fields, as the draft says
        ("order-17", "order-17"),  # as most clients send it
        (' "a" ', "a"),
        (r'"a\"b\\c"', r'a"b\c'),
        ('a"b', 'a"b'),
    ],
)
def test_a_key_is_quoted_or_plain(sent, key):
    """Both are the same key, also beside the same in the body."""
    assert read(sent) == read(sent, body=key) == key


@pytest.mark.parametrize(
    "sent", ["", '""', '"a', '"a"b"', r'"a\b"', '"a";n=1', "a b", '"a b"', "é", "x" * 9, '"\x01"']
)
def test_a_key_that_is_malformed_is_refused(sent):
    with pytest.raises(InputError) as raised:
        read(sent)
    assert raised.value.problems == [f"Idempotency-Key: 1 to 8 (got {sent[:40]!r})"]


def test_two_keys_are_refused():
    """Whether they come in two headers, or in the header and in the body."""
    with pytest.raises(InputError, match="Idempotency-Key: is there twice"):
        read("a", "b")
    with pytest.raises(InputError, match=r"id: 'b', and the header Idempotency-Key is 'a'"):
        read("a", body="b")


def test_without_the_header_the_body_decides():
    assert (read(), read(body="a")) == (None, "a")
