"""The settings of a lease template, and the patterns of resources' and holders' names."""

import re
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from sidecar.kit.setting_types import Count, Seconds, from_text

RESOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}\Z")
HOLDER = re.compile(r"[A-Za-z0-9._:@+-]{1,128}\Z")


_compile = lru_cache(256)(re.compile)


def _check_regex(value: str) -> str:
    try:
        _compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value


class LeaseSettings(BaseModel):
    """A lease template, `[leases.NAME]`. A resource exists as soon as a client names it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    term: Seconds = Field(ge=1, le=86_400 * 31)
    """How long a lease lasts. Renewing the lease starts the term again."""
    capacity: Count = Field(default=1, ge=1, le=1_000)
    """How many clients can hold one resource at the same time."""
    renewable: bool = False
    """Whether a holder can renew the lease."""
    max_term: Seconds | None = Field(default=None, ge=1, le=86_400 * 366)
    """The maximum duration of a lease with all its renewals; at least `term`. Allowed only with
    `renewable`. None: no limit."""
    max_waiting: Count | None = Field(default=None, ge=0, le=1_000_000)
    """The maximum length of a resource's queue; further clients are refused. 0: no queue."""
    claim_window: Seconds = Field(default=10, ge=1, le=3600)
    """How long a called client has to take the lease, counted from when its next heartbeat is due.
    During this time, nobody else gets the resource."""
    heartbeat_timeout: Seconds = Field(default=60, ge=5, le=86_400, validate_default=True)
    """How late a heartbeat may be before the client loses its place; at least `claim_window`."""
    heartbeat_interval: Seconds | None = Field(default=None, ge=0.1, le=3600)
    """The time between two heartbeats of a waiting client. None: a tenth of the expected wait, but
    at most 30 s; at the head of the queue, 2 s, or less if a lease ends sooner."""
    resources: Annotated[str, Field(max_length=500), AfterValidator(_check_regex)] | None = None
    """A regular expression that a resource's whole name must match. Other names are refused. None:
    any name is allowed, which is right for programs. For browsers, allow only names that exist."""
    message: str | None = Field(default=None, max_length=500)
    """The message on the waiting page, where `{resource}` stands for the resource's name."""
    queueing_status_code: Annotated[Literal[200, 202, 429, 503], BeforeValidator(from_text)] = 503
    """The HTTP status of the waiting page."""

    def allows(self, resource: str) -> bool:
        """Return True if a resource may have this name."""
        is_allowed = self.resources is None or _compile(self.resources).fullmatch(resource)
        return bool(RESOURCE.match(resource) and is_allowed)

    @field_validator("max_term")
    @classmethod
    def _check_max_term(cls, value: float | None, info: ValidationInfo) -> float | None:
        term = info.data.get("term")
        if value is not None and info.data.get("renewable") is False:
            raise ValueError("requires renewable = true, because other leases end with their term")
        if value is not None and term is not None and value < term:
            raise ValueError(f"must not be shorter than the term ({term:g} s)")
        return value

    @field_validator("heartbeat_timeout")
    @classmethod
    def _check_heartbeat_timeout(cls, value: float, info: ValidationInfo) -> float:
        window = info.data.get("claim_window")
        if window is not None and value < window:
            raise ValueError(f"must not be shorter than claim_window ({window:g} s)")
        return value
