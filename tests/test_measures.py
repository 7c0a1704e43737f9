"""What should become less does not become more: whoever lowers a number lowers its bound here."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.imports import ROOT
from tests.support.measures import (
    LINES,
    MEASURES,
    REPEATED,
    find_pairs,
    find_queues,
    find_repeated,
    find_strays,
    measure,
    shape_of,
)

BOUNDS = {
    "product Python, lines": 39_165,
    "files named for a product, outside its folder": 0,
    "exponential backoff": 0,
    "store scaffold": 1,
    "webhook delivery": 1,
    "queue in Lua": 1,
    "pairs of places with six equal lines": 4,
    "pairs of places with six lines of the same shape": 254,
    "fmt: skip": 5,
    "functions of more than 60 lines": 1,
    "functions with more than 6 parameters": 2,
}

COPY = "\n".join(f"    total += {n} * weight" for n in range(7))


@pytest.mark.parametrize("what", BOUNDS)
def test_it_is_no_more_than_it_was(what):
    """The places that were counted are in the message."""
    number, places = measure(ROOT, what)
    assert number <= BOUNDS[what], "\n".join(places)


def test_each_measure_has_a_bound():
    """And each bound a measure; tests/test_layout.py holds what is about imports."""
    assert {LINES, *MEASURES} == {"import cycles", "upward imports", *BOUNDS}


# And that it can fail.


@pytest.fixture
def tree(tmp_path):
    """Makes a small product: texts by path."""

    def make(**files: str):
        for name, text in files.items():
            file = tmp_path / "sidecar" / name.replace("__", "/")
            file = file.with_suffix(".lua" if text.startswith("--") else ".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))
        return tmp_path

    return make


def test_a_stretch_that_stands_twice_is_one_pair(tree):
    """Comments, blank lines and docstrings between its lines do not hide it."""
    other = COPY.replace("3", "3 ").replace("\n", "\n\n    # more\n", 2)
    root = tree(
        rooms__a=f'def add(weight):\n    """Adds."""\n{COPY}\n    return total\n',
        rooms__b=f"def sum(weight):\n{other}\n    return -total\n",
    )
    assert find_pairs(root) == ["sidecar/rooms/a.py:3 ~ sidecar/rooms/b.py:2"]


def test_five_equal_lines_are_none(tree):
    """Six are."""
    lines = COPY.splitlines()
    root = tree(a="def a():\n" + "\n".join(lines[:5]), b="def b():\n" + "\n".join(lines[:5]))
    assert find_pairs(root) == []
    root = tree(a="def a():\n" + "\n".join(lines[:6]), b="def b():\n" + "\n".join(lines[:6]))
    assert len(find_pairs(root)) == 1


def test_lines_of_one_shape_are_alike():
    """With other names, texts and numbers; keywords and operators stay."""
    assert shape_of('if left == "a": return 5') == shape_of("if right == 'bc': return 17")
    assert shape_of("if a < b:") != shape_of("while a < b:")
    assert shape_of("a < b") != shape_of("a > b")


def test_a_file_outside_its_products_folder_is_found(tree):
    """By a word of its name."""
    root = tree(kit__job_base="x = 1\n", jobs__base="x = 1\n", jobs__job="x = 1\n")
    assert find_strays(root) == ["sidecar/kit/job_base.py"]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("exponential backoff", "pause_s = FIRST_S * 2.0 ** (tries - 1)\n"),
        ("exponential backoff", "pause_s = 2 ** min(tried, 5)\n"),
        ("store scaffold", "breaker = Breaker(timeout_s)\n"),
        ("webhook delivery", "answer = await self._session.post(url)\n"),
    ],
)
def test_what_is_made_once_more_is_found(tree, what, text):
    """Each by what gives it away."""
    assert set(REPEATED) >= {what}
    assert len(find_repeated(tree(kit__more=text), what)) == 1


ONCE_MORE = """\
-- Twice.
local function take(most)
  return redis_call('ZPOPMIN', LINE, most)
end

local function call(free)
  {loop} do
    for _, job in ipairs({taken}) do start(job) end
    free = free - 1
  end
end

local function run(rooms)
  for _, room in ipairs(rooms) do call(room) end
end
"""


@pytest.mark.parametrize("taken", ["take(free)", "redis_call('ZPOPMIN', LINE, 1)"])
@pytest.mark.parametrize("loop", ["while free > 0", "for _ = 1, free"])
def test_a_loop_that_calls_once_more_is_a_queue(tree, loop, taken):
    """By another function too; what goes through several rooms is none."""
    text = ONCE_MORE.format(loop=loop, taken=taken)
    assert find_queues(tree(jobs__lua__call=text)) == ["sidecar/jobs/lua/call.lua call"]


def test_what_hands_its_way_to_pop_to_the_shared_loop_is_no_queue(tree):
    """It calls none itself."""
    text = ONCE_MORE.format(loop="while free > 0", taken="other(free)")
    assert find_queues(tree(jobs__lua__call=text.replace("other(free)", "other(take, free)"))) == []
