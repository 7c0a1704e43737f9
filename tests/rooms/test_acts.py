"""Operators' actions in words, and who stopped a room."""

import json

import pytest

from sidecar.rooms.acts import add_earlier_values, describe_act, find_stop
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.visitor_number import visitor_number

FILE = RoomSettings(total_active_users=3)
VISITOR = "hQmVzkXy3c1tA9bWn0Lr-Q"
SHORT = visitor_number(VISITOR)


def act(changes=None, what="change", *, detail="", visitor="", by="anna", at=1000, why=""):
    """Return an entry of the log. `changes` has the values before and after, by setting."""
    if changes is None:
        return {"at": at, "by": by, "what": what, "visitor": visitor, "detail": detail}
    texts = {
        name: ["" if value is None else json.dumps(value) for value in values]
        for name, values in changes.items()
    }
    after = {**({"why": why} if why else {}), **{name: to for name, (_, to) in changes.items()}}
    entry = act(None, what, detail=json.dumps(after), by=by, at=at)
    return {**entry, "changes": texts, "revision": 7}


PAUSE, RESUME = {"queue_all": (None, True)}, {"queue_all": (True, None), "max_waiting": (0, None)}
DRAIN = {"max_waiting": (None, 0), "queue_all": (None, None)}


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (act(PAUSE), "paused"),
        (act(PAUSE, why="no stock"), "paused: no stock"),
        (act(RESUME), "resumed"),
        (act(DRAIN), "drained"),
        (act({"max_waiting": (0, None), "queue_all": (None, None)}), "resumed"),
        (act({"suspended": (None, True)}), "suspended"),
        (act({"suspended": (True, None)}), "ended the suspension"),
        (act({"suspended": (True, None)}, "undo"), "undid a change: ended the suspension"),
        (act({"total_active_users": (None, 1500)}), "total_active_users: 3 → 1,500"),
        (act({"total_active_users": (9, None)}), "total_active_users: 9 → 3, as configured"),
        (act({"queue_all": (None, True), "message": (None, "soon")}),
         'paused; message: none → "soon"'),
        (act({"message": ("soon", {"text": "back", "de": "da", "until": 1_800_000_000_000})}),
         'message: "soon" → "back" (de), until 2027-01-15 08:00 UTC'),
        (act({"total_active_users": (3, 3)}), "no change"),
        (act(None, "move", visitor=VISITOR, detail="2 to 1: x"), f"moved {SHORT} from 2 to 1: x"),
        (act(None, "back", visitor=VISITOR, detail="1 to 2"), f"moved {SHORT} back, from 1 to 2"),
        (act(None, "release", visitor=VISITOR), f"released {SHORT}"),
        (act(None, "reset", detail="1200"), "reset the queue: 1,200 places"),
        (act(None, "reset-learned"), "reset what the room learned of the site"),
        (act(None, "import", detail="began"), "import began"),
        (act(None, detail="cut {"), "change cut {"),
        (act({"of_a_later_version": (None, 1)}), "of_a_later_version: none → 1"),
    ],
)  # fmt: skip
def test_an_act_is_described_in_words(entry, text):
    """A verb says what stopped or started the room. Other settings have their values."""
    assert describe_act(entry, FILE) == text


def test_entries_of_the_history_have_the_values_before_them():
    """They are those that earlier entries have set."""
    details = (
        '{"max_waiting": null, "queue_all": null}',
        '{"total_active_users": 12}',
        '{"why": "no stock", "queue_all": true}',
        "cut {",
        '{"total_active_users": 9}',
    )
    acts = add_earlier_values([act(None, detail=detail) for detail in details])
    assert [describe_act(each, FILE) for each in acts] == [
        "resumed",
        "total_active_users: 9 → 12",
        "paused: no stock",
        "change cut {",
        "total_active_users: 9",
    ]


PAUSED = FILE.model_copy(update={"queue_all": True})


@pytest.mark.parametrize(
    ("acts", "settings", "by"),
    [
        ([act(PAUSE, by="ben", at=2, why="no stock")], PAUSED, "ben"),
        # Pausing a paused room changes nothing, and neither do other settings.
        ([act({"queue_all": (True, True)}), act({"message": (None, "x")}), act(PAUSE, by="ben")],
         PAUSED, "ben"),
        ([act(PAUSE, "undo", by="ben"), act(RESUME), act(PAUSE)], PAUSED, "ben"),
        ([act(PAUSE)], FILE, None),
        # The latest action resumed, so that it is not known who paused.
        ([act(RESUME), act(PAUSE)], PAUSED, None),
        ([], PAUSED, None),
        ([act(None, "release", visitor=VISITOR), act(DRAIN)],
         FILE.model_copy(update={"max_waiting": 0}), "anna"),
        ([act({"suspended": (None, True)})], FILE.model_copy(update={"suspended": True}), "anna"),
        ([], FILE.model_copy(update={"queueing_method": "passthrough"}), None),
    ],
)  # fmt: skip
def test_who_stopped_a_room_is_found(acts, settings, by):
    """It is the operator of the last change that stopped the room as it is."""
    found = find_stop(acts, settings, FILE)
    assert (found and found["by"]) == by


def test_when_and_why_a_room_was_stopped_is_found():
    """The time and the reason are those of the log. A room may also be paused in the file."""
    found = find_stop([act(PAUSE, at=42, why="no stock")], PAUSED, FILE)
    assert found == {"by": "anna", "at": 42, "why": "no stock"}
    assert find_stop([], PAUSED, PAUSED) == {"by": "", "at": None, "why": ""}
