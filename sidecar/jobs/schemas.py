"""Requests and responses of jobs and targets."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasGenerator,
    AliasPath,
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
    PageReply,
    Parameters,
    Reply,
    Seconds,
    Time,
    matching,
    optional,
    wanted,
)
from sidecar.jobs.model import ID_PATTERN, Kind, State
from sidecar.jobs.request import Value
from sidecar.jobs.settings import TargetSettings

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

Id = Annotated[str, Field(json_schema_extra={"pattern": f"^{ID_PATTERN}$"})]
Query = Annotated[
    str | dict[str, Value | list[Value]],
    wanted("a text, or an object of texts, numbers and lists of them"),
]
#: Empty in the database: null.
Text = Annotated[str | None, BeforeValidator(lambda text: text or None)]
#: Made from ms.
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
    kind: Kind | None = None
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

    # Read from a service.Seen: from its job, unless a field names another source.
    model_config = ConfigDict(
        from_attributes=True, alias_generator=AliasGenerator(validation_alias=_of_job)
    )

    id: Id
    """The job's id."""
    target: str
    """The target that it calls."""
    kind: Kind
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
