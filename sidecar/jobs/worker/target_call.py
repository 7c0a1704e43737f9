"""Makes the HTTP call of a job. kit/egress.py limits the IP addresses that a call may go to."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, ParamSpec

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.http import HttpProcessingError

from sidecar import __version__
from sidecar.jobs.call_result import CallResult, ResultKind, describe_status
from sidecar.jobs.model import CHUNK_BYTES, Job
from sidecar.jobs.request import MAX_HEADERS, MAX_HEADERS_BYTES, check_request, make_url
from sidecar.jobs.settings import TargetSettings, normalize_header_name
from sidecar.kit.egress import BEFORE_SEND, EndlessHeadError, PrivateAddressError, open_session
from sidecar.kit.errors import InputError
from sidecar.kit.retry import parse_retry_after
from sidecar.kit.tasks import stop_workers

P = ParamSpec("P")
#: A function that stores one part of a large body. Parts are numbered from 0.
Sink = Callable[[int, bytes], Awaitable[None]]

#: How long opening connections may take before their jobs are claimed, in seconds.
CONNECT_TIMEOUT_S = 5.0
#: The longest Retry-After that is respected, in seconds. A longer one is shortened to this.
MAX_RETRY_AFTER_S = 3600.0
#: Response headers that are not stored: hop-by-hop headers and the target's cookies.
_UNSTORED_HEADERS = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "set-cookie", "set-cookie2",
})  # fmt: skip
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}\Z")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

#: The types of errors, and the kind and error text of the result. The first matching entry counts.
_ERRORS: tuple[tuple[tuple[type[Exception], ...], ResultKind, str], ...] = (
    (
        (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError),
        "refused",
        "the target's address cannot be called",
    ),
    (
        (aiohttp.ClientConnectorCertificateError,),
        "failed",
        "the target's certificate does not prove that it is the target",
    ),
    ((aiohttp.ClientSSLError,), "failed", "the TLS handshake with the target failed"),
    ((aiohttp.ClientConnectorDNSError,), "failed", "the target's name leads to no address"),
    ((aiohttp.ClientConnectorError,), "failed", "the target is not reached: {reason}"),
    (
        (aiohttp.ClientResponseError, HttpProcessingError),
        "failed",
        "what came is no HTTP, or its head is too large, {when}",
    ),
    ((EndlessHeadError,), "failed", "the target sent {error}"),
    ((aiohttp.ClientError, OSError), "failed", "the connection broke {when}"),
    ((ValueError,), "refused", "the request cannot be made"),
)


class _CallEndedError(Exception):
    """Raised to end a call early, with a result."""

    def __init__(self, result: CallResult) -> None:
        super().__init__(result.error)
        self.result = result


class LateCallError(Exception):
    """The call could not be sent in its SendWindow. Nothing was sent."""


class SendWindow(NamedTuple):
    """The monotonic times, in seconds, from which and until which a call may be sent."""

    from_s: float
    until_s: float

    async def wait(self) -> None:
        """Wait until the call may be sent. Raises LateCallError if it is too late."""
        while (left_s := self.from_s - time.monotonic()) > 0:  # noqa: ASYNC110 - a timer may be early
            await asyncio.sleep(left_s)
        if time.monotonic() > self.until_s:
            raise LateCallError


class Egress:
    """Makes calls, in two HTTP sessions: one refuses private IP addresses, the other allows them.
    Must be created within a running event loop."""

    def __init__(self, *, resolver: AbstractResolver | None = None) -> None:
        resolver = resolver or aiohttp.ThreadedResolver()
        self._public = open_session(resolver, is_private=False)
        self._private = open_session(resolver, is_private=True)

    async def close(self) -> None:
        await self._public.close()
        await self._private.close()

    async def open_connections(self, settings: TargetSettings, count: int) -> int:
        """Open connections to a target for calls that begin within KEEP_ALIVE_S. Return how many
        are open: fewer than `count` if some cannot be opened within CONNECT_TIMEOUT_S."""
        session = self._private if settings.private else self._public
        url = make_url(settings.url or "", "", "")

        async def open_one(is_open: asyncio.Future[bool]) -> None:
            async def hold() -> None:
                is_open.set_result(True)
                await asyncio.Event().wait()  # until the task is cancelled, which sends nothing

            BEFORE_SEND.set(hold)  # for this task only
            try:
                await session.request("HEAD", url)
            except (aiohttp.ClientError, OSError, ValueError):
                is_open.set_result(False)

        opened = [asyncio.get_running_loop().create_future() for _ in range(count)]
        tasks = [asyncio.create_task(open_one(is_open)) for is_open in opened]
        try:
            settled, _ = await asyncio.wait(opened, timeout=CONNECT_TIMEOUT_S)
        finally:
            await stop_workers(*tasks)
        return sum(is_open.result() for is_open in settled)

    async def call(
        self, settings: TargetSettings, job: Job, *, sink: Sink, window: SendWindow | None = None
    ) -> CallResult:
        """Make a job's call and return its result. Closes the connection if cancelled.

        Args:
            sink: Stores a large response body. Its time does not count towards the timeout.
            window: When the call may be sent. The wait for it does not count towards the timeout.

        Raises:
            LateCallError: It is too late for `window`.
            Exception: Errors of `sink`."""
        began = time.monotonic()
        try:
            url = check_request(settings, job)
        except InputError as error:
            problems = "; ".join(error.problems)
            text = f"the target does not allow this request any more: {problems}"
            return CallResult("refused", text)
        session = self._private if settings.private else self._public
        timeout = asyncio.timeout(settings.timeout)
        wait = _exclude_from_timeout(timeout, window.wait) if window else None
        BEFORE_SEND.set(wait)  # for this task only
        try:
            async with timeout:
                with _convert_errors():
                    response = await session.request(
                        job.method,
                        url,
                        headers=_make_request_headers(settings, job),
                        data=job.body or None,
                        allow_redirects=False,
                    )
                try:
                    result = await _read_result(
                        response, settings, _exclude_from_timeout(timeout, sink)
                    )
                finally:
                    _close_unless_read(response)
        except _CallEndedError as error:
            result = error.result
        except TimeoutError:
            if not timeout.expired():
                raise
            result = CallResult("failed", f"no whole answer within {settings.timeout:g} s")
        return replace(result, took_us=round((time.monotonic() - began) * 1_000_000))


async def _read_result(
    response: aiohttp.ClientResponse, settings: TargetSettings, sink: Sink
) -> CallResult:
    status, headers = response.status, _select_response_headers(response)
    text = describe_status(status)
    if settings.retries_on(status):
        after_s = parse_retry_after(response.headers.get("Retry-After", ""), time.time())
        after_s = min(after_s, MAX_RETRY_AFTER_S)
        kind: ResultKind = "busy" if status == 429 else "failed"
        return CallResult(kind, text, status, headers, retry_after_s=after_s or None)
    if status < 200:
        return CallResult("failed", f"{text}, which is no answer")
    body, size = await _read_body(response, settings.max_result, sink)
    return CallResult("answered", "", status, headers, body, size)


def _close_unless_read(response: aiohttp.ClientResponse) -> None:
    """Close the connection, unless it is back in the pool after the whole response was read."""
    if response.connection is not None and response.connection.transport is not None:
        # abort(), because with TLS close() would wait for the target.
        response.connection.transport.abort()
    response.close()


async def _read_body(
    response: aiohttp.ClientResponse, max_size: int, sink: Sink
) -> tuple[bytes, int]:
    """Read and return a response's body (empty if `sink` stored it in parts) and size in bytes."""
    has_body = response.method != "HEAD" and response.status not in {204, 304}
    size, number, buffer = 0, 0, bytearray()
    is_too_large = has_body and (response.content_length or 0) > max_size
    while not is_too_large:
        with _convert_errors(f"after {size:,} bytes of the answer"):
            part = await response.content.readany()
        if not part:
            break
        size += len(part)
        is_too_large = size > max_size
        buffer += part
        while len(buffer) > CHUNK_BYTES and not is_too_large:
            await sink(number, bytes(buffer[:CHUNK_BYTES]))
            del buffer[:CHUNK_BYTES]
            number += 1
    if is_too_large:
        text = f"the answer is larger than {max_size:,} bytes (max_result)"
        raise _CallEndedError(CallResult("refused", text, response.status))
    if number:
        await sink(number, bytes(buffer))
        return b"", size
    return bytes(buffer), size


