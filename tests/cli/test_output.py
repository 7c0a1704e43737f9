"""Tables: at a terminal for people, elsewhere for programs."""

import io
import sys

import pytest

from sidecar.cli.output import print_table

HEADINGS = "room", "state", "waiting"
ROWS = [("shop", "paused", 7), ("a [b]\x1b[31m\n", "running", 1234), ("x" * 90, None, 0)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def printed(monkeypatch):
    """What `print_table` writes to an output of that kind."""

    def make(output: io.StringIO, **environ: str) -> str:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, text in {"TERM": "xterm-256color", "COLUMNS": "60", **environ}.items():
            monkeypatch.setenv(name, text)
        print_table(HEADINGS, ROWS, styles={"paused": "yellow"})
        return output.getvalue()

    return make


def test_fields_stand_between_tabs_in_a_pipe(printed):
    """In a pipe each row is one line, without colours and control characters."""
    assert printed(io.StringIO()).splitlines() == [
        "room\tstate\twaiting",
        "shop\tpaused\t7",
        "a [b] [31m \trunning\t1234",
        f"{'x' * 90}\t\t0",
    ]


def test_a_terminal_has_columns_and_colours(printed):
    """At a terminal headings are bold, states coloured, and numbers right-aligned."""
    said = printed(Terminal())
    assert "\x1b[1m" in said
    assert "\x1b[33mpaused" in said
    assert "\x1b[31m" not in said
    plain = printed(Terminal(), TERM="dumb").splitlines()
    assert {len(line.rstrip()) for line in plain[:3]} == {len(plain[0].rstrip())}


def test_no_color_is_honoured(printed):
    """NO_COLOR turns colours off; bold stays, as on https://no-color.org."""
    assert "\x1b[33m" not in printed(Terminal(), NO_COLOR="1")
