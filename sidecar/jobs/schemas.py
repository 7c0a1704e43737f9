"""Requests and responses of jobs and targets."""

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
    model_validator,
)

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
    Time,
    matching,
    optional,
    wanted,
)
from sidecar.jobs.model import ENDED, ID_PATTERN, JobKind, JobQuery, State
from sidecar.jobs.request import Value
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.errors import ConfigError
from sidecar.kit.moments import Past, read_past

UNKNOWN_JOB = problem_kinds.Kind(
    "unknown_job",
    404,
    "Unknown job",
    "This token has no job of this id.",
    "Check the id, and send the token that submitted the job. Ended jobs are deleted after "
    "`result_ttl`.",
)
UNKNOWN_TARGET = problem_kinds.unknown("target")
GRANT_NEEDED = problem_kinds.Kind(
    "grant_needed",
    403,
    "That is not allowed",
    "The job names a class without a grant that covers it.",
    "Send a grant of that class with the job.",
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
    "A job with other content has this `idempotency_key`.",
    "Use a new key for another job.",
)

#: Answers in a job's document, bytes; longer ones are at its /body.
MAX_INLINE = 65_536
MAX_HOURS = 24 * 31
KEY = r"[!-~]{1,128}"
KEY_WANTED = "1 to 128 visible ASCII characters"

#: Jobs that one request changes.
MOST_CHANGED = 100
NOT_ENDED = frozenset(State) - ENDED
#: The states of jobs that are retried if the request names none.
WENT_WRONG = frozenset({State.FAILED, State.EXPIRED})
StateName = Literal[
    "pending", "called", "processing", "completed", "failed", "cancelled", "expired"
]
After = Annotated[
    str, *matching(r"([0-9]{1,15}\.[A-Za-z0-9_-]{1,32})?", "the `next` of the page before")
]


_JobId = Annotated[str, *matching(ID_PATTERN, "ids of jobs, 22 letters, digits, - and _ each")]
Id = Annotated[str, Field(json_schema_extra={"pattern": f"^{ID_PATTERN}$"})]
Query = Annotated[
    str | dict[str, Value | list[Value]],
    wanted("a text, or an object of texts, numbers and lists of them"),
]
#: Text that is null where the database has an empty one.
Text = Annotated[str | None, BeforeValidator(lambda text: text or None)]
#: Seconds, made from ms.
FromMs = Annotated[Seconds, BeforeValidator(lambda ms: ms / 1000)]
Rounded = Annotated[Seconds, AfterValidator(lambda seconds: round(seconds, 3))]


class JobAddress(Parameters):
    id: Annotated[Id, Field(examples=["x0m3yQ8qS7mVt1cJr2nW4A"])]
    """The `id` that submitting the job returned."""


class FindJob(JobAddress):
    wait: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = 0
    """Keeps the request open until the job has ended or is called, this many seconds at most."""


_OFFLINE: dict[str, Any] = {
    "target": "images",
    "method": "POST",
    "path": "generate",
    "body": {"prompt": "a lighthouse"},
    "idempotency_key": "order-4711",
}


class SubmitHeaders(Headers):
    idempotency_key: str | None = None
    """The same as `idempotency_key` in the body, which comes first."""


