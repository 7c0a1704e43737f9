"""Base classes and field types for the models of requests and replies in schemas.py files.

A string below a field is its description in the OpenAPI document.
"""

import json
import math
import re
import sys
from functools import cache
from typing import Annotated, Any, NoReturn

from aiohttp import web
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticCustomError, PydanticSerializationError, core_schema

from sidecar.http.problem_kinds import UNREADABLE
from sidecar.http.problems import ProblemError
from sidecar.kit.clock import iso
from sidecar.kit.did_you_mean import did_you_mean, union_members
from sidecar.kit.errors import InputError
from sidecar.kit.names import NAME
from sidecar.kit.setting_types import describe_requirement

#: How many characters of a name or value an error message repeats.
_MAX_SHOWN = 40
_DIGITS = re.compile("[0-9]+")
#: The largest whole number that every JSON parser represents exactly.
MAX_NUMBER = 2**53


class Parameters(BaseModel):
    """Parameters of the path and the query. Unknown parameters are ignored. If a parameter comes
    several times, its first value is used."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_digits(cls, value: object, info: ValidationInfo) -> object:
        """Accept only ASCII digits as a number. pydantic would also accept 1_0, +5 and 5.0."""
        if info.field_name is None or not isinstance(value, str):
            return value
        field = cls.model_fields[info.field_name]
        if int in union_members(field.annotation) and not _DIGITS.fullmatch(value):
            raise PydanticCustomError("int_parsing", "a whole number")
        return value


class Headers(BaseModel):
    """Headers of a request or reply: `retry_after` is Retry-After. Unknown headers are ignored."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-").title(), defer_build=True
    )


class Body(BaseModel):
    """A JSON object in a request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Reply(BaseModel):
    """A JSON document in a response. Later versions may add members."""

    model_config = ConfigDict(
        extra="ignore",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
        # To have another name in the OpenAPI document than its class, a model sets __qualname__.
        model_title_generator=lambda model: model.__qualname__,
    )

    def to_json(self) -> bytes:
        try:
            return self.model_dump_json(by_alias=True).encode()
        except PydanticSerializationError:  # text that is not UTF-8
            return json.dumps(self.model_dump(by_alias=True)).encode()

    def response(self, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
        return web.Response(
            status=status,
            body=self.to_json(),
            content_type="application/json",
            headers={"Cache-Control": "no-store", **(headers or {})},
        )


#: Values that replace a Reply's class in an Endpoint's `replies`: NO_BODY if the response has no
#: body, and NO_JSON if it has only the media types in `other_media`.
NO_BODY, NO_JSON = object(), object()
#: A member of a Reply that is left out if it is None.
optional = Field(exclude_if=lambda value: value is None)


def wanted(text: str) -> WrapValidator:
    """Return a validator that replaces pydantic's error message with `text`, such as "a list"."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise PydanticCustomError("wanted", "{text}", {"text": text}) from None

    return WrapValidator(check)


def matching(pattern: re.Pattern[str] | str, text: str) -> tuple[Any, ...]:
    """Return the annotations of a string that must match a pattern. The error message is `text`."""
    source = pattern if isinstance(pattern, str) else pattern.pattern
    # JSON Schema has no \Z.
    return Field(pattern="^" + source.replace(r"\Z", "") + "$"), wanted(text)


