"""Generator of docs/problems.md from the declarations of all problem codes."""

from http import HTTPStatus
from itertools import groupby

from sidecar.app.endpoints import JOBS, OPS, PROXY, VISITOR
from sidecar.http import problem_kinds
from sidecar.http.problem_kinds import GENERAL, Kind

_INTRODUCTION = """\
# Problem codes

The response to a request that fails is a problem document (RFC 9457, `application/problem+json`).
Look up its `code` here.

```json
{"type": "urn:waitroom:problem:invalid_request", "title": "The request is not allowed",
 "status": 422, "code": "invalid_request", "detail": "Nothing was changed.",
 "errors": ["poll_limit: must be at least 1 (got 0)"]}
```

| member | meaning |
|---|---|
| `code` | The kind of problem. It stays the same in later versions: check it in programs. |
| `type` | The code as a URI: `urn:waitroom:problem:CODE`. [Why](api.md#errors). |
| `title`, `detail` | An explanation for people. The wording may change. |
| `errors` | One text for each invalid parameter or field, beginning with its name. |
| `retry_after_seconds` | When to try again, like the header `Retry-After`. |

A request that is not HTTP gets 400 in plain text, without a code."""


def page() -> str:
    parts = [_INTRODUCTION]
    by_status = sorted(find_kinds(), key=lambda kind: (kind.status, kind.code))
    for status, kinds in groupby(by_status, key=lambda kind: kind.status):
        parts.append(f"## {status} {HTTPStatus(status).phrase}")
        for kind in kinds:
            parts += [f"### `{kind.code}`", kind.meaning, f"**Remedy:** {kind.remedy}"]
    return "\n\n".join(parts) + "\n"


def find_kinds() -> set[Kind]:
    """Return the problems that an endpoint declares, and those that all endpoints have."""
    found = {kind for kind in vars(problem_kinds).values() if isinstance(kind, Kind)}
    declared = {
        kind for endpoint in (*PROXY, *VISITOR, *JOBS, *OPS) for kind in endpoint.all_problems()
    }
    return found | declared | set(GENERAL.values())
