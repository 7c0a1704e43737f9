"""The methods of Client, out of those of AsyncClient: the same coroutines, run to their end."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Shell(Generic[A]):
    """Has the methods of `tasks`, for threads."""

    def __init__(self, tasks: A) -> None:
        self._tasks = tasks


def run(awaitable: Awaitable[T]) -> T:
    """Over Threads nothing suspends: whatever has to wait blocks this thread."""
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it is not over Threads")


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Shell[A], P], T]:
    @functools.wraps(method)
    def call(self: Shell[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._tasks, *args, **kwargs))

    return call


def entering(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[Shell[A], P], Iterator[T]]:
    """For contextlib.contextmanager."""

    @functools.wraps(method)
    def enter(self: Shell[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with entered(method(self._tasks, *args, **kwargs)) as value:
            yield value

    return enter


@contextmanager
def entered(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    value = run(manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run(manager.__aexit__(None, None, None))


def iterating(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Shell[A], P], Iterator[T]]:
    @functools.wraps(method)
    def iterate(self: Shell[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._tasks, *args, **kwargs)
        try:
            while True:
                yield run(anext(items))
        except StopAsyncIteration:
            return
        finally:
            run(items.aclose())

    return iterate
