"""Grants: what is signed, what is believed, and where one is found."""

import hashlib
import hmac
import json

import pytest

from sidecar.kit.errors import InputError
from sidecar.settings.load import load
from sidecar.settings.model import DEMO_SECRET
from sidecar.visitors import grants
from sidecar.visitors.grants import (
    MAX_LENGTH,
    Grant,
    GrantError,
    Grants,
    compute_expiry_s,
    find_grant,
)

OLD, KEY = "o" * 32, "key of thirty-two letters or more"
NOW_MS = 1_800_000_000_000
ENDS_S = NOW_MS // 1000 + 60
GRANT = Grant("vip", ENDS_S, "order-17")
SHOP = Grants("shop", [OLD, KEY])


def doubt(text: str, *, grants: Grants = SHOP, now_ms: int = NOW_MS) -> str:
    """Why it is not believed; "" where it is."""
    try:
        grants.read(text, now_ms)
    except GrantError as error:
        return error.reason
    return ""


# What is signed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grant",
    [GRANT, Grant("vip", ENDS_S), Grant("a" * 32, 10**11 - 1, "-_Zz09" * 10), Grant("0-_", ENDS_S)],
)
def test_what_was_signed_is_read(grant):
    """The longest and the shortest too."""
    text = Grants("shop", [KEY]).sign(grant)
    assert SHOP.read(text, NOW_MS) == grant
    assert len(text) <= MAX_LENGTH


def test_it_is_the_documented_hmac():
    """Written out here by itself: other people's servers sign so."""
    said = f"waitroom-grant:room:shop:vip:{ENDS_S}:order-17"
    digest = hmac.new(KEY.encode(), said.encode(), hashlib.sha256).hexdigest()
    assert SHOP.sign(GRANT) == f"vip.{ENDS_S}.order-17.{digest}"


@pytest.mark.parametrize("class_name", ["", "Vip", "-vip", "v.i.p", "v" * 33, "vip\n", "ví"])
def test_no_other_class_is_signed(class_name):
    """What no class can be called would never be believed."""
    with pytest.raises(InputError, match="is no class's name"):
        SHOP.sign(Grant(class_name, ENDS_S))


@pytest.mark.parametrize("id_", ["a.b", "a b", "ä", "a" * 65, "a\n", "a:b"])
def test_no_other_id_is_signed(id_):
    """An id that would run into other fields, or not fit an address, is refused."""
    with pytest.raises(InputError, match="id: letters, digits, - and _, 64 at most"):
        SHOP.sign(Grant("vip", ENDS_S, id_))


def test_an_end_is_near():
    """A grant ends after now, at a whole second, and within 366 days."""
    assert compute_expiry_s(0.5, NOW_MS) == NOW_MS // 1000 + 1
    assert compute_expiry_s(60, NOW_MS + 1) == ENDS_S + 1
    assert compute_expiry_s(366 * 86_400, NOW_MS) == NOW_MS // 1000 + 366 * 86_400
    for life_s in (0, -1, 366 * 86_400 + 1, float("inf"), float("nan"), 10**400):
        with pytest.raises(InputError, match="after now, and within 366 days"):
            compute_expiry_s(life_s, NOW_MS)


