"""A room with visitors."""

import pytest

from tests.support.visitors import go_in, queue


@pytest.fixture
def open_room(make_room_store):
    """Return a function that makes the store of a room, and lets one visitor in and others wait.
    It returns the store, the visitor's pass and the tickets of the others."""

    async def open_(waiting=0, **settings):
        store = make_room_store(**settings)
        return store, await go_in(store), await queue(store, waiting)

    return open_
