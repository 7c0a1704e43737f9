"""Requests and responses of rooms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sidecar.kit.http.models import Name, Parameters, matching
from sidecar.kit.http.openapi import VISITOR_ID
from sidecar.kit.http.problem_kinds import Kind, unknown

UNKNOWN_ROOM = unknown("room")
UNKNOWN_VISITOR = Kind("unknown_visitor", 404, "Unknown visitor", "Nobody of that id is known.")

VisitorName = Annotated[
    str, *matching(VISITOR_ID.strip("^$"), "a visitor's id, which has 22 letters, digits, - and _")
]


class RoomAddress(Parameters):
    room: Annotated[Name, Field(examples=["shop"])]
    """A room that is configured."""


class VisitorAddress(RoomAddress):
    visitor: Annotated[VisitorName, Field(examples=["hQmVzkXy3c1tA9bWn0Lr-Q"])]
    """The visitor's id, as lists and the log say it."""
