"""Requests and responses of jobs and targets."""

from __future__ import annotations

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

from sidecar.jobs.model import ID_PATTERN, Kind, State
from sidecar.jobs.request import Value
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.http import problem_kinds
from sidecar.kit.http.long_poll import MAX_WAIT_S
from sidecar.kit.http.models import (
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
    """Seconds: the response comes when the job has ended or is called, or after so long."""


class JobsPage(PageParameters):
    model_config = ConfigDict(extra="forbid")

    target: str | None = None
    """Of one target."""
    state: State | None = None
    """In one state."""
    after: Annotated[
        str, *matching(r"([0-9]{1,15}\.[A-Za-z0-9_-]{1,32})?", "the `next` of the page before")
    ] = ""
    """The `next` of the page before."""


_OFFLINE: dict[str, Any] = {
    "target": "images",
    "method": "POST",
    "path": "generate",
    "body": {"prompt": "a lighthouse"},
    "idempotency_key": "order-4711",
}


class SubmitHeaders(Headers):
    idempotency_key: str | None = None
    """The same as `idempotency_key`, which goes before it."""


class SubmitJob(Body):
    """A member that is null is as if it was not there."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [_OFFLINE, {"target": "images", "kind": "online"}]}
    )

    target: Name
    kind: Kind | None = None
    """Default: the first of the target's kinds. online: none of the members from method to
    body_base64."""
    method: str | None = None
    """GET, HEAD, POST, PUT, PATCH, DELETE: what the target allows. Default: POST where there is a
    body, else GET."""
    path: str | None = None
    """Below the target's url, if that ends with /; percent-encoded, without / at its beginning."""
    query: Query | None = None
    """As it is sent, or an object."""
    headers: dict[str, str] | None = None
    body: Any = None
    """A string is sent as it is; any other JSON as application/json."""
    body_base64: Annotated[str | None, Field(json_schema_extra={"contentEncoding": "base64"})] = (
        None
    )
    """In place of the body, what is not text."""
    class_name: Annotated[str | None, Field(alias="class")] = None
    """Only with a grant that gives it."""
    grant: str | None = None
    """Signed; gives its class."""
    idempotency_key: Annotated[str, *matching(KEY, KEY_WANTED)] | None = None
    """Your own name for the job: the same again is the same job."""
    callback_url: str | None = None
    """Gets a POST when the job has ended: one that the target's `callback_urls` allow."""

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
    headers: dict[str, str]
    size: int
    """Bytes of the body."""
    body_url: str
    """Where the body is, as it came."""
    body: Annotated[str | None, optional] = None
    """Of 65,536 bytes at most, if it is text. Not in lists."""
    body_base64: Annotated[str | None, optional] = None
    """The same, if it is not text."""


def _of_job(name: str) -> AliasPath:
    return AliasPath("job", name.replace("_at", "_ms"))


class Job(Reply):
    """A job as it stands. null: has not happened, or does not apply."""

    # Read from a service.Seen: from its job, unless a field names another source.
    model_config = ConfigDict(
        from_attributes=True, alias_generator=AliasGenerator(validation_alias=_of_job)
    )

    id: Id
    target: str
    kind: Kind
    state: Annotated[State, Field(validation_alias="state")]
    """called: an online job whose permit was not used yet."""
    owner: str
    """The name of the token that submitted it; service, operator."""
    class_name: Annotated[Text, Field(serialization_alias="class")]
    method: str
    path: str
    query: Text
    position: Annotated[int | None, Field(ge=1, validation_alias="position")]
    """In the queue; 1 is next."""
    wait_seconds: Annotated[Rounded | None, Field(validation_alias="wait_s")]
    """Expected, until it is called."""
    attempts: int
    """How often it was started."""
    status: int | None
    """Of the last answer, also of one after which it is retried or has failed."""
    error: Text
    """Why it failed, or what went wrong in the last attempt."""
    created_at: At
    called_at: At | None
    started_at: At | None
    ended_at: At | None
    expires_at: At
    """Pending: when it gives up. Ended: when it is removed."""
    retry_at: Annotated[At | None, Field(validation_alias="retry_ms")]
    """It is not retried before."""
    permit: Annotated[str | None, Field(validation_alias="permit")]
    """Of an online job that is called: lets one call through."""
    permit_expires_at: Annotated[At | None, Field(validation_alias="permit_expires_ms")]
    result: JobResult | None = None


class Jobs(PageReply):
    """Newest first."""

    jobs: list[Job]


class CancelledJob(Reply):
    id: Id
    state: Literal["cancelled", "processing"]
    aborting: Annotated[Literal[True] | None, optional] = None
    """Its call is being cut off."""


class TargetAddress(Parameters):
    name: Annotated[Name, Field(examples=["images"])]


class HistoryParameters(TargetAddress):
    hours: Annotated[int, Field(ge=1, le=MAX_HOURS)] = 24
    """How far it goes back."""


class TargetChanges(Body):
    """Settings by name; all are changed, or none. The header names that you send replace all; ***
    stands for a value that is there."""

    # Read by the settings, as they are merged with those that the target has.
    model_config = ConfigDict(extra="allow")


class Target(Reply):
    """A target as it stands."""

    name: str
    source: Literal["file", "run time"]
    """Whether its settings are as configured, or were changed since."""
    settings: TargetSettings
    """Durations in seconds. Secret values are ***: of headers and the callback_secret."""
    waiting: int
    """Jobs in the queue."""
    later: int
    """Jobs that are retried in a while."""
    running: int
    """Calls in progress, and permits that were given."""
    calls_in_window: int
    """What counts against the rate."""
    mean_seconds: Seconds | None
    """How long a call takes. null: none was measured."""
    calls_per_second: Seconds
    """Its capacity, as far as is known."""
    wait_seconds: Seconds
    """What a job that came now would wait."""
    breaker: Literal["closed", "open", "trial"]
    """open: it failed, and nothing is called; trial: one call tries whether it is back."""
    open_until: Time | None
    held_until: Time | None
    """The target asked for a pause."""
    is_ready: bool
    """false: Redis was emptied, and the queue is being rebuilt."""
    runner_seen_at: Time | None
    """When a worker last asked for jobs. null: none did since Redis was empty."""
    has_runner: bool
    """false: no worker has asked for 15 s, and none has a call in progress; offline jobs wait until
    one is started."""
    counters: dict[str, int]
    """Since Redis was empty: called, completed, failed, …"""
    jobs: dict[str, int]
    """That are kept, by state."""


class Targets(Reply):
    targets: list[Target]


class RestoredTarget(Reply):
    target: Target | None
    """null: none of this name is configured."""


class HistoryStep(Reply):
    model_config = ConfigDict(from_attributes=True)

    at: Annotated[At, Field(validation_alias="at_ms")]
    """When it begins."""
    completed: int
    failed: int
    other: int
    """Cancelled, expired."""
    mean_wait_seconds: Annotated[FromMs | None, Field(validation_alias="mean_wait_ms")]
    mean_seconds: Annotated[FromMs | None, Field(validation_alias="mean_ms")]
    """How long a call took."""


class TargetHistory(Reply):
    target: str
    step_seconds: Seconds
    steps: list[HistoryStep]
    """Oldest first; those in which no job ended may be missing."""


class CheckPermit(Headers):
    x_waitroom_target: Name
    """What is called."""
    x_waitroom_permit: str | None = None
    """The permit. Without one nothing passes."""
    x_waitroom_given: str | None = None
    """The X-Waitroom-Job of the last answer, where a request is checked twice."""


class PermitPassed(Headers):
    x_waitroom_state: Literal["admitted"]
    x_waitroom_job: str
    """Whose permit it was."""


Doubt = Literal["none", "forged", "expired", "used", "over"]


class PermitRefused(Headers):
    x_waitroom_state: Doubt | Literal["permit-away", "unknown-target"]
    x_waitroom_reason: Doubt | None = None
    """over: it is not called any more."""
    retry_after: Annotated[int, Field(ge=1)] | None = None
    """Seconds, while Redis is unavailable."""