def test_ids_are_new():
    """No two ids are the same, and each can be signed."""
    ids = {grants.new_grant_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(SHOP.read(SHOP.sign(Grant("vip", ENDS_S, id_)), NOW_MS).id == id_ for id_ in ids)


# What is believed --------------------------------------------------------------------------------


def test_every_key_verifies_and_the_last_signs():
    """So a key is changed without a grant becoming worthless."""
    before, after = Grants("shop", [OLD]), Grants("shop", [KEY])
    assert SHOP.read(before.sign(GRANT), NOW_MS) == GRANT
    assert after.read(SHOP.sign(GRANT), NOW_MS) == GRANT
    assert doubt(SHOP.sign(GRANT), grants=before) == "forged"
    assert doubt(SHOP.sign(GRANT), grants=Grants("shop", [])) == "forged"


def test_a_grant_is_of_one_room_or_target():
    """A grant is forged for another room, and for a target of its room's name."""
    assert doubt(SHOP.sign(GRANT), grants=Grants("tickets", [OLD, KEY])) == "forged"
    target = Grants("shop", [OLD, KEY], "target")
    assert target.read(target.sign(GRANT), NOW_MS) == GRANT
    assert doubt(target.sign(GRANT)) == "forged"
    assert doubt(SHOP.sign(GRANT), grants=target) == "forged"


def signed_before(key: str = KEY) -> str:
    """As earlier versions signed: without the kind."""
    said = f"waitroom-grant:shop:vip:{ENDS_S}:order-17"
    return f"vip.{ENDS_S}.order-17.{hmac.new(key.encode(), said.encode(), 'sha256').hexdigest()}"


def test_a_grant_of_before_is_a_rooms():
    """Unless a target has its name, which it could be for; a target believes none."""
    room = Grants("shop", [OLD, KEY])
    assert room.read(signed_before(OLD), NOW_MS) == room.read(signed_before(), NOW_MS) == GRANT
    assert doubt(signed_before(), grants=room, now_ms=ENDS_S * 1000) == "expired"
    assert doubt(signed_before("x" * 32), grants=room) == "forged"
    assert doubt(signed_before(), grants=Grants("shop", [OLD, KEY], "target")) == "outdated"
    room.has_namesake = lambda: True
    assert doubt(signed_before(), grants=room) == "outdated"
    assert doubt(room.sign(GRANT), grants=room) == ""


def test_a_grant_ends_to_the_millisecond():
    assert doubt(SHOP.sign(GRANT), now_ms=ENDS_S * 1000 - 1) == ""
    assert doubt(SHOP.sign(GRANT), now_ms=ENDS_S * 1000) == "expired"


@pytest.mark.parametrize(
    ("old", "new"),
    [("vip", "vic"), ("vip", "vip2"), (str(ENDS_S), str(ENDS_S + 1)), ("order-17", "order-18"),
     ("order-17", ""), (str(ENDS_S), "1")],
)  # fmt: skip
def test_what_is_changed_is_forged(old, new):
    """A change of any field makes a grant forged, also an expired one."""
    assert doubt(SHOP.sign(GRANT).replace(old, new, 1)) == "forged"


@pytest.mark.parametrize(
    "text",
    ["", ".", "...", "vip", "x" * (MAX_LENGTH + 1), "é" * 80, "\ud800", "vip.1.2.3", "\0" * 50,
     "vip..", f"vip.0{ENDS_S}..{'a' * 64}", f"vip.{10**11}..{'a' * 64}", f"vip.-1..{'a' * 64}",
     f"vip.{ENDS_S}..{'A' * 64}", f"vip.{ENDS_S}..{'a' * 63}", f"vip.{ENDS_S}.{'a' * 64}",
     f"-vip.{ENDS_S}..{'a' * 64}", f"vip.{ENDS_S}..{'a' * 64}\n", f"vip.١٢..{'a' * 64}",
     f"vip.{ENDS_S}.{'i' * 65}.{'a' * 64}", f"vip.{ENDS_S}...{'a' * 64}"],
)  # fmt: skip
def test_what_no_grant_is(text):
    """Other text is malformed, and no other error."""
    assert doubt(text) == "malformed"


def test_signatures_are_compared_in_constant_time(monkeypatch):
    """compare_digest compares with every key, even after the first one fits."""
    compared = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    text = Grants("shop", [OLD]).sign(GRANT)
    monkeypatch.setattr(grants.hmac, "compare_digest", compare)
    assert doubt(text) == ""
    assert [other for _, other in compared] == [text[-64:]] * 2


# Where it is found -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("/shop?waitroom_grant=x", "x"), ("/shop?a=b&waitroom_grant=x", "x"),
        ("/shop?waitroom_grant=x&a=b", "x"), ("/shop?waitroom_grant=x#top", "x"),
        ("https://shop.example/?waitroom_grant=x", "x"),
        ("/_waitroom/shop/?next=/sale?waitroom_grant=x", "x"),
        ("/_waitroom/shop/?next=/sale?a=b&waitroom_grant=x&c=d", "x"),
        ("/_waitroom/shop/join?waitroom_grant=x", "x"),
        ("/shop?waitroom_grant=x&waitroom_grant=y", "x"),
        ("/shop?waitroom_grant=&waitroom_grant=y", "y"), ("/shop?waitroom_grant=%C3%A4", "%C3%A4"),
        ("/shop?waitroom_grant=é\ud800\xff", "é\ud800\xff"), ("/shop?waitroom_grant=", None),
        ("/shop?waitroom_grant", None), ("/shop?my_waitroom_grant=x", None),
        ("/shop?waitroom_grants=x", None), ("/shop?WAITROOM_GRANT=x", None),
        ("/waitroom_grant=x", None), ("/a&waitroom_grant=x", None),
        ("/a&waitroom_grant=x?waitroom_grant=y", "y"), ("/shop", None), ("", None), ("?", None),
    ],
)  # fmt: skip
def test_a_grant_in_an_address(address, found):
    """The first parameter of that name, also of an address that it leads on to."""
    assert find_grant(address) == found


# The keys ----------------------------------------------------------------------------------------

GOOD = {"WAITROOM_SECRET_KEYS": "s" * 32, "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "5"}


def test_keys_of_their_own(tmp_path):
    """Grant keys come from a list, a variable or a file, or are secret_keys."""
    assert load(None, GOOD).keys_of_grants == ["s" * 32]
    listed = {**GOOD, "WAITROOM_GRANT_KEYS": f"{OLD},{'n' * 32}"}
    assert load(None, listed).keys_of_grants == [OLD, "n" * 32]
    file = tmp_path / "keys"
    file.write_text(f"{OLD}\n{'n' * 32}\n")
    named = load(None, {**GOOD, "WAITROOM_GRANT_KEYS_FILE": str(file)})
    assert (named.keys_of_grants, named.secret_keys) == ([OLD, "n" * 32], ["s" * 32])
    toml = tmp_path / "waitroom.toml"
    toml.write_text(f"grant_keys = {json.dumps([OLD])}\n")
    assert load(str(toml), GOOD).grant_keys == [OLD]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (f"{OLD},too-short-{'z' * 8}", "grant_keys: a key has fewer than 32 characters"),
        (DEMO_SECRET, "grant_keys: the demo's secret is known to everybody"),
    ],
)
def test_keys_that_are_no_secrets_are_refused(keys, said):
    """Keys that are too short or well known are refused, and never shown."""
    with pytest.raises(InputError) as caught:
        load(None, {**GOOD, "WAITROOM_GRANT_KEYS": keys})
    assert caught.value.problems == [said]
