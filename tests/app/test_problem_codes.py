"""The codes of problem documents: each is one kind, and says what to do about it."""

import json
import re
from pathlib import Path

import pytest

from scripts.docs_pages.problems import find_kinds
from sidecar.http.problems import problem

KINDS = sorted(find_kinds(), key=lambda kind: kind.code)


def test_a_code_is_one_kind():
    """Wherever it is declared."""
    codes = [kind.code for kind in KINDS]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_a_kind_says_what_it_is(kind):
    """docs/problems.md is made of these sentences. Its type is an absolute URI without a host, so
    it is the same at every installation."""
    assert kind.meaning.endswith(".")
    assert kind.remedy.endswith(".")
    document = json.loads(problem(kind).body)
    assert document["type"] == f"urn:waitroom:problem:{kind.code}"
    assert re.fullmatch(r"urn:[a-z0-9]+:[a-z0-9:_-]+", document["type"])


def test_a_status_without_a_kind_is_about_blank():
    """RFC 9457, section 4.2.1: such a problem says no more than its status."""
    document = json.loads(problem(418, "I'm a teapot").body)
    assert (document["type"], document["title"]) == ("about:blank", "I'm a teapot")


def test_nginx_sends_kinds_that_there_are():
    """Each of its problem documents has the code and the type of a kind with its status."""
    text = (Path(__file__).resolve().parents[2] / "nginx/waitroom/server.conf").read_text()
    documents = re.findall(r"return (\d{3}) '({\"type\".*)'", text)
    kinds = {(kind.code, kind.status): kind.type for kind in KINDS}
    assert len(documents) == 7
    for status, document in documents:
        code = re.search(r'"code": "(\w+)"', document)[1]
        assert f'"type": "{kinds[code, int(status)]}"' in document
        assert f'"status": {status}' in document
