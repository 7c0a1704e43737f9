"""The request and response models of the API for jobs and targets."""

import time
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasGenerator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema

from sidecar.http import problem_kinds
from sidecar.http.long_poll import MAX_WAIT_S
from sidecar.http.models import (
    At,
    Body,
    Headers,
    Name,
    PageParameters,
    PageReply,
    Parameters,
    Reply,
    Seconds,
    matching,
    optional,
    wanted,
)
from sidecar.jobs.model import ENDED_STATES, ID_PATTERN, JobKind, JobQuery, State
from sidecar.jobs.request import QueryValue
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.errors import InputError
from sidecar.kit.moments import DatedPast, read_past, read_zoned

UNKNOWN_JOB = problem_kinds.Kind(
    "unknown_job",
    404,
    "Unknown job",
    "This token has no job with this id.",
    "Check the id, and send the token that submitted the job. Ended jobs are deleted after "
    "`result_ttl`.",
)
UNKNOWN_TARGET = problem_kinds.unknown("target")
GRANT_NEEDED = problem_kinds.Kind(
    "grant_needed",
    403,
    "That is not allowed",
    "The job names a class, but has no grant for it.",
    "Send a grant for that class with the job, or a token with the scope `classes`.",
)
WRONG_STATE = problem_kinds.Kind(
    "wrong_state",
    409,
    "The job's state does not allow it",
    "The job's state does not allow it.",
    "Read the job's state first.",
)
IDEMPOTENCY_KEY_USED = problem_kinds.Kind(
    "idempotency_key_used",
    422,
    "Another job has this idempotency_key",
    "A job with different content has this `idempotency_key`.",
    "Use a new key for another job.",
)

#: The largest result body that a job's JSON contains, in bytes. A larger body is only at /body.
MAX_INLINE_BYTES = 65_536
#: The longest history of a target, in hours.
MAX_HOURS = 24 * 31
#: The pattern of an idempotency key.
KEY_PATTERN = r"[!-~]{1,128}"
KEY_HINT = "1 to 128 visible ASCII characters"

#: How far in the future a job may be scheduled, in seconds: 366 days.
MAX_DELAY_S = 31_622_400

#: The maximum number of jobs that one bulk request changes.
MAX_BULK_JOBS = 100
#: The maximum number of jobs that one request waits for.
MAX_AWAITED_JOBS = 1000
NOT_ENDED_STATES = frozenset(State) - ENDED_STATES
#: The states of the jobs that a bulk request retries by default.
DEFAULT_RETRY_STATES = frozenset({State.FAILED, State.EXPIRED})
StateName = Literal[
    "pending", "called", "processing", "completed", "failed", "cancelled", "expired"
]
After = Annotated[
    str, *matching(r"([0-9]{1,15}\.[A-Za-z0-9_-]{1,32})?", "the `next` of the page before")
]

_JobId = Annotated[str, *matching(ID_PATTERN, "ids of jobs, 22 letters, digits, - and _ each")]
Id = Annotated[str, Field(json_schema_extra={"pattern": f"^{ID_PATTERN}$"})]
Query = Annotated[
    str | dict[str, QueryValue | list[QueryValue]],
    wanted("a text, or an object of texts, numbers and lists of them"),
]
#: A string that the API returns as null if it is empty.
NullIfEmpty = Annotated[str | None, BeforeValidator(lambda text: text or None)]
#: A duration in seconds, converted from ms.
FromMs = Annotated[Seconds, BeforeValidator(lambda ms: ms / 1000)]
Rounded = Annotated[Seconds, AfterValidator(lambda seconds: round(seconds, 3))]


#: A time with its zone, converted to ms since 1970.
RunAt = Annotated[
    int, BeforeValidator(read_zoned), WithJsonSchema({"type": "string", "format": "date-time"})
]


class JobPath(Parameters):
    id: Annotated[Id, Field(examples=["x0m3yQ8qS7mVt1cJr2nW4A"])]
    """The `id` that submitting the job returned."""


class FindJob(JobPath):
    wait: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = 0
    """How long to keep the request open until the job has ended or is called, in seconds."""


_OFFLINE_EXAMPLE: dict[str, Any] = {
    "target": "images",
    "method": "POST",
    "path": "generate",
    "body": {"prompt": "a lighthouse"},
    "idempotency_key": "order-4711",
}