class SubmitJob(Body):
    """A member that is null is as if it was not there."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [_OFFLINE, {"target": "images", "kind": "online"}]}
    )

    target: Name
    """The target that the job calls."""
    kind: JobKind | None = None
    """`offline`: a worker makes the call. `online`: your program makes it, when it is called.
    Default: the first of the target's kinds. An online job has none of the fields from `method` to
    `body_base64`."""
    method: str | None = None
    """GET, HEAD, POST, PUT, PATCH or DELETE, if the target allows it. Default: POST with a body,
    else GET."""
    path: str | None = None
    """Below the target's `url`, if that ends with `/`. Percent-encoded, without `/` at its
    beginning."""
    query: Query | None = None
    """As text, sent as it is, or as an object."""
    headers: dict[str, str] | None = None
    """Request headers by name."""
    body: Any = None
    """Text is sent as it is, any other JSON as application/json."""
    body_base64: Annotated[str | None, Field(json_schema_extra={"contentEncoding": "base64"})] = (
        None
    )
    """A body that is not text, in place of `body`."""
    class_name: Annotated[str | None, Field(alias="class")] = None
    """The job's class. It needs a `grant` that gives this class."""
    grant: str | None = None
    """A signed grant. It gives its class."""
    idempotency_key: Annotated[str, *matching(KEY, KEY_WANTED)] | None = None
    """Your own name for the job. A second request with the same key and content returns the same
    job."""
    callback_url: str | None = None
    """Receives a POST when the job has ended. The target's `callback_urls` must allow it."""

    @model_validator(mode="before")
    @classmethod
    def _priority_is_a_class(cls, given: Any) -> Any:
        if isinstance(given, dict) and "priority" in given:
            raise ValueError(
                "priority: is what a class has; send a signed grant, which gives a class"
            )
        return given


class JobResult(Reply):
    """What the target answered: of a job that is completed, or has failed by `fail_on`."""

    status: int | None
    """The HTTP status of the target's answer."""
    headers: dict[str, str]
    """Its headers."""
    size: int
    """The body's size, bytes."""
    body_url: str
    """The path of the whole body."""
    body: Annotated[str | None, optional] = None
    """The body, if it is text of at most 65,536 bytes. Not in lists."""
    body_base64: Annotated[str | None, optional] = None
    """The same for a body that is not text."""


def _of_job(name: str) -> AliasPath:
    return AliasPath("job", name.replace("_at", "_ms"))


class Job(Reply):
    """A job as it stands. null: has not happened, or does not apply."""

    # Read from a service.JobView: from its job, unless a field names another source.
    model_config = ConfigDict(
        from_attributes=True, alias_generator=AliasGenerator(validation_alias=_of_job)
    )

    id: Id
    """The job's id."""
    target: str
    """The target that it calls."""
    kind: JobKind
    """`offline`: a worker makes the call. `online`: your program makes it."""
    state: Annotated[State, Field(validation_alias="state")]
    """`called`: an online job that may call the target now."""
    owner: str
    """The name of the token that submitted it, `service` or `operator`."""
    class_name: Annotated[Text, Field(serialization_alias="class")]
    """Its class."""
    method: str
    """The method of the call."""
    path: str
    """The path of the call."""
    query: Text
    """The query of the call."""
    position: Annotated[int | None, Field(ge=1, validation_alias="position")]
    """In the queue. 1 is next."""
    wait_seconds: Annotated[Rounded | None, Field(validation_alias="wait_s")]
    """The expected wait until it is called."""
    attempts: int
    """How often its call was started."""
    status: int | None
    """The HTTP status of the last answer, also of a failed attempt."""
    error: Text
    """Why it failed, or what went wrong in the last attempt."""
    created_at: At
    """When it was submitted."""
    called_at: At | None
    """When it was called first."""
    started_at: At | None
    """When its last call began."""
    ended_at: At | None
    """When it ended."""
    expires_at: At
    """While it is pending: when it gives up. After its end: when it is removed."""
    retry_at: Annotated[At | None, Field(validation_alias="retry_ms")]
    """It is not tried again before this time."""
    permit: Annotated[str | None, Field(validation_alias="permit")]
    """Only for an online job in state `called`: the permit for one call."""
    permit_expires_at: Annotated[At | None, Field(validation_alias="permit_expires_ms")]
    """Use the permit before this time."""
    result: JobResult | None = None
    """The target's answer."""


class Jobs(PageReply):
    """Newest first."""

    jobs: list[Job]
    """Newest first."""


