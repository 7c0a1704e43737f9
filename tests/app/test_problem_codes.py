"""The codes of problem documents: each is one kind, and says what to do about it."""

import pytest

from scripts.docs_pages.problems import find_kinds

KINDS = sorted(find_kinds(), key=lambda kind: kind.code)


def test_a_code_is_one_kind():
    """Wherever it is declared."""
    codes = [kind.code for kind in KINDS]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_a_kind_says_when_it_comes_and_what_to_do(kind):
    """docs/problems.md is made of these sentences."""
    assert kind.meaning.endswith(".")
    assert kind.remedy.endswith(".")