class SubmitHeaders(Headers):
    traceparent: str | None = None
    """The trace in which the job is called (W3C Trace Context), unless the job's own headers name
    one. It is stored with the job, and sent to the target and with the callback. A malformed trace
    is ignored."""
    tracestate: str | None = None
    """The vendor-specific part of the trace."""
    idempotency_key: str | None = None
    """The same as `idempotency_key` in the body, with or without quotes. If both are given, they
    must be the same."""


class SubmitJob(Body):
    """A field that is null counts as missing."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [_OFFLINE_EXAMPLE, {"target": "images", "kind": "online"}]}
    )

    target: Name
    """The target that the job calls."""
    kind: JobKind | None = None
    """`offline`: a worker makes the call. `online`: your program makes it, once the job is called.
    Default: the first of the target's kinds. An online job has none of the fields from `method` to
    `body_base64`."""
    method: str | None = None
    """GET, HEAD, POST, PUT, PATCH or DELETE, if the target allows it. Default: POST if there is a
    body, otherwise GET."""
    path: str | None = None
    """The path below the target's `url`, if that ends with `/`. It is percent-encoded and does not
    begin with `/`."""
    query: Query | None = None
    """The query: a string, which is sent unchanged, or an object of names and values."""
    headers: dict[str, str] | None = None
    """Request headers by name."""
    body: Any = None
    """The body: a string is sent unchanged, any other JSON as application/json."""
    body_base64: Annotated[str | None, Field(json_schema_extra={"contentEncoding": "base64"})] = (
        None
    )
    """The body in base64, instead of `body`, if it is not text."""
    class_name: Annotated[str | None, Field(alias="class")] = None
    """The job's class. Requires a `grant` for this class, or a token with the scope `classes`."""
    grant: str | None = None
    """A signed grant, which gives the job its class."""
    idempotency_key: Annotated[str, *matching(KEY_PATTERN, KEY_HINT)] | None = None
    """Your own key for the job. A second request with the same key and content returns the same
    job."""
    callback_url: str | None = None
    """The URL that gets a POST when the job ends. The target's `callback_urls` must allow it."""
    run_at: RunAt | None = None
    """When the job may first be called: a time in ISO 8601 with its zone, at most 366 days ahead. A
    time in the past means now."""
    delay: Annotated[FiniteFloat, Field(ge=0, le=MAX_DELAY_S)] | None = None
    """How long the job must wait first, in seconds. Use either this or `run_at`."""

    #: Not a member. It is here for its error text.
    priority: SkipJsonSchema[
        Annotated[None, wanted("is what a class has; send a signed grant, which gives a class")]
    ] = None


class SubmitJobs(Body):
    jobs: Annotated[list[SubmitJob], Field(min_length=1, max_length=MAX_BULK_JOBS)]
    """The jobs, at most 100 and 256 KB in total, each as in `POST /v1/jobs`."""


class RefusedJob(Reply):
    index: int
    """The job's index in the request, from 0."""
    code: str
    """The code of the problem, such as `queue_full`."""
    reason: str
    """Why the job was not accepted."""


class SubmittedJobs(Reply):
    """The jobs that were accepted, and those that were not."""

    ids: list[Id | None]
    """The id of each job, in the order of the request. null if the job was refused."""
    refused: list[RefusedJob]
    """The jobs that were not accepted."""


class JobResult(Reply):
    """The target's response, for a job that completed, or failed because of `fail_on`."""

    status: int | None
    """The HTTP status of the response."""
    headers: dict[str, str]
    """The response headers."""
    size: int
    """The size of the body, in bytes."""
    body_url: str
    """The path from which to get the whole body."""
    body: Annotated[str | None, optional] = None
    """The body, if it is text of at most 65,536 bytes. Missing in lists."""
    body_base64: Annotated[str | None, optional] = None
    """The body in base64, if it is not text."""


def _make_job_alias(name: str) -> AliasPath:
    return AliasPath("job", name.replace("_at", "_ms"))


