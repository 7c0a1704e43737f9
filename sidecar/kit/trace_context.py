"""Reads the headers of W3C Trace Context, and adds the id of the trace to log lines.

Waitroom records no spans, so it forwards the headers unchanged, and the receiver's span is a child
of the caller's span. With a parent id of Waitroom's, the receiver's span would be a child of a span
that does not exist. The Recommendation allows both (3.4, Mutating the traceparent Field)."""

import asyncio
import re
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar, Token
from typing import Any, TypeAlias

from multidict import MultiMapping

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
HEADERS = (TRACEPARENT, TRACESTATE)
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_STATE_MEMBER = re.compile(r"([a-z0-9][a-z0-9_*/@-]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
#: The maximum length and number of members of a tracestate that is forwarded.
_MAX_STATE, _MAX_MEMBERS = 512, 32


def read_trace_context(headers: MultiMapping[str]) -> dict[str, str]:
    """Return the headers to forward. Return {} if traceparent is missing or invalid, and omit an
    invalid tracestate."""
    parents = headers.getall(TRACEPARENT, [])
    match = _TRACEPARENT.fullmatch(parents[0].strip(" \t")) if len(parents) == 1 else None
    if match is None or (match[1] == "00" and match[5] is not None):
        return {}
    traceparent = match[0]
    if match[1] != "00":  # of later versions, only the first flag is known
        traceparent = f"00-{match[2]}-{match[3]}-{int(match[4], 16) & 1:02x}"
    state = ",".join(headers.getall(TRACESTATE, [])).strip(" \t")
    members = [member.strip(" \t") for member in state.split(",") if member.strip(" \t")]
    matches = [_STATE_MEMBER.fullmatch(member) for member in members]
    keys = {each[1] for each in matches if each is not None}
    # Keys are unique, so there are as many keys as members if all members are valid.
    if 0 < len(keys) == len(members) <= _MAX_MEMBERS and len(state) <= _MAX_STATE:
        return {TRACEPARENT: traceparent, TRACESTATE: state}
    return {TRACEPARENT: traceparent}


def get_trace_id(trace: Mapping[str, str]) -> str | None:
    """Return the id of the trace, 32 hexadecimal digits, or None if there is no trace."""
    traceparent = trace.get(TRACEPARENT)
    return traceparent[3:35] if traceparent else None


_Logged: TypeAlias = tuple["asyncio.Task[Any] | None", str]
#: The task whose log lines have the id of a trace, and the id. The lines of its child tasks do not
#: have it, because those may also work on other requests.
_logged: ContextVar[_Logged | None] = ContextVar("logged_trace", default=None)


def log_trace(trace: Mapping[str, str]) -> Token[_Logged | None] | None:
    """Add `trace_id` to the log lines of this task from now on. Return a token, with which to call
    `stop_logging_trace`, or None if there is no trace."""
    trace_id = get_trace_id(trace)
    return _logged.set((asyncio.current_task(), trace_id)) if trace_id else None


def stop_logging_trace(token: Token[_Logged | None]) -> None:
    _logged.reset(token)


def add_trace_id(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the id of this task's trace to a log line. structlog calls this as a processor."""
    logged = _logged.get()
    if logged is not None and logged[0] is _find_task():
        event.setdefault("trace_id", logged[1])
    return event


def _find_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