def _whole_float_to_int(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: The name of a configured object. The handler checks whether such an object exists.
Name = Annotated[str, Field(json_schema_extra={"pattern": "^" + NAME.pattern.replace(r"\Z", "$")})]
#: A whole number in JSON; 1.0 is accepted too.
Whole = Annotated[int, BeforeValidator(_whole_float_to_int)]
#: A whole number from 0 to MAX_NUMBER.
Number = Annotated[Whole, Field(ge=0, le=MAX_NUMBER)]
Seconds = Annotated[float, Field(ge=0)]
#: A time in ISO 8601, as kit/clock.py writes it.
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
#: A time in ISO 8601, converted from ms since 1970.
At = Annotated[Time, BeforeValidator(iso)]


class PageParameters(Parameters):
    """The parameters of a request for one page of a list."""

    after: str = ""
    """The `next` of the previous page."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """The maximum number of entries on the page."""


class PageReply(Reply):
    """A page of a list."""

    next: str | None
    """The `after` of the next page, or null after the last page."""


class OffsetPage(PageParameters):
    """The parameters of a page whose `after` is the number of its first entry."""

    after: Annotated[str, *matching("[0-9]{0,9}", "the `next` of the page before")] = ""
    """The `next` of the previous page."""

    @property
    def start(self) -> int:
        return int(self.after or 0)

    def next(self, count: int) -> str | None:
        """Return the `next` of a page that has `count` entries, or None for the last page."""
        return str(self.start + count) if count == self.limit else None


def read(model: type[BaseModel], values: Any, *, from_text: bool = False) -> Any:
    """Validate the values of a request, and return an instance of the model. With `from_text` all
    values are strings, as in a query. Raises InputError, which has a line for each problem."""
    try:
        return model.model_validate_strings(values) if from_text else model.model_validate(values)
    except ValidationError as error:
        where = ", in the query" if from_text else ""
        raise InputError(_list_problems(error, model, where)) from None


def read_valid_members(model: type[BaseModel], values: Any) -> tuple[Any, set[str]]:
    """Return an instance of the model with only the valid members of a JSON object, and the names
    of the invalid members. The instance is None if a required member is missing or invalid."""
    try:
        return model.model_validate(values), set()
    except ValidationError as error:
        invalid = {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]}
    try:
        valid_values = {name: value for name, value in values.items() if name not in invalid}
        return model.model_validate(valid_values), invalid
    except ValidationError:
        return None, invalid


def _list_problems(error: ValidationError, model: type[BaseModel], where: str) -> list[str]:
    """Return one line for each problem: unknown members first, the others in the model's order."""
    unknown, others = [], []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            members = [field.alias or key for key, field in model.model_fields.items()]
            unknown.append(f"{name[:_MAX_SHOWN]}: unknown member{did_you_mean(name, members)}")
        elif problem["type"] == "missing":
            others.append(f"{name}: is needed{where}")
        else:
            others.append(f"{name}: {_describe_problem(problem, model)}".removeprefix(": "))
    return sorted(unknown) + others


def _describe_problem(problem: Any, model: type[BaseModel]) -> str:
    text = describe_requirement(problem)
    if problem["type"] not in {"wanted", "value_error"} and len(problem["loc"]) == 1:
        text = _describe_schema(_property_schemas(model).get(problem["loc"][0], {})) or text
    value = problem["input"]
    if isinstance(value, str):
        return f"{text} (got {value[:_MAX_SHOWN]!r})"
    return text if isinstance(value, dict | list) else f"{text} (got {str(value)[:_MAX_SHOWN]})"


@cache
def _property_schemas(model: type[BaseModel]) -> dict[str, Any]:
    return dict(model.model_json_schema(schema_generator=Schema).get("properties", {}))


def _describe_schema(schema: dict[str, Any]) -> str:
    """Describe what a field accepts, as in "a whole number from 1". Return "" for unknown forms."""
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        texts = [_describe_schema(opt) for opt in schema["anyOf"] if opt != {"type": "null"}]
        return " or ".join(texts) if all(texts) else ""
    kinds = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "a string",
        "array": "a list",
        "object": "an object",
    }
    text, low = kinds.get(schema.get("type", ""), ""), schema.get("minimum")
    if low is None:
        return text
    return f"{text} from {low}" + (f" to {schema['maximum']}" if "maximum" in schema else "")


def _read_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        _reject_number(digits)
    return number


def _reject_number(text: str) -> NoReturn:
    raise InputError([f"the body has the number {text[:_MAX_SHOWN]}, which JSON cannot hold"])


_JSON = json.JSONDecoder(parse_float=_read_float, parse_constant=_reject_number)


async def read_json(request: web.Request) -> Any:
    """Parse the request's body. Raises ProblemError if the body is not JSON, and InputError if it
    has NaN or a number that is too large, which Python could not write as JSON again."""
    try:
        text = await request.text()
        return _JSON.decode(text)
    except (json.JSONDecodeError, UnicodeDecodeError, LookupError) as error:
        detail = f"It is not JSON: {error}."
    except RecursionError:
        detail = "It is not JSON: it is nested too deeply."
    except ValueError:
        digits = sys.get_int_max_str_digits()
        raise InputError([f"the body has a whole number of more than {digits} digits"]) from None
    raise ProblemError(UNREADABLE, detail=detail)


async def read_object(request: web.Request) -> dict[str, Any]:
    body = await read_json(request)
    if not isinstance(body, dict):
        raise InputError(["the body must be a JSON object"])
    return body


class Schema(GenerateJsonSchema):
    """A generator of JSON Schema that omits pydantic's titles, and the defaults of replies."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        json_schema = super().default_schema(schema)
        if self.mode == "serialization":
            json_schema.pop("default", None)
        return json_schema

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        json_schema = super().generate_inner(schema)
        # If a field has a function validator, pydantic writes its own names for the bounds.
        for name, bound in (("ge", "minimum"), ("le", "maximum")):
            if name in json_schema:
                json_schema[bound] = json_schema.pop(name)
        return json_schema
