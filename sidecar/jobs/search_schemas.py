"""Which jobs are asked about, or changed at once."""

import time
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sidecar.http.models import Body, PageParameters, PageReply, Reply, matching
from sidecar.jobs.model import ENDED, ID_PATTERN, JobQuery, State
from sidecar.kit.errors import ConfigError
from sidecar.kit.moments import Past, read_past

#: Jobs that one request changes.
MOST_CHANGED = 100
NOT_ENDED = frozenset(State) - ENDED
#: What is retried where no state is said: a completed call is not repeated unasked.
WENT_WRONG = frozenset({State.FAILED, State.EXPIRED})
StateName = Literal[
    "pending", "called", "processing", "completed", "failed", "cancelled", "expired"
]
After = Annotated[
    str, *matching(r"([0-9]{1,15}\.[A-Za-z0-9_-]{1,32})?", "the `next` of the page before")
]


_Id = Annotated[str, *matching(ID_PATTERN, "ids of jobs, 22 letters, digits, - and _ each")]


class JobFilter(BaseModel):
    """Which jobs. All that is given must hold."""

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
        """`owner`: whose jobs may be seen; None: all. Raises ConfigError."""
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

    ids: Annotated[list[_Id], Field(min_length=1, max_length=MOST_CHANGED)] | None = None
    """These jobs, 100 at most."""
    after: After = ""
    """The `next` of the answer before."""
    dry_run: bool = False
    """Only say how many jobs it is, 10,000 at most."""

    def query_of(
        self, owner: str | None, states: frozenset[State], without: frozenset[State]
    ) -> JobQuery:
        """Those of `states`, and no others; `without` a state given, these. Raises ConfigError
        where the filter is empty or asks for others."""
        query = self.query(owner, after=read_after(self.after), limit=MOST_CHANGED)
        given = self.model_dump(exclude={"ids", "after", "dry_run"}, exclude_defaults=True)
        problems = []
        if not given:
            problems.append("ids: name them, or say which jobs: by state, target, status, …")
        if not query.states <= states:
            problems.append(f"state: one of {', '.join(sorted(states))}")
        if problems:
            raise ConfigError(problems)
        return query if query.states else replace(query, states=frozenset(without))


def read_after(text: str) -> tuple[int, str] | None:
    ms, _, id_ = text.partition(".")
    return (int(ms), id_) if id_ else None


def write_after(after: tuple[int, str] | None) -> str | None:
    return None if after is None else f"{after[0]}.{after[1]}"


class SkippedJob(Reply):
    id: _Id
    """The job."""
    reason: str
    """Why it was not changed."""


class ChangedJobs(PageReply):
    """`next`: the `after` with which the rest is changed. null: that was all."""

    changed: int
    """How many jobs were changed; with `dry_run`, how many would be."""
    skipped: list[SkippedJob]
    """Jobs that were not changed."""
