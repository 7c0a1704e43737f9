"""Turns async methods into blocking ones, which run each coroutine to its end."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class BlockingMethods(Generic[A]):
    """Base class of an object whose methods are the blocking forms of those of `async_methods`."""

    def __init__(self, async_methods: A) -> None:
        self._async_methods = async_methods


def run(awaitable: Awaitable[T]) -> T:
    """Run an awaitable of ThreadCore to its end. It never suspends, so no event loop is needed."""
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("only a client for threads can be run")


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingMethods[A], P], T]:
    @functools.wraps(method)
    def call(self: BlockingMethods[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._async_methods, *args, **kwargs))

    return call


def blocking_context(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[BlockingMethods[A], P], Iterator[T]]:
    """Turn a method with an async context manager into a generator for contextmanager."""

    @functools.wraps(method)
    def enter(self: BlockingMethods[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with enter_blocking(method(self._async_methods, *args, **kwargs)) as value:
            yield value

    return enter


@contextmanager
def enter_blocking(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    value = run(manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run(manager.__aexit__(None, None, None))


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[BlockingMethods[A], P], Iterator[T]]:
    @functools.wraps(method)
    def iterate(self: BlockingMethods[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._async_methods, *args, **kwargs)
        try:
            while True:
                yield run(anext(items))
        except StopAsyncIteration:
            return
        finally:
            run(items.aclose())

    return iterate
