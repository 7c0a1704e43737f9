"""Suggestions for names that do not exist."""

import types
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

#: How similar a name must be to be suggested, from 0 to 1.
_CUTOFF = 0.7


def did_you_mean(name: str, known: Iterable[str], *, written: Callable[[str], str] = str) -> str:
    """Return "; did you mean X?" with the most similar name, or "" if none is similar. `written`
    turns a name into the text that is shown."""
    names = get_close_matches(name, list(known), n=1, cutoff=_CUTOFF)
    return f"; did you mean {written(names[0])}?" if names else ""


def names_beside(model: type[BaseModel], path: Sequence[str | int]) -> list[str] | None:
    """Return the names of the settings in the table that has the last part of `path`. None if there
    is no such table, or if it allows any name."""
    inside: Any = model
    for part in path[:-1]:
        inside = _inside(inside, part)
    table = _model_of(inside)
    return None if table is None else list(table.model_fields)


def _inside(annotation: Any, part: str | int) -> Any:
    """Return the type of a model's field, or of the values of a table or list."""
    table = _model_of(annotation)
    if table is not None:
        field = table.model_fields.get(str(part))
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
    """Return the types of a union, without annotations."""
    kind = get_origin(annotation)
    if kind is Annotated:
        return types_in(get_args(annotation)[0])
    if kind in {Union, types.UnionType}:
        return [choice for each in get_args(annotation) for choice in types_in(each)]
    return [annotation]
