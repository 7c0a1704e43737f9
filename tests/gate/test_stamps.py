"""Stamps as nginx verifies them, and nginx's keys."""

import base64
import hashlib

import pytest

from sidecar.gate.nginx_key import NginxKey, build_key_file
from sidecar.gate.stamps import Stamps
from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS

OLD, NEW = "old-secret-" * 4, "new-secret-" * 4
OLDER, NEWER = NginxKey.derive_from(OLD), NginxKey.derive_from(NEW)
ASKED = ";1790000000.999;web-1.example"


def test_a_stamp_is_what_secure_link_wants():
    """base64url of the MD5 of the line that stamp.conf writes down, without the padding."""
    until = 1790000000 + VERDICT_TTL_MS // 1000 - 1
    text = f"{until};shop;web-1.example;{NEWER.secret}"
    md5 = base64.urlsafe_b64encode(hashlib.md5(text.encode()).digest()).decode().rstrip("=")
    stamp = Stamps([OLD, NEW]).sign(NEWER.proof + ASKED, "shop")
    assert stamp == f"{md5}.{until}.{NEWER.id}"


def test_an_nginx_is_given_stamps_by_the_key_it_has():
    stamps = Stamps([OLD, NEW])
    for key in (OLDER, NEWER):
        assert stamps.sign(key.proof + ASKED, "shop").endswith(f".{key.id}")
    assert stamps.nginx_key == "known"


@pytest.mark.parametrize(
    "asked",
    ["", ";", NEWER.proof, f"{NEWER.proof};1790000000;web", f"{NEWER.proof};1790000000.999;",
     f"{NEWER.proof};9990000000000.999;web", f"{NEWER.proof};1790000000.999;we;b",
     f"{NEWER.proof};1790000000.999;web\n", f"{NEWER.proof[:-1]};1790000000.999;web"],
)  # fmt: skip
def test_an_odd_question_gets_none(asked):
    assert Stamps([NEW]).sign(asked, "shop") is None


def test_another_key_gets_none_and_is_noted():
    stamps = Stamps([NEW])
    assert stamps.sign(OLDER.proof + ASKED, "shop") is None
    assert stamps.nginx_key == "unknown"


def test_keys_say_nothing_of_each_other():
    """Neither the secret nor the proof follows from the other parts of a key."""
    parts = {OLD, NEW, *(part for key in (OLDER, NEWER) for part in (key.proof, key.secret))}
    assert len(parts) == 6
    assert all(a not in b for a in parts for b in parts if a != b)
    assert len(NEWER.secret) == 43


def test_the_key_file_has_the_newest_first_and_the_others_for_a_while():
    text = build_key_file([OLD, NEW])
    assert f'set $waitroom_proof "{NEWER.proof}";' in text
    assert text.index(NEWER.secret) < text.index(OLDER.secret)
    assert OLDER.proof not in text
    assert not {OLD, NEW} & set(text.split('"'))
