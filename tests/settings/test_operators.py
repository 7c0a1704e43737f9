"""Operators in the settings: what is right is read, what is wrong is named without repeating a
secret; and the hash of a password."""

from ipaddress import ip_network

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.http.auth.passwords import HASHER, is_hash_of
from sidecar.settings.load import load
from tests.settings.problems import GOOD, problems

HASH = HASHER.hash("correct horse")
ANNA = {**GOOD, "WAITROOM_OPERATORS__ANNA__ROLE": "viewer"}
PASSWORD = {"WAITROOM_OPERATORS__ANNA__PASSWORD": HASH}
HEADER = {"WAITROOM_OPERATOR_HEADER": "Remote-User"}
SOURCES = {"WAITROOM_OPERATOR_HEADER_FROM": "10.0.0.7, fd00::/8, unix"}


def test_a_password_or_a_proxy(write):
    accounts = load(None, {**ANNA, **PASSWORD}).accounts
    assert (accounts.named["anna"].role, accounts.find_role("eve")) == ("viewer", None)
    accounts = load(None, {**ANNA, **HEADER, **SOURCES}).accounts
    assert accounts.proxy.sources == {ip_network("10.0.0.7"), ip_network("fd00::/8"), "unix"}
    file = write('[operators."Ben.Smith+1@example.org"]\nrole = "admin"\n' + f"password = '{HASH}'")
    assert load(file, GOOD).accounts.find_role("Ben.Smith+1@example.org") == "admin"
    assert not load(None, GOOD).accounts


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "operator_header_from: no password for anna, and there is no operator_header"),
        ({"WAITROOM_OPERATORS__ANNA__PASSWORD": "hunter22"}, "no Argon2 hash; waitroom hash-"),
        ({"WAITROOM_OPERATORS__ANNA__PASSWORD": "$argon2id$v=19$m=65536,t=3,p=4$hünter22$o"},
         "no Argon2 hash; waitroom hash-"),
        ({**PASSWORD, "WAITROOM_OPERATORS__ANNA__ROLE": "root"}, "operators.anna.role: "),
        (HEADER, "operator_header_from: operator_header needs it"),
        ({**PASSWORD, **SOURCES}, "operator_header_from: operator_header is not set"),
        ({**HEADER, "WAITROOM_OPERATOR_HEADER_FROM": "0.0.0.0/0"}, "could be any operator"),
        ({**HEADER, "WAITROOM_OPERATOR_HEADER_FROM": "localhost"}, "write an address, a network"),
        ({**SOURCES, "WAITROOM_OPERATOR_HEADER": "Cookie"}, "the name of the header that your"),
        ({**PASSWORD, "WAITROOM_OPERATORS__A B__ROLE": "viewer"}, "a name has letters, digits"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(environ, said):
    """One problem each, which repeats no password."""
    (found,) = problems(**{**ANNA, **environ})
    assert said in found
    assert "hunter22" not in found


def test_a_name_in_other_letters_is_there_already(write):
    text = "".join(
        f"[operators.{name}]\nrole = 'viewer'\npassword = '{HASH}'\n" for name in ("anna", "Anna")
    )
    found = problems(write(text), **GOOD)
    assert found == [
        f"operators: {name}: there is one of this name in other letters"
        for name in ("anna", "Anna")
    ]


def test_the_hash_of_a_password():
    """From a pipe, without the spaces that a log-in cuts off; too short a one is refused and not
    repeated."""
    done = CliRunner().invoke(main, ["hash-password"], input=" correct horse \r\n")
    assert done.exit_code == 0
    assert is_hash_of(done.output.strip(), "correct horse")
    refused = CliRunner().invoke(main, ["hash-password"], input="short\n")
    assert (refused.exit_code, "fewer than 8" in refused.output) == (2, True)
