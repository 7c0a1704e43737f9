"""Turns async methods into blocking ones, which run each coroutine to completion."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

AsyncMethods = TypeVar("AsyncMethods")
Params = ParamSpec("Params")
Result = TypeVar("Result")


class BlockingMethods(Generic[AsyncMethods]):
    """Base class of objects with blocking versions of the methods of `async_methods`."""

    def __init__(self, async_methods: AsyncMethods) -> None:
        self._async_methods = async_methods


def run(awaitable: Awaitable[Result]) -> Result:
    """Run an awaitable of SyncCore to completion. It never suspends, so it needs no event loop."""
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("only a client for threads can be run")


def blocking(
    method: Callable[Concatenate[AsyncMethods, Params], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[BlockingMethods[AsyncMethods], Params], Result]:
    """Turn a coroutine method into a blocking method."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Result:
        return run(method(self._async_methods, *args, **kwargs))

    return call


def blocking_context(
    method: Callable[Concatenate[AsyncMethods, Params], AbstractAsyncContextManager[Result]],
) -> Callable[Concatenate[BlockingMethods[AsyncMethods], Params], Iterator[Result]]:
    """Turn a method that returns an async context manager into a generator for `contextmanager`."""

    @functools.wraps(method)
    def enter(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[Result]:
        with enter_blocking(method(self._async_methods, *args, **kwargs)) as value:
            yield value

    return enter


@contextmanager
def enter_blocking(manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
    """Enter an async context manager, run the block, and exit the manager."""
    value = run(manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run(manager.__aexit__(None, None, None))


def blocking_iterator(
    method: Callable[Concatenate[AsyncMethods, Params], AsyncGenerator[Result, None]],
) -> Callable[Concatenate[BlockingMethods[AsyncMethods], Params], Iterator[Result]]:
    """Turn an async generator method into a blocking generator."""

    @functools.wraps(method)
    def iterate(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[Result]:
        items = method(self._async_methods, *args, **kwargs)
        try:
            while True:
                yield run(anext(items))
        except StopAsyncIteration:
            return
        finally:
            run(items.aclose())

    return iterate