class JobFilter(BaseModel):
    """Which jobs: those that match all parameters."""

    target: str | None = None
    """Only jobs of this target."""
    state: StateName | None = None
    """Only jobs in this state."""
    status: Annotated[
        str | None, *matching(r"[1-5]([0-9]{2}|xx)", "an HTTP status such as 503, or 5xx")
    ] = None
    """Only jobs whose last answer had this HTTP status: `503`, or any of them: `5xx`."""
    id: Annotated[str | None, *matching("[A-Za-z0-9_-]{1,22}", "the beginning of an id")] = None
    """Only the job of this id, or jobs whose ids begin with it."""
    owner: str | None = None
    """Only jobs that this token submitted. For operators: a program sees only its own."""
    from_: Annotated[Past, Field(alias="from", examples=["24h", "2026-11-27T18:00Z"])] = ""
    """Only jobs submitted from then on: a date or time (ISO 8601, UTC without a zone), or how long
    ago."""
    to: Annotated[Past, Field(examples=["1h", "2026-11-28T00:00Z"])] = ""
    """Only jobs submitted before."""

    def query(self, owner: str | None, **more: Any) -> JobQuery:
        """Return the search. `owner`: whose jobs may be seen; None: all. Raises ConfigError."""
        problems, now_ms = [], round(time.time() * 1000)
        times: dict[str, int] = {}
        for name, text in (("from", self.from_), ("to", self.to)):
            try:
                times |= {name: read_past(text, now_ms)} if text else {}
            except ValueError as error:
                problems.append(f"{name}: {error}")
        if owner is not None and self.owner not in {None, owner}:
            problems.append(f"owner: the token {owner} sees only its own jobs")
        if problems:
            raise ConfigError(problems)
        low = int((self.status or "0").replace("x", "0"))
        return JobQuery(
            owner=owner or self.owner,
            target=self.target,
            states=frozenset({self.state} if self.state else ()),
            statuses=(low, low + 99 if "x" in (self.status or "") else low) if low else None,
            id=self.id or "",
            from_ms=times.get("from"),
            to_ms=times.get("to"),
            **more,
        )


class JobsPage(JobFilter, PageParameters):
    """A page may have fewer jobs than `limit`, or none, while `next` says that others follow:
    `status` and the beginning of an id are looked for among 5,000 jobs at a time."""

    model_config = ConfigDict(extra="forbid")

    after: After = ""
    """The `next` of the page before."""


class SelectedJobs(JobFilter, Body):
    """Either `ids`, or what the jobs have in common."""

    ids: Annotated[list[_JobId], Field(min_length=1, max_length=MOST_CHANGED)] | None = None
    """These jobs, 100 at most."""
    after: After = ""
    """The `next` of the answer before."""
    dry_run: bool = False
    """Only say how many jobs it is, 10,000 at most."""

    def query_of(
        self, owner: str | None, states: frozenset[State], default: frozenset[State]
    ) -> JobQuery:
        """Return the search for jobs in one of `states`; `default`: the states if the filter names
        none. Raises ConfigError if the filter is empty, or names another state."""
        query = self.query(owner, after=read_after(self.after), limit=MOST_CHANGED)
        filters = self.model_dump(exclude={"ids", "after", "dry_run"}, exclude_defaults=True)
        problems = []
        if not filters:
            problems.append("ids: name them, or say which jobs: by state, target, status, …")
        if not query.states <= states:
            problems.append(f"state: one of {', '.join(sorted(states))}")
        if problems:
            raise ConfigError(problems)
        return query if query.states else replace(query, states=frozenset(default))


def read_after(text: str) -> tuple[int, str] | None:
    ms, _, id_ = text.partition(".")
    return (int(ms), id_) if id_ else None


def write_after(after: tuple[int, str] | None) -> str | None:
    return None if after is None else f"{after[0]}.{after[1]}"


class SkippedJob(Reply):
    id: _JobId
    """The job."""
    reason: str
    """Why it was not changed."""


class ChangedJobs(PageReply):
    """`next`: the `after` with which the rest is changed. null: that was all."""

    changed: int
    """How many jobs were changed; with `dry_run`, how many would be."""
    skipped: list[SkippedJob]
    """Jobs that were not changed."""


class CancelledJob(Reply):
    id: Id
    """The job's id."""
    state: Literal["cancelled", "processing"]
    """`processing`: its call is being cut off."""
    aborting: Annotated[Literal[True] | None, optional] = None
    """Its call is being cut off."""


