"""Makes one call of a job, and says what came of it. How far it reaches: kit/egress.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http import HttpProcessingError

from sidecar import __version__
from sidecar.jobs.model import CHUNK, Outcome
from sidecar.jobs.request import MAX_HEADERS, MAX_HEADERS_BYTES, Call, check_request
from sidecar.jobs.settings import same_header
from sidecar.kit.egress import PrivateAddressError, open_session
from sidecar.kit.errors import ConfigError
from sidecar.kit.http.retry_after import seconds_in

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from sidecar.jobs.model import Job
    from sidecar.jobs.settings import TargetSettings

#: Takes the parts of a large answer, numbered from 0.
Sink = Callable[[int, bytes], Awaitable[None]]

#: A target that asks for more is asked again by then, seconds.
LONGEST_RETRY_AFTER_S = 3600.0
#: Of the connection, not of the answer; and what is not the caller's.
_NOT_TOLD = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "set-cookie", "set-cookie2",
})  # fmt: skip
_NOT_TOLD_WITH_BODY = _NOT_TOLD | {"content-length"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}\Z")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class _OverError(Exception):
    """The call is over, and this came of it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


class Egress:
    """The way out. To be made within a running loop."""

    def __init__(self, *, resolver: AbstractResolver | None = None) -> None:
        names = resolver or aiohttp.ThreadedResolver()
        self._public = open_session(names, is_private=False)
        self._private = open_session(names, is_private=True)

    async def close(self) -> None:
        await self._public.close()
        await self._private.close()

    async def call(self, settings: TargetSettings, job: Job, *, sink: Sink) -> Outcome:
        """Never raises for what a target does; what `sink` raises is passed on. The time that it
        takes is not counted as the target's. Cancelled, it closes the connection."""
        began = time.monotonic()
        try:
            call, url = check_request(settings, job)
        except ConfigError as error:
            said = "; ".join(error.problems)
            return Outcome("refused", f"the target does not allow this request any more: {said}")
        session = self._private if settings.private else self._public
        scope = asyncio.timeout(settings.timeout)
        try:
            async with scope:
                with _errors_told():
                    reply = await session.request(
                        call.method, url, headers=_headers(settings, call, job),
                        data=call.body or None, allow_redirects=False,
                    )  # fmt: skip
                try:
                    outcome = await _judge(reply, settings, _paused(scope, sink))
                finally:
                    _let_go(reply)
        except _OverError as over:
            outcome = over.outcome
        except TimeoutError:
            if not scope.expired():
                raise
            outcome = Outcome("failed", f"no whole answer within {settings.timeout:g} s")
        return replace(outcome, took_us=round((time.monotonic() - began) * 1_000_000))


async def _judge(reply: aiohttp.ClientResponse, settings: TargetSettings, sink: Sink) -> Outcome:
    status, told = reply.status, _told(reply)
    if settings.retries_on(status):
        asked_s = seconds_in(reply.headers.get("Retry-After", ""), time.time())
        return Outcome(
            "busy" if status == 429 else "failed", f"the target says {status}", status, told,
            retry_after_s=min(asked_s, LONGEST_RETRY_AFTER_S) or None,
        )  # fmt: skip
    if status < 200:
        return Outcome("failed", f"the target says {status}, which is no answer")
    body, size = await _read(reply, settings.max_result, sink)
    return Outcome("answered", "", status, told, body, size)


def _let_go(reply: aiohttp.ClientResponse) -> None:
    """Of a reply that was read to its end the connection is back with the others already."""
    if reply.connection is not None and reply.connection.transport is not None:
        # Not closed: that would wait until the target has taken leave too, where there is TLS.
        reply.connection.transport.abort()
    reply.close()


