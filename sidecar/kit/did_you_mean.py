"""What somebody may have meant who named a setting that there is not."""

import types
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

#: How much alike two names are that may be meant for each other, 0 to 1.
_ALIKE = 0.7


def did_you_mean(name: str, known: Iterable[str], *, written: Callable[[str], str] = str) -> str:
    """The end of a sentence; empty where nothing is like it. `written`: how a name is shown."""
    found = get_close_matches(name, list(known), n=1, cutoff=_ALIKE)
    return f"; did you mean {written(found[0])}?" if found else ""


def names_beside(model: type[BaseModel], path: Sequence[str | int]) -> list[str] | None:
    """The settings that there are where the path's last part should be one; None: any name may be
    there, or none is known."""
    inside: Any = model
    for part in path[:-1]:
        inside = _inside(inside, part)
    found = _model_of(inside)
    return None if found is None else list(found.model_fields)


def _inside(annotation: Any, part: str | int) -> Any:
    """The type of a part: of a model's field, or of a table's or a list's values."""
    found = _model_of(annotation)
    if found is not None:
        field = found.model_fields.get(str(part))
        return None if field is None else field.annotation
    for choice in types_in(annotation):
        kind, inner = get_origin(choice), get_args(choice)
        if kind is dict:
            return inner[1]
        if kind in {list, tuple}:
            return inner[0]
    return None


def _model_of(annotation: Any) -> type[BaseModel] | None:
    for choice in types_in(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def types_in(annotation: Any) -> list[Any]:
    """The types that it allows, without what they are annotated with."""
    kind = get_origin(annotation)
    if kind is Annotated:
        return types_in(get_args(annotation)[0])
    if kind in {Union, types.UnionType}:
        return [choice for each in get_args(annotation) for choice in types_in(each)]
    return [annotation]
