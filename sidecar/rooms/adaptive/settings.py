"""Defines the settings of an adaptive room, which finds its cap by itself."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sidecar.kit.setting_types import Count, Seconds
from sidecar.rooms.adaptive.controller import Learned, Targets
from sidecar.visitors.classes import table_validator

#: A target below this is probably a mistake, such as ms for s.
FASTEST_P90_S = 0.05


class AdaptiveSettings(BaseModel):
    """The limits up to which a room may load its site."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["advise", "on", "off"] = "advise"
    """`advise`: the room only shows how many visitors it would admit. `on`: at most that many are
    inside, and never more than `total_active_users`. `off`: nothing is measured."""
    p90: Seconds | None = Field(default=None, ge=0.01, le=600)
    """The response time that nine in ten of the site's responses should meet. None: no target."""
    max_errors: float | None = Field(default=None, gt=0, le=1)
    """The highest acceptable share of errors (5xx, 429, failed connections). None: no target."""
    min: Count = Field(default=10, ge=1, le=10_000_000)
    """A number of visitors that the site can certainly serve. The ceiling is never lower."""

    @model_validator(mode="after")
    def _check_targets(self) -> "AdaptiveSettings":
        if self.p90 is None and self.max_errors is None:
            raise ValueError("set p90, such as p90 = 1.2, or max_errors, such as max_errors = 0.02")
        return self

    def targets(self, cap: int) -> Targets:
        """Return the targets of a room with this cap."""
        return Targets(self.p90, self.max_errors, min(self.min, cap), cap)

    def find_warnings(self, cap: int) -> list[str]:
        """Return warnings about settings that make no sense below this cap, each with a remedy."""
        if self.mode == "off":
            return []
        warnings = {
            f"min: {self.min} leaves nothing to find below total_active_users = {cap}. Set min to "
            "what the site can certainly serve, or raise total_active_users": self.min >= cap,
            f"p90: few sites respond in {self.p90} s even without load, so the room would stay at "
            "min. Set it above the p90 of a quiet hour": (self.p90 or 1) < FASTEST_P90_S,
        }
        return [warning for warning, holds in warnings.items() if holds]

    def lower_cap(self, cap: int, learned: Learned | None) -> int:
        """Return the cap, lowered to the ceiling, by the rule of rooms/lua/parts/openings.lua."""
        if self.mode != "on":
            return cap
        return min(cap, self.min if learned is None else math.floor(learned.ceiling))


_Table = Annotated[AdaptiveSettings, table_validator('{"mode": "advise", "p90": 1.2, "min": 50}')]
Adaptive = _Table | None
