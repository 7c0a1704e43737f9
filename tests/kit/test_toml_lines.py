"""The line of each setting in a TOML file."""

import pytest

from sidecar.kit.toml_lines import find_lines, locate

TEXT = '''\
store = "memory://"   # [not.a.table]
text = """
rooms = 1
"""
names = [
  "a", # ] """
  "b",
]
[rooms.shop]
total_active_users = 5
message = "x = ["
events.first = 1

[[rooms.shop.list]]
"quoted key" = 2
[[rooms.shop.list]]
[rooms.shop.list.below]
deep = 1
[ rooms . "other" ]
total_active_users = 7
'''


def test_each_setting_has_its_line():
    """Through comments, texts and lists of several lines, dotted and quoted names."""
    assert find_lines(TEXT) == {
        "store": 1, "text": 2, "names": 5, "rooms.shop": 9, "rooms.shop.total_active_users": 10,
        "rooms.shop.message": 11, "rooms.shop.events.first": 12, "rooms.shop.list": 14,
        "rooms.shop.list.0": 14, "rooms.shop.list.0.quoted key": 15, "rooms.shop.list.1": 16,
        "rooms.shop.list.1.below": 17, "rooms.shop.list.1.below.deep": 18,
        "rooms.other": 19, "rooms.other.total_active_users": 20,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        ("rooms.shop.total_active_users: wrong", 10), ("rooms.other.session_duration: needed", 19),
        ("rooms.shop.list.1.quoted key: needed", 16), ("rooms.shop.list.0.quoted key: wrong", 15),
        ("secret_keys: needed", None), ("WAITROOM_X: unknown setting", None),
    ],
)  # fmt: skip
def test_a_problem_has_the_line_of_its_setting(problem, line):
    """Or of the table that should have it."""
    assert locate(problem, find_lines(TEXT)) == line
