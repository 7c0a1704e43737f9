"""The settings of leases, and the names of resources and holders."""

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
#: Separates the token's name from the holder's; neither contains it.
_OWNED = " "


def name_in_store(holder: str, owner: str) -> str:
    """Return a holder's name in Redis, which differs for each owner. `owner`: the name of a token,
    or "" for a browser."""
    return f"{owner}{_OWNED}{holder}" if owner else holder


def holder_and_owner(name: str) -> tuple[str, str]:
    """Split what name_in_store returned."""
    owner, found, holder = name.partition(_OWNED)
    return (holder, owner) if found else (name, "")


_compiled = lru_cache(256)(re.compile)


def _pattern(value: str) -> str:
    try:
        _compiled(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value


class LeaseSettings(BaseModel):
    """A template, `[leases.NAME]`. A resource exists as soon as a client names it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    term: Seconds = Field(ge=1, le=86_400 * 31)
    """How long a lease lasts. A renewal starts the term again."""
    capacity: Count = Field(default=1, ge=1, le=1_000)
    """How many clients hold one resource at a time."""
    renewable: bool = False
    """Allows a holder to renew the lease."""
    max_term: Seconds | None = Field(default=None, ge=1, le=86_400 * 366)
    """The longest time with all renewals, at least `term`. Only with `renewable`. None: no
    limit."""
    max_waiting: Count | None = Field(default=None, ge=0, le=1_000_000)
    """How many wait for one resource at most. Further clients learn that the queue is full. 0:
    nobody waits."""
    claim_window: Seconds = Field(default=10, ge=1, le=3600)
    """How long the next client has to come, counted from its next due heartbeat. Nobody else gets
    the resource meanwhile."""
    heartbeat_timeout: Seconds = Field(default=60, ge=5, le=86_400, validate_default=True)
    """A waiting client loses the place when this long has passed since its next heartbeat was due.
    At least `claim_window`."""
    heartbeat_interval: Seconds | None = Field(default=None, ge=0.1, le=3600)
    """How often waiting clients ask. None: a tenth of the expected wait, 30 s at most; every 2 s
    at the head of the queue, and when the lease ends that it waits for."""
    resources: Annotated[str, Field(max_length=500), AfterValidator(_pattern)] | None = None
    """A regular expression for the whole name of a resource. Other resources are unknown. None:
    any name, which is right for programs. For browsers, allow only the names that exist."""
    message: str | None = Field(default=None, max_length=500)
    """Shown on the waiting page. `{resource}` stands for the resource's name."""
    queueing_status_code: Annotated[Literal[200, 202, 429, 503], BeforeValidator(from_text)] = 503
    """The HTTP status of the waiting page."""

    def has(self, resource: str) -> bool:
        """Return whether the template has a resource of this name."""
        is_any = self.resources is None or _compiled(self.resources).fullmatch(resource)
        return bool(RESOURCE.match(resource) and is_any)

    @field_validator("max_term")
    @classmethod
    def _lasts_a_term(cls, value: float | None, info: ValidationInfo) -> float | None:
        term = info.data.get("term")
        if value is not None and info.data.get("renewable") is False:
            raise ValueError("is for renewable = true; else the term is the end")
        if value is not None and term is not None and value < term:
            raise ValueError(f"must not be shorter than the term ({term:g} s)")
        return value

    @field_validator("heartbeat_timeout")
    @classmethod
    def _timeout_holds_the_window(cls, value: float, info: ValidationInfo) -> float:
        window = info.data.get("claim_window")
        if window is not None and value < window:
            raise ValueError(f"must not be shorter than claim_window ({window:g} s)")
        return value