class JobDocument(Reply):
    """A job and its state. A field is null if the event has not happened, or does not apply."""

    __qualname__ = "Job"  # its name in the OpenAPI document
    # Validated from a service.JobView. Without a validation_alias, a field comes from its `job`.
    model_config = ConfigDict(
        from_attributes=True, alias_generator=AliasGenerator(validation_alias=_make_job_alias)
    )

    id: Id
    """The job's id."""
    target: str
    """The target that the job calls."""
    kind: JobKind
    """`offline`: a worker makes the call. `online`: your program makes it."""
    state: Annotated[State, Field(validation_alias="state")]
    """The job's state. `called`: an online job may call the target now. `completed`: the target
    gave a response that is not in its `fail_on`; by default a 2xx."""
    owner: str
    """Who submitted the job: the name of the token, `service` or `operator`."""
    class_name: Annotated[NullIfEmpty, Field(serialization_alias="class")]
    """The job's class."""
    method: str
    """The method of the call."""
    path: str
    """The path of the call."""
    query: NullIfEmpty
    """The query of the call."""
    position: Annotated[int | None, Field(ge=1, validation_alias="position")]
    """The position in the queue. 1 is next."""
    wait_seconds: Annotated[Rounded | None, Field(validation_alias="wait_s")]
    """The expected wait until the call, in seconds."""
    attempts: int
    """How many times the call was started."""
    status: int | None
    """The HTTP status of the last response, even of a failed attempt."""
    error: NullIfEmpty
    """Why the job or its last attempt failed."""
    created_at: At
    """When the job was submitted."""
    called_at: At | None
    """When the job was called (online jobs)."""
    started_at: At | None
    """When the last call began."""
    ended_at: At | None
    """When the job ended."""
    expires_at: At
    """For a pending job, when it expires, counted from the submission or `run_at`. For an ended
    job, when it is removed."""
    run_at: Annotated[At | None, Field(validation_alias="run_ms")]
    """The earliest time of the first attempt. null if there is none, or if it has passed."""
    retry_at: Annotated[At | None, Field(validation_alias="retry_ms")]
    """The earliest time of the next attempt."""
    permit: Annotated[str | None, Field(validation_alias="permit")]
    """The permit for one call, for an online job in state `called`."""
    permit_expires_at: Annotated[At | None, Field(validation_alias="permit_expires_ms")]
    """When the permit expires."""
    trace_id: str | None
    """The id of the trace (W3C Trace Context) in which the job was submitted: 32 hexadecimal
    digits."""
    result: JobResult | None = None
    """The target's response."""


class ResultsParameters(Parameters):
    wait: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = 0
    """How long to keep the request open until one of the jobs ends or is called, in seconds."""


class AwaitedJobs(Body):
    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_AWAITED_JOBS)]
    """The ids of the jobs, at most 1,000."""


class JobResults(Reply):
    jobs: list[JobDocument]
    """The jobs that have ended or are called, at most 50, in the order of `ids`."""


class JobList(PageReply):
    """A page of jobs, newest first."""

    __qualname__ = "Jobs"
    jobs: list[JobDocument]
    """The jobs, newest first."""


class JobFilter(BaseModel):
    """A filter for jobs. A job must match all parameters."""

    target: str | None = None
    """Only jobs of this target."""
    state: StateName | None = None
    """Only jobs in this state."""
    status: Annotated[
        str | None, *matching(r"[1-5]([0-9]{2}|xx)", "an HTTP status such as 503, or 5xx")
    ] = None
    """Only jobs whose last response had this HTTP status, such as `503` or, for a class, `5xx`."""
    id: Annotated[str | None, *matching("[A-Za-z0-9_-]{1,22}", "the beginning of an id")] = None
    """Only the job with this id, or jobs whose ids begin with this."""
    owner: str | None = None
    """Only jobs that this token submitted. For operators: a program sees only its own jobs."""
    from_: Annotated[DatedPast, Field(alias="from", examples=["24h", "2026-11-27T18:00Z"])] = ""
    """Only jobs submitted at this time or later: a date or time (ISO 8601; UTC if it has no zone),
    or how long ago."""
    to: Annotated[DatedPast, Field(examples=["1h", "2026-11-28T00:00Z"])] = ""
    """Only jobs submitted before this time, written as in `from`."""

    def to_query(self, owner: str | None, **more: Any) -> JobQuery:
        """Return the search by this filter. It finds only jobs of `owner`, unless that is None.
        `more` has other fields of JobQuery. Raises InputError."""
        if owner is not None and self.owner not in {None, owner}:
            raise InputError([f"owner: the token {owner} sees only its own jobs"])
        now_ms = round(time.time() * 1000)
        low = int((self.status or "0").replace("x", "0"))
        return JobQuery(
            owner=owner or self.owner,
            target=self.target,
            states=frozenset({self.state} if self.state else ()),
            statuses=(low, low + 99 if "x" in (self.status or "") else low) if low else None,
            id=self.id or "",
            from_ms=read_past(self.from_, now_ms) if self.from_ else None,
            to_ms=read_past(self.to, now_ms) if self.to else None,
            **more,
        )


