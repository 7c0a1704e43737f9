"""Sends a message to an external URL with one POST, and interprets the response."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import aiohttp
from yarl import URL

from sidecar import __version__
from sidecar.kit.egress import ConnectionLostError, EndlessHeadError
from sidecar.kit.retry import parse_retry_after
from sidecar.kit.signing import signature, standard_signature

#: The maximum number of bytes of a response's body that are read.
RESPONSE_LIMIT = 4096
#: The time limit for reading the body of an error response, in seconds. The limit is short, because
#: whether the message is sent again does not depend on this body.
ERROR_BODY_TIMEOUT_S = 1.0
#: Statuses below 500 after which a retry may succeed.
_TEMPORARY_STATUSES = {408, 425, 429}


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a POST request. The URL may contain a secret."""

    url: URL | str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of one POST."""

    #: True if the receiver has accepted the message.
    is_taken: bool = False
    #: Why the message was not accepted, without any part of the receiver's URL.
    reason: str = ""
    #: True if a retry may succeed.
    may_retry: bool = False
    #: How many seconds the receiver asks to wait before a retry.
    retry_after_s: float = 0.0
    #: The HTTP status, or None if no response came.
    status: int | None = None
    #: The first part of the response's body, which may contain the receiver's URL.
    body: bytes = b""


def signed_headers(
    event: str, id_: str, body: bytes, secrets: Sequence[str], *, now_s: float
) -> dict[str, str]:
    """Return the headers of a JSON message sent at `now_s`, signed if there is a secret. The first
    secret makes Waitroom's own signature, and every secret one of Standard Webhooks."""
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"waitroom/{__version__}",
        "X-Waitroom-Event": event,
        "X-Waitroom-Delivery": id_,
    }
    if secrets:
        headers["X-Waitroom-Signature"] = signature(secrets[0], body, int(now_s))
        headers["webhook-id"] = id_
        headers["webhook-timestamp"] = str(int(now_s))
        headers["webhook-signature"] = standard_signature(secrets, id_, body, int(now_s))
    return headers


async def post(
    session: aiohttp.ClientSession,
    message: Message,
    *,
    timeout_s: float,
    read: Callable[[bytes], PostResult] | None = None,
    keep_error_body: bool = False,
) -> PostResult:
    """Send a message once and return the result, whatever the receiver does. Follow no redirect.

    Args:
        read: Converts the body of a response with status 2xx to the result.
        keep_error_body: Put the first part of the body of any other response into the result.
    """
    try:
        async with session.post(
            message.url,
            data=message.body,
            headers=message.headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            status = response.status
            if read is not None and 200 <= status < 300:
                body = await _read_first_part(response)
                return replace(read(body), status=status, body=body)
            result = interpret_status(status, response.headers.get("Retry-After", ""))
            if keep_error_body and not result.is_taken:
                with suppress(TimeoutError, aiohttp.ClientError, OSError):
                    async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
                        result = replace(result, body=await _read_first_part(response))
            return replace(result, status=status)
    except TimeoutError:
        return PostResult(reason=f"no answer within {timeout_s:g} s", may_retry=True)
    except (aiohttp.ClientError, OSError) as error:
        return PostResult(reason=_describe_error(error), may_retry=True)
    except ValueError as error:  # such as an impossible host name
        return PostResult(reason=_describe_error(error))


async def _read_first_part(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    while part := await response.content.read(RESPONSE_LIMIT - len(body)):
        body += part
    return body


def interpret_status(status: int, retry_after: str) -> PostResult:
    """Return the result of a response with this HTTP status and Retry-After header."""
    if 200 <= status < 300:
        return PostResult(is_taken=True)
    reason = f"HTTP {status}"
    if 300 <= status < 400:
        reason += ", and redirects are not followed"
    if status not in _TEMPORARY_STATUSES and status < 500:
        return PostResult(reason=reason)
    return PostResult(
        reason=reason, may_retry=True, retry_after_s=parse_retry_after(retry_after, time.time())
    )


def _describe_error(error: Exception) -> str:
    """Describe an error by its type, without the message, which may contain the URL."""
    if isinstance(error, EndlessHeadError):
        return str(error)
    if isinstance(error, ConnectionLostError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = cause.strerror if isinstance(cause, OSError) else None
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