async def _read(reply: aiohttp.ClientResponse, most: int, sink: Sink) -> tuple[bytes, int]:
    """The body, unless the sink has it; and its length."""
    has_body = reply.method != "HEAD" and reply.status not in {204, 304}
    size, number, kept = 0, 0, bytearray()
    is_too_large = has_body and (reply.content_length or 0) > most
    while not is_too_large:
        with _errors_told(f"after {size:,} bytes of the answer"):
            part = await reply.content.readany()
        if not part:
            break
        size += len(part)
        is_too_large = size > most
        kept += part
        while len(kept) > CHUNK and not is_too_large:
            await sink(number, bytes(kept[:CHUNK]))
            del kept[:CHUNK]
            number += 1
    if is_too_large:
        said = f"the answer is larger than {most:,} bytes (max_result)"
        raise _OverError(Outcome("refused", said, reply.status))
    if number:
        await sink(number, bytes(kept))
        return b"", size
    return bytes(kept), size


def _paused(scope: asyncio.Timeout, sink: Sink) -> Sink:
    """While it works the call's time stands still."""
    loop = asyncio.get_running_loop()

    async def keep(number: int, data: bytes) -> None:
        left_s = (scope.when() or 0.0) - loop.time()
        scope.reschedule(None)
        await sink(number, data)
        scope.reschedule(loop.time() + left_s)

    return keep


def _headers(settings: TargetSettings, call: Call, job: Job) -> dict[str, str]:
    """The job's, over them the target's, over them ours."""
    named = {same_header(name) for name in settings.headers}
    headers = {name: text for name, text in call.headers.items() if same_header(name) not in named}
    headers |= settings.headers
    if not any(same_header(name) == "user-agent" for name in headers):
        headers["User-Agent"] = f"waitroom/{__version__}"
    if call.method == "HEAD":
        # Who answers it with a body all the same would have it read as the next answer.
        headers["Connection"] = "close"
    return headers | {
        "Accept-Encoding": "identity",
        "Idempotency-Key": job.id,
        "X-Waitroom-Attempt": str(job.attempts),
    }


def _told(reply: aiohttp.ClientResponse) -> dict[str, str]:
    """What of an answer's headers is told to the caller: what fits, and breaks no line."""
    hidden = _NOT_TOLD if reply.method == "HEAD" else _NOT_TOLD_WITH_BODY
    for named in reply.headers.getall("Connection", ()):
        hidden |= {name.strip().lower() for name in named.split(",")}
    told: dict[str, str] = {}
    left = MAX_HEADERS_BYTES
    for raw_name, raw_value in reply.raw_headers:
        name = raw_name.decode("latin-1").lower()
        value = _CONTROLS.sub(" ", raw_value.decode("latin-1")).strip()
        if name in hidden or not _NAME.match(name):
            continue
        size = len(value) + (2 if name in told else len(name))
        if size > left or (name not in told and len(told) == MAX_HEADERS):
            continue
        left -= size
        told[name] = f"{told[name]}, {value}" if name in told else value
    return told


@contextlib.contextmanager
def _errors_told(when: str = "before an answer came") -> Iterator[None]:
    """Raises _OverError for what a client's errors say."""
    try:
        yield
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise _OverError(Outcome("refused", "the target's address cannot be called")) from None
    except aiohttp.ClientConnectorError as error:
        if isinstance(getattr(error, "os_error", None), PrivateAddressError):
            said = "the target's address is a private one, and its settings do not allow that"
            raise _OverError(Outcome("refused", said)) from None
        raise _OverError(Outcome("failed", _unreached(error))) from None
    except (aiohttp.ClientResponseError, HttpProcessingError):
        said = f"what came is no HTTP, or its head is too large, {when}"
        raise _OverError(Outcome("failed", said)) from None
    except (aiohttp.ClientError, OSError):
        raise _OverError(Outcome("failed", f"the connection broke {when}")) from None
    except ValueError:
        raise _OverError(Outcome("refused", "the request cannot be made")) from None


def _unreached(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the target's certificate does not prove that it is the target"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no TLS connection to the target comes about"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the target's name leads to no address"
    number = error.os_error.errno
    said = os.strerror(number) if number else "it cannot be connected to"
    return f"the target is not reached: {said}"