class JobsPage(JobFilter, PageParameters):
    """The parameters of a page of jobs."""

    model_config = ConfigDict(extra="forbid")

    after: After = ""
    """The `next` of the previous page."""


class FailedJobs(JobFilter, Parameters):
    """A filter for failed jobs."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["failed"] | None = None
    """`failed`. It makes no difference, because only failed jobs are considered."""


class FailureReason(Reply):
    """A reason for which jobs failed."""

    model_config = ConfigDict(from_attributes=True)

    status: int | None
    """The HTTP status of the last response. null: there was no response."""
    error: str
    """What went wrong, in words."""
    jobs: int
    """How many jobs failed for this reason."""
    last_at: Annotated[At, Field(validation_alias="last_ms")]
    """When the last of these jobs failed."""


class FailureReasons(Reply):
    reasons: list[FailureReason]
    """The reasons, the most frequent first, at most 50."""
    jobs: int
    """How many jobs were grouped: at most the newest 1,000 that match."""


class SelectedJobs(JobFilter, Body):
    """Either the `ids` of jobs, or a filter."""

    ids: Annotated[list[_JobId], Field(min_length=1, max_length=MAX_BULK_JOBS)] | None = None
    """The ids of the jobs, at most 100."""
    after: After = ""
    """The `next` of the previous response."""
    dry_run: bool = False
    """Only count the jobs, up to 10,000, and change none."""

    def to_bulk_query(
        self, owner: str | None, states: frozenset[State], default_states: frozenset[State]
    ) -> JobQuery:
        """Return the search by this filter, for jobs in `default_states` if it has no state.
        Raises InputError if the filter is empty, or names a state that is not in `states`."""
        query = self.to_query(owner, after=parse_after(self.after), limit=MAX_BULK_JOBS)
        filters = self.model_dump(exclude={"ids", "after", "dry_run"}, exclude_defaults=True)
        problems = []
        if not filters:
            problems.append("ids: name them, or say which jobs: by state, target, status, …")
        if not query.states <= states:
            problems.append(f"state: one of {', '.join(sorted(states))}")
        if problems:
            raise InputError(problems)
        return query if query.states else replace(query, states=default_states)


def parse_after(text: str) -> tuple[int, str] | None:
    ms, _, id_ = text.partition(".")
    return (int(ms), id_) if id_ else None


def format_after(after: tuple[int, str] | None) -> str | None:
    return None if after is None else f"{after[0]}.{after[1]}"


class SkippedJob(Reply):
    id: _JobId
    """The job's id."""
    reason: str
    """Why the job was not changed."""


class ChangedJobs(PageReply):
    """`next`: the `after` of the request that changes the next jobs. null if there are no more."""

    changed: int
    """How many jobs were changed; with `dry_run`, how many would be."""
    skipped: list[SkippedJob]
    """Jobs that were not changed."""


class CancelledJob(Reply):
    id: Id
    """The job's id."""
    state: Literal["cancelled", "processing"]
    """The job's state. `processing`: its call is being aborted."""
    aborting: Annotated[Literal[True] | None, optional] = None
    """true while the job's call is being aborted."""


class TargetPath(Parameters):
    name: Annotated[Name, Field(examples=["images"])]
    """The target's name."""


class HistoryParameters(TargetPath):
    hours: Annotated[int, Field(ge=1, le=MAX_HOURS)] = 24
    """The length of the history, in hours."""


class TargetChanges(Body):
    """Settings by name: either all are changed, or none. `headers` replaces all headers; write ***
    to keep a header's stored value."""

    # TargetSettings validates the changes, merged with the target's other settings.
    model_config = ConfigDict(extra="allow")


