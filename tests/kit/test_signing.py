"""Our signer writes what itsdangerous would, and reads what itsdangerous wrote, so that cookies of
earlier versions verify; and it takes nothing else."""

import hashlib
import hmac
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import BadSignature, TimestampSigner
from itsdangerous.encoding import base64_decode, base64_encode

from sidecar.kit.signing import TimeSigner

ALPHABET = string.ascii_letters + string.digits + "-_~"

texts = st.text(ALPHABET, max_size=80)
keys = st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=3)
times = st.integers(min_value=1, max_value=2**40)


class Theirs(TimestampSigner):
    """The library's, at a time of ours."""

    def __init__(self, keys: list[str], salt: str, now_s: int) -> None:
        super().__init__(keys, salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)
        self._now_s = now_s

    def get_timestamp(self) -> int:
        return self._now_s


@given(keys, texts, texts, times)
def test_it_writes_what_the_library_writes(keys, salt, text, now_s):
    """Byte by byte, whatever the keys, the salt, the text and the time."""
    ours = TimeSigner(keys, salt=salt)
    assert ours.sign(text, now_s) == Theirs(keys, salt, now_s).sign(text).decode()


@given(keys, texts, texts, times)
def test_it_reads_what_the_library_wrote(keys, salt, text, now_s):
    """With any of the keys, and the time of signing with it."""
    ours = TimeSigner(keys, salt=salt)
    for key in keys:
        assert ours.unsign(Theirs([key], salt, now_s).sign(text).decode()) == (text, now_s)


@given(st.text(max_size=200))
def test_whatever_else_is_an_error_that_callers_expect(text):
    """And no other one."""
    with pytest.raises((BadSignature, ValueError)):
        TimeSigner(["key"], salt="salt").unsign(text)


def test_a_time_that_we_would_not_write_is_an_error_or_a_time():
    """Signed by ourselves, by a version that writes times in another way."""
    signer = TimeSigner(["key"], salt="salt")
    for time in (b"", b"a", b"a0nSAA", b"!", b"A" * 40):
        said = b"text." + time
        signature = base64_encode(hmac.digest(signer.keys[0], said, "sha256"))
        try:
            found = signer.unsign((said + b"." + signature).decode())
        except ValueError:
            continue
        assert found == ("text", int.from_bytes(base64_decode(time), "big"))
