"""Request and response models of the endpoints that move a room from one Redis to another."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from sidecar.http.models import MAX_NUMBER, Body, Number, Reply, matching, wanted
from sidecar.http.problem_kinds import Kind
from sidecar.rooms.schemas.common import Count, RoomAddress, RoomName, RoomReply
from sidecar.rooms.store.transfer import FORMAT, PAGE, READ_ORDER, WRITE_ORDER, find_row_problem

QUEUE_RESET = Kind(
    "queue_reset",
    409,
    "The queue was reset",
    "The queue was reset after the file was made.",
    "Nothing can be imported: the tickets in the file are no longer valid.",
)


class ExportParameters(RoomAddress):
    cursor: (
        Annotated[
            str,
            *matching(
                f"({'|'.join(READ_ORDER)})-[0-9]{{1,19}}",
                "give the one that the last page named as next",
            ),
        ]
        | None
    ) = None
    """The `next` of the previous page."""


#: The JSON schema of rows, which are lists of a name and numbers.
_ROWS_SCHEMA: Any = {
    "items": {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
    "maxItems": PAGE,
}
_ExactInteger = Annotated[Number, wanted(f"a whole number from 0 to {MAX_NUMBER}")]


class ExportHead(Reply):
    """The first line of an export file."""

    model_config = ConfigDict(strict=True)

    format: Annotated[
        Literal["waitroom-room/1"], wanted(f"not of the format {FORMAT}, which this version reads")
    ]
    """The format of the file."""
    room: RoomName
    exported_at_ms: _ExactInteger
    """When the export began."""
    epoch: _ExactInteger
    """The epoch of the queue, which grows with each reset."""
    settings: dict[str, Any]
    """The settings that were changed at run time."""
    waiting: Count = 0
    """Visitors in the queue."""
    active: Count = 0
    """Sessions."""
    proof: str
    """A signed token, which proves that both installations have the same secret_keys."""


class ExportRows(Reply):
    kind: Annotated[str, Field(json_schema_extra={"enum": list(WRITE_ORDER)})]
    """The kind of the rows."""
    rows: Annotated[list[Any], Field(json_schema_extra=_ROWS_SCHEMA)]
    """The rows: lists of a name, such as a visitor's id, and numbers."""


class ExportPage(Reply):
    lines: list[ExportHead | ExportRows]
    """Lines of the file."""
    next: str | None
    """The `cursor` of the next page. null: this is the last page."""


_KINDS = ("begin", *WRITE_ORDER, "end")
_OBJECT_SCHEMA: Any = {"type": "object"}


class ImportStep(Body):
    """One step of an import: `begin` or `end` with the file's head, or one line with rows."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "revoked",
                    "rows": [["hQmVzkXy3c1tA9bWn0Lr-Q", 1795802400000]],
                    "exported_at_ms": 1795802400000,
                }
            ],
            "oneOf": [
                {
                    "properties": {"kind": {"enum": ["begin", "end"]}, "head": _OBJECT_SCHEMA},
                    "required": ["head"],
                },
                {
                    "properties": {
                        "kind": {"enum": list(WRITE_ORDER)},
                        "rows": {"type": "array"},
                        "exported_at_ms": {"type": "integer"},
                    },
                    "required": ["rows", "exported_at_ms"],
                },
            ],
        },
        extra="ignore",
    )
    kind: Annotated[str, Field(json_schema_extra={"enum": list(_KINDS)})]
    """`begin`, the kind of the rows, or `end`."""
    head: ExportHead | None = None
    """The first line of the file, for `begin` and `end`."""
    rows: Annotated[list[Any], Field(max_length=PAGE, json_schema_extra=_ROWS_SCHEMA)] = Field(
        default_factory=list
    )
    """The rows of one line of the file."""
    exported_at_ms: _ExactInteger = 0
    """The `exported_at_ms` of the head. Needed with rows."""

    @model_validator(mode="after")
    def _check_completeness(self) -> "ImportStep":
        if self.kind not in _KINDS:
            raise ValueError(f"kind: one of {', '.join(_KINDS)}")
        if self.kind not in WRITE_ORDER:
            if self.head is None:
                raise ValueError("head: is needed")
        elif missing := {"rows", "exported_at_ms"} - self.model_fields_set:
            raise ValueError(f"{' and '.join(sorted(missing))}: needed for {self.kind}")
        elif problem := next(
            (
                f"rows[{index}]: {reason}"
                for index, row in enumerate(self.rows)
                if (reason := find_row_problem(self.kind, row))
            ),
            None,
        ):
            raise ValueError(problem)
        return self


class Imported(RoomReply):
    added: Count = 0
    """How many rows were new in this Redis."""