class TargetDocument(Reply):
    """A target and its state."""

    __qualname__ = "Target"
    name: str
    """The target's name."""
    source: Literal["file", "run time"]
    """`file`: the settings are as configured. `run time`: they were changed, or the target was
    created, at run time."""
    settings: TargetSettings
    """The settings. Durations are in seconds, and secret values are `***`."""
    waiting: int
    """How many jobs are in the queue."""
    later: int
    """How many jobs wait for the time of their next attempt, or for their `run_at`."""
    running: Annotated[int, Field(validation_alias="active")]
    """How many calls are in progress, including those of issued permits."""
    calls_in_window: int
    """How many calls count against the rate now."""
    mean_seconds: Annotated[Seconds | None, Field(validation_alias="mean_s")]
    """The mean duration of a call, in seconds. null if no call was measured yet."""
    calls_per_second: Rounded
    """The target's estimated capacity, in calls per second."""
    wait_seconds: Rounded
    """The expected wait of a new job, in seconds."""
    breaker: Literal["closed", "open", "trial"]
    """`open`: no calls, because calls failed. `trial`: one call at a time tests the target."""
    open_until: Annotated[At | None, Field(validation_alias="open_until_ms")]
    """When the open breaker allows the next call."""
    held_until: Annotated[At | None, Field(validation_alias="held_until_ms")]
    """When calls may start again, because the target sent Retry-After."""
    is_ready: bool
    """false while the queue is being rebuilt, because Redis was emptied."""
    runner_seen_at: Annotated[At | None, Field(validation_alias="runner_ms")]
    """When a worker last asked for jobs. null if none has asked since Redis was last empty."""
    has_runner: bool
    """false if no worker asked for jobs in the last 15 s, and no call is in progress. Offline jobs
    wait until you start a worker."""
    state: Literal["coming back", "paused", "no worker", "failing", "trying", "held", "running"]
    """What the target does now. `coming back`: the queue is being rebuilt. `failing`: the breaker
    is open. `trying`: one call at a time tests the target. `held`: the target sent Retry-After."""
    counters: dict[str, int]
    """Calls since Redis was last empty: `called`, `completed`, `failed` and others."""
    jobs: dict[str, int]
    """How many jobs are stored, by state."""


class Targets(Reply):
    targets: list[TargetDocument]
    """All targets."""


class RestoredTarget(Reply):
    target: TargetDocument | None
    """The target. null if it was removed, because it is not configured."""


class HistoryStep(Reply):
    at: Annotated[At, Field(validation_alias="at_ms")]
    """When the step begins."""
    completed: int
    """How many jobs completed."""
    failed: int
    """How many jobs failed."""
    other: int
    """How many jobs were cancelled or expired."""
    mean_wait_seconds: Annotated[FromMs | None, Field(validation_alias="mean_wait_ms")]
    """The mean wait of the jobs, in seconds."""
    mean_seconds: Annotated[FromMs | None, Field(validation_alias="mean_ms")]
    """The mean duration of the jobs' calls, in seconds."""
    calls_completed: int | None = None
    """How many calls succeeded. null: unknown, because the step was before the last 1,440 minutes
    with calls, or before Redis was emptied."""
    calls_failed: int | None = None
    """How many calls failed, including those of jobs that were retried."""
    calls_retried: int | None = None
    """How many of the calls were followed by a wait for another attempt."""


class TargetHistory(Reply):
    target: str
    """The target's name."""
    step_seconds: Seconds
    """The length of a step, in seconds."""
    steps: list[HistoryStep]
    """The steps, oldest first."""


class CheckPermit(Headers):
    x_waitroom_target: Name
    """The target of the call."""
    x_waitroom_permit: str | None = None
    """The permit. Requests without one are refused."""
    x_waitroom_given: str | None = None
    """The X-Waitroom-Job of the previous response, if the proxy checks a request twice."""


class PermitPassed(Headers):
    x_waitroom_state: Literal["admitted"]
    """The result."""
    x_waitroom_job: str
    """The id of the job that the permit is for."""


RefusalReason = Literal["none", "forged", "expired", "used", "over"]


class PermitRefused(Headers):
    x_waitroom_state: RefusalReason | Literal["permit-away", "unknown-target"]
    """Why the permit was refused. `permit-away`: Redis is unavailable."""
    x_waitroom_reason: RefusalReason | None = None
    """Why the permit was refused. `over`: the permit became invalid, such as when the job ended."""
    retry_after: Annotated[int, Field(ge=1)] | None = None
    """How long to wait while Redis is unavailable, in seconds."""
