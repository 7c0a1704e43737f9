"""The codes of problem documents: each is one kind, and docs/api.md lists them all."""

from __future__ import annotations

from pathlib import Path

from sidecar.api.endpoints import JOBS, OPS, PROXY, VISITOR
from sidecar.kit.http import problem_kinds
from sidecar.kit.http.problem_kinds import GENERAL, Kind

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def all_kinds() -> set[Kind]:
    found = {kind for kind in vars(problem_kinds).values() if isinstance(kind, Kind)}
    declared = {
        kind for endpoint in (*PROXY, *VISITOR, *JOBS, *OPS) for kind in endpoint.all_problems()
    }
    return found | declared | set(GENERAL.values())


def test_a_code_is_one_kind():
    """Wherever it is declared."""
    codes = sorted(kind.code for kind in all_kinds())
    assert codes == sorted(set(codes))


def test_docs_list_each_code():
    """As many rows as there are codes, with what the code says of them."""
    kinds = sorted(all_kinds(), key=lambda kind: (kind.status, kind.code))
    table = "".join(f"| `{kind.code}` | {kind.status} | {kind.meaning} |\n" for kind in kinds)
    header = "| code | status | means |\n|---|---|---|\n"
    assert header + table + "\n" in PAGE.read_text(), f"write in docs/api.md:\n{table}"
