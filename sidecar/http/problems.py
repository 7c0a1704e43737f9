"""Creates problem documents (RFC 9457), and converts exceptions to them."""

import json
import logging
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from sidecar.http import problem_kinds as kinds
from sidecar.http.problem_kinds import Kind
from sidecar.kit.did_you_mean import did_you_mean
from sidecar.kit.errors import (
    DatabaseError,
    InputError,
    SidecarError,
    StoreError,
    UnknownNameError,
)
from sidecar.kit.trace_context import (
    TRACEPARENT,
    log_trace,
    read_trace_context,
    stop_logging_trace,
)

#: The value of Retry-After while Redis or the database is unavailable, in seconds.
STORE_RETRY_S = 5

log = structlog.get_logger()


class _UnreadableRequests(logging.Filter):
    """A logging filter that replaces aiohttp's traceback for a request that is not valid HTTP with
    a debug line. A control character in a header is enough to make a request invalid."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            return True
        log.debug("unreadable", error=str(error))
        return False


logging.getLogger("aiohttp.server").addFilter(_UnreadableRequests())


def problem(kind: Kind | int, title: str = "", **members: Any) -> web.Response:
    """Return a response with a problem document, which has `members` such as `detail` and `errors`.

    `kind` may also be an HTTP status. The member `retry_after`, in seconds, becomes the header
    Retry-After and the member `retry_after_seconds`."""
    retry_s = members.pop("retry_after", None)
    if isinstance(kind, int):
        kind = kinds.GENERAL.get(kind) or Kind(kinds.OTHER_CODE, kind, title, "")
    document = {
        "type": kind.type,
        "title": title or kind.title,
        "status": kind.status,
        "code": kind.code,
        **members,
    }
    headers = {"Cache-Control": "no-store"}
    if retry_s is not None:
        headers["Retry-After"] = str(retry_s)
        document["retry_after_seconds"] = retry_s
    return web.Response(
        status=kind.status,
        # aiohttp would add a charset to the content type of text, so the body is bytes.
        body=json.dumps(document).encode(),
        content_type="application/problem+json",
        headers=headers,
    )


class ProblemError(Exception):
    """An error that is sent as a problem document."""

    def __init__(self, kind: Kind, **members: Any) -> None:
        super().__init__(kind.title)
        self.kind, self.members = kind, members


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert the exceptions of handlers to problem documents, and add the id of the request's
    trace to its log lines."""
    token = None
    if TRACEPARENT in request.headers:
        token = log_trace(read_trace_context(request.headers))
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = problem(error.status, error.reason)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except ProblemError as error:
        return problem(error.kind, **error.members)
    except web.RequestPayloadError:
        return problem(kinds.UNREADABLE, detail="It is not of its Content-Encoding.")
    except (UnknownNameError, InputError, DatabaseError, StoreError) as error:
        return _convert_error(request, error)
    except Exception:
        log.exception("unexpected", path=request.rel_url.raw_path)
        return problem(kinds.INTERNAL_ERROR, detail="It was logged.")
    finally:
        if token is not None:  # the same task answers the next request
            stop_logging_trace(token)


_UNCHANGED = "Nothing was changed."
_JOBS_KEPT = "Jobs that were taken are kept. "


def _describe_outage(request: web.Request) -> str:
    """Return a sentence that tells the client what an outage of Redis means for its data, or ""."""
    if (request.method, request.path) == ("POST", "/v1/jobs"):
        return "The job was not taken. "
    if request.path == "/v1/jobs/bulk/submit":
        return "Some jobs may have been taken: repeat it with the same idempotency_keys. "
    if request.path.startswith(("/v1/jobs", "/v1/targets")):
        return _JOBS_KEPT
    # Limits store nothing that an outage could lose, and leases last until they expire.
    return "" if request.path.startswith("/v1/") else "Places are kept. "


def _convert_error(request: web.Request, error: SidecarError) -> web.Response:
    path, is_change = request.rel_url.raw_path, request.method not in {"GET", "HEAD"}
    match error:
        case UnknownNameError():
            # Suggest other names to operators and programs only, not to visitors.
            names = error.known if request.path.startswith(("/admin/", "/v1/")) else ()
            detail = f"{error}{did_you_mean(error.name, names)}"
            return problem(kinds.unknown(error.kind), detail=detail)
        case InputError():
            more = {"detail": _UNCHANGED} if is_change else {}
            return problem(kinds.INVALID_REQUEST, **more, errors=error.problems)
        case DatabaseError():
            log.warning("database_away", path=path, error=str(error))
            kind = kinds.DATABASE_UNAVAILABLE
            detail = f"{error}. What happens meanwhile is recorded when it is back."
            if request.path.startswith("/v1/"):
                detail = f"{_JOBS_KEPT}Try again in a moment."
                detail = f"{_UNCHANGED} {detail}" if is_change else detail
        case _:
            log.warning("store_away", path=path, error=str(error))
            kind = kinds.STORE_UNAVAILABLE
            detail = f"{_describe_outage(request)}Try again in a moment."
    return problem(kind, detail=detail, retry_after=STORE_RETRY_S)
