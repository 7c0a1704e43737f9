"""Suggestions of similar names for an unknown name."""

import types
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

#: How similar a name must be to be suggested, from 0 to 1.
_CUTOFF = 0.7


def did_you_mean(name: str, known: Iterable[str], *, written: Callable[[str], str] = str) -> str:
    """Return "; did you mean X?" with the most similar known name, or "" if none is similar.
    `written` converts a name to the text that is shown."""
    names = get_close_matches(name, list(known), n=1, cutoff=_CUTOFF)
    return f"; did you mean {written(names[0])}?" if names else ""


def find_names_beside(model: type[BaseModel], path: Sequence[str | int]) -> list[str] | None:
    """Return the names of the settings in the table that has the last part of `path`. Return None
    if there is no such table, or if the table allows any name."""
    annotation: Any = model
    for part in path[:-1]:
        annotation = _find_inner_type(annotation, str(part))
    table = _find_model(annotation)
    return None if table is None else list(table.model_fields)


def _find_inner_type(annotation: Any, field_name: str) -> Any:
    """Return the type of a model's field, or of the values of a table or list."""
    if (table := _find_model(annotation)) is not None:
        return getattr(table.model_fields.get(field_name), "annotation", None)
    #: The position of the values' type in the type of a table or list.
    positions = {dict: 1, list: 0, tuple: 0}
    kinds = [(get_args(choice), get_origin(choice)) for choice in types_in(annotation)]
    return next((inner[positions[kind]] for inner, kind in kinds if kind in positions), None)


def _find_model(annotation: Any) -> type[BaseModel] | None:
    models = (each for each in types_in(annotation) if isinstance(each, type))
    return next((model for model in models if issubclass(model, BaseModel)), None)


def types_in(annotation: Any) -> list[Any]:
    """Return the types of a union, without annotations."""
    kind = get_origin(annotation)
    if kind is Annotated:
        return types_in(get_args(annotation)[0])
    if kind in {Union, types.UnionType}:
        return [choice for each in get_args(annotation) for choice in types_in(each)]
    return [annotation]
