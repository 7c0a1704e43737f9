"""Errors as RFC 9457 problem documents; the one place that turns errors into responses."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sidecar.base.errors import (
    ConfigError,
    DatabaseError,
    StoreError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

#: What a client is told to wait when the store is away.
STORE_RETRY_S = 5

log = structlog.get_logger()


class _Unreadable(logging.Filter):
    """What cannot be read as HTTP is answered with a 400 and is its sender's fault: aiohttp
    would write a traceback, in lines of its own, each time that a visitor sends a control
    character in a header."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            return True
        log.debug("unreadable", error=str(error))
        return False


logging.getLogger("aiohttp.server").addFilter(_Unreadable())


def problem(status: int, title: str, **members: Any) -> web.Response:
    """A problem document; `detail`, `errors` and the like are its members."""
    document = {"type": "about:blank", "title": title, "status": status, **members}
    headers = {"Cache-Control": "no-store"}
    if "retry_after" in members:
        headers["Retry-After"] = str(members["retry_after"])
    return web.Response(
        status=status,
        # As bytes, because aiohttp adds a charset to text, and this type has none.
        body=json.dumps(document).encode(),
        content_type="application/problem+json",
        headers=headers,
    )


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns whatever a handler raises into a problem document."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = problem(error.status, error.reason)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except web.RequestPayloadError:
        return problem(400, "The body cannot be read", detail="It is not of its Content-Encoding.")
    except UnknownNameError as error:
        return problem(404, f"Unknown {error.kind}", detail=str(error))
    except ConfigError as error:
        return problem(
            422, "The request is not allowed", detail="Nothing was changed.", errors=error.problems
        )
    except DatabaseError as error:
        log.warning("history_away", path=request.rel_url.raw_path, error=str(error))
        return problem(
            503,
            "The history's database does not answer",
            detail=f"{error}. What happens meanwhile is recorded when it is back.",
            retry_after=STORE_RETRY_S,
        )
    except StoreError as error:
        log.warning("store_away", path=request.rel_url.raw_path, error=str(error))
        return problem(
            503,
            "The store does not answer",
            detail="Places are kept. Try again in a moment.",
            retry_after=STORE_RETRY_S,
        )
    except Exception:
        log.exception("unexpected", path=request.rel_url.raw_path)
        return problem(500, "An error of the waiting room", detail="It was logged.")