def _exclude_from_timeout(
    timeout: asyncio.Timeout, work: Callable[P, Awaitable[None]]
) -> Callable[P, Awaitable[None]]:
    """Return a function that does `work` without counting its time towards the timeout."""
    loop = asyncio.get_running_loop()

    async def do_work(*args: P.args, **options: P.kwargs) -> None:
        left_s = (timeout.when() or 0.0) - loop.time()
        timeout.reschedule(None)
        await work(*args, **options)
        timeout.reschedule(loop.time() + left_s)

    return do_work


def _make_request_headers(settings: TargetSettings, job: Job) -> dict[str, str]:
    """Return a call's headers. The worker's override the target's, which override the job's."""
    named = {normalize_header_name(name) for name in settings.headers}
    headers = {
        name: text for name, text in job.headers.items() if normalize_header_name(name) not in named
    }
    headers |= settings.headers
    if not any(normalize_header_name(name) == "user-agent" for name in headers):
        headers["User-Agent"] = f"waitroom/{__version__}"
    if job.method == "HEAD":
        # Otherwise, a body that the target wrongly sends would be read as the next response.
        headers["Connection"] = "close"
    return headers | {
        "Accept-Encoding": "identity",
        "Idempotency-Key": job.id,
        "X-Waitroom-Attempt": str(job.attempts),
    }


def _select_response_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the response headers to store, without control characters. Omits headers that exceed
    MAX_HEADERS or MAX_HEADERS_BYTES."""
    hidden = _UNSTORED_HEADERS
    if response.method != "HEAD":
        hidden |= {"content-length"}
    for named in response.headers.getall("Connection", ()):
        hidden |= {name.strip().lower() for name in named.split(",")}
    headers: dict[str, str] = {}
    left = MAX_HEADERS_BYTES
    for raw_name, raw_value in response.raw_headers:
        name = raw_name.decode("latin-1").lower()
        value = _CONTROL_CHARACTERS.sub(" ", raw_value.decode("latin-1")).strip()
        if name in hidden or not _HEADER_NAME.match(name):
            continue
        size = len(value) + (2 if name in headers else len(name))
        if size > left or (name not in headers and len(headers) == MAX_HEADERS):
            continue
        left -= size
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


@contextlib.contextmanager
def _convert_errors(when: str = "before an answer came") -> Iterator[None]:
    """Convert errors of the HTTP client to _CallEndedError. Its text says `when` the error came."""
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
        raise _CallEndedError(_make_error_result(error, when)) from None


def _make_error_result(error: Exception, when: str) -> CallResult:
    cause = getattr(error, "os_error", None)
    if isinstance(cause, PrivateAddressError):
        text = "the target's address is a private one, and its settings do not allow that"
        return CallResult("refused", text)
    number = getattr(cause, "errno", None)
    reason = os.strerror(number) if number else "it cannot be connected to"
    return next(
        CallResult(kind, text.format(when=when, reason=reason, error=error))
        for types, kind, text in _ERRORS
        if isinstance(error, types)
    )
