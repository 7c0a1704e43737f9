"""Builds paths of a replica's API, reads lists page by page, and formats the client's errors."""

from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

if TYPE_CHECKING:
    import waitroom

#: Types of the client, only for annotations, because `waitroom` is slow to import.
Client: TypeAlias = "waitroom.Client"
Job: TypeAlias = "waitroom.Job"
Room: TypeAlias = "waitroom.Room"
Visitor: TypeAlias = "waitroom.Visitor"
#: The maximum number of items that one request for a list reads.
PAGE_SIZE = 1000


def build_api_path(root: str, *names: str) -> str:
    """Build a path of the API from `root` and names. Quote the names for a URL."""
    return "/".join([root, *(quote(name, safe="") for name in names)])


def read_pages(
    client: Client, path: str, items: str, *, limit: int | None = None, **query: str
) -> dict[str, Any]:
    """Read a list from the API page by page, up to `limit` items. Return the last page, with the
    items of all pages under the key that `items` names."""
    page: dict[str, Any] = {"next": ""}
    rows: list[Any] = []
    while page["next"] is not None and (limit is None or len(rows) < limit):
        size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - len(rows))
        page = client.request(
            "GET", path, query={**query, "after": page["next"], "limit": str(size)}
        )
        rows += page[items]
    return {**page, items: rows}


def format_error(error: "waitroom.WaitroomError", address: str = "", source: str = "") -> str:
    """Format an error of the client. `source` is the file or variable that has the token."""
    problem = getattr(error, "problem", None)
    if problem is None or not (problem.title or address):
        return str(error)
    if not problem.title:
        return (
            f"{address} answers, but not as a replica's ops listener does (HTTP {problem.status}): "
            "--url or WAITROOM_URL is the address that ops_listen names, such as "
            "http://127.0.0.1:8401, and not the site's"
        )
    detail = problem.detail
    if problem.status == 401 and source:
        detail = f"{detail} The token came from {source}.".strip()
    elif problem.status == 404 and not detail:
        detail = "Is that the ops listener (not edge_listen) of a replica of this version?"
    if problem.status == 422 and problem.errors:  # the errors say more than the title
        return "\n".join([*problem.errors, *([detail] if detail else [])])
    return "\n".join([": ".join(text for text in (problem.title, detail) if text), *problem.errors])
