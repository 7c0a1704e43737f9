"""A fixture that creates rooms with visitors."""

import pytest

from tests.support.visitors import go_in, queue


@pytest.fixture
def open_room(make_room_store):
    """Return a function that creates a room's store, admits one visitor, and lets `waiting` more
    join the queue. It returns the store, the first visitor's pass and the others' tickets."""

    async def open_(waiting=0, **settings):
        store = make_room_store(**settings)
        return store, await go_in(store), await queue(store, waiting)

    return open_
