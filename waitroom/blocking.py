"""The methods of Client, made from those of AsyncClient: run the same coroutines to their end."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Shell(Generic[A]):
    """The methods of the async object `tasks`, for threads."""

    def __init__(self, tasks: A) -> None:
        self._tasks = tasks


def run(awaitable: Awaitable[T]) -> T:
    """Run an awaitable of a client for threads, which blocks where others suspend."""
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("only a client for threads can be run")


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
    """Make a generator for contextlib.contextmanager from a method with an async one."""

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