class TargetAddress(Parameters):
    name: Annotated[Name, Field(examples=["images"])]
    """The target's name."""


class HistoryParameters(TargetAddress):
    hours: Annotated[int, Field(ge=1, le=MAX_HOURS)] = 24
    """How many hours to look back."""


class TargetChanges(Body):
    """Settings by name; all are changed, or none. The header names that you send replace all; ***
    stands for a value that is there."""

    # Read by the settings, as they are merged with those that the target has.
    model_config = ConfigDict(extra="allow")


class Target(Reply):
    """A target as it stands."""

    name: str
    """The target's name."""
    source: Literal["file", "run time"]
    """`file`: its settings are the configured ones. `run time`: they were changed, or the target
    was made at run time."""
    settings: TargetSettings
    """Durations are seconds. Secret values are `***`."""
    waiting: int
    """Jobs in the queue."""
    later: int
    """Jobs that wait for their next attempt."""
    running: int
    """Calls in progress, issued permits included."""
    calls_in_window: int
    """Calls that count against the rate now."""
    mean_seconds: Seconds | None
    """How long a call takes on average. null: not measured yet."""
    calls_per_second: Seconds
    """The target's capacity in calls per second, as far as it is known."""
    wait_seconds: Seconds
    """The expected wait of a new job."""
    breaker: Literal["closed", "open", "trial"]
    """`open`: calls failed, and nothing is called. `trial`: one call at a time tests the target."""
    open_until: Time | None
    """When the open breaker tries the next call."""
    held_until: Time | None
    """The target sent Retry-After. Nothing is called before this time."""
    is_ready: bool
    """false: Redis was emptied, and the queue is being rebuilt."""
    runner_seen_at: Time | None
    """When a worker last asked for jobs. null: never since Redis was empty."""
    has_runner: bool
    """false: no worker asked for 15 s, and none has a call in progress. Offline jobs wait until you
    start one."""
    counters: dict[str, int]
    """Calls since Redis was empty: `called`, `completed`, `failed` and others."""
    jobs: dict[str, int]
    """How many jobs are stored, by state."""


class Targets(Reply):
    targets: list[Target]
    """One for each target."""


class RestoredTarget(Reply):
    target: Target | None
    """null: the target is not in the configuration, and is removed."""


class HistoryStep(Reply):
    model_config = ConfigDict(from_attributes=True)

    at: Annotated[At, Field(validation_alias="at_ms")]
    """When the step begins."""
    completed: int
    """Jobs that completed."""
    failed: int
    """Jobs that failed."""
    other: int
    """Jobs that were cancelled or expired."""
    mean_wait_seconds: Annotated[FromMs | None, Field(validation_alias="mean_wait_ms")]
    """How long they waited on average."""
    mean_seconds: Annotated[FromMs | None, Field(validation_alias="mean_ms")]
    """How long their calls took on average."""


class TargetHistory(Reply):
    target: str
    """The target's name."""
    step_seconds: Seconds
    """The length of a step."""
    steps: list[HistoryStep]
    """Oldest first. Steps in which no job ended may be missing."""


class CheckPermit(Headers):
    x_waitroom_target: Name
    """The target that is called."""
    x_waitroom_permit: str | None = None
    """The permit. Without one nothing passes."""
    x_waitroom_given: str | None = None
    """The X-Waitroom-Job of the last response, where the proxy checks one request twice."""


class PermitPassed(Headers):
    x_waitroom_state: Literal["admitted"]
    """The result."""
    x_waitroom_job: str
    """The id of the permit's job."""


Doubt = Literal["none", "forged", "expired", "used", "over"]


class PermitRefused(Headers):
    x_waitroom_state: Doubt | Literal["permit-away", "unknown-target"]
    """`permit-away`: Redis is unavailable."""
    x_waitroom_reason: Doubt | None = None
    """`over`: the job is no longer called."""
    retry_after: Annotated[int, Field(ge=1)] | None = None
    """Seconds, while Redis is unavailable."""
