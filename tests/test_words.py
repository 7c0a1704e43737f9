"""The field's words: none of the home-made ones comes back (docs/glossary.md has ours)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.site import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Home-made words, as regular expressions over `split`, and what we say in their place.
WORDS = {
    "told": "sent, given, reported; the response, the status document",
    "whoever": "a client who, a visitor who, anyone who",
    "doors?": "endpoint, gate",
    "desks?": "dashboard, stats, state",
    r"\w+_asked|asked_\w+|asked\.py|(?-i:Asked(?=[(:]))": "request parameters, requested",
    "lanes?": "target worker",
    "couriers?": "webhook sender",
    "keepers?": "reconciler",
    "(?-i:Office)|open_office": "job services",
    "stir|stirs|stirred": "refresh",
    "study": "collect",
    "bears?|bearing": "has capacity for, allows, supports",
    "graded?|grades": "reclassified",
    "passed_over|passed over": "skipped; insert-ignore",
    "laid_over": "upsert",
    "let_in_alone|let in alone": "fail-open admission",
    "take_turn|give_up_turn|turn_key": "leader lease",
    "(?-i:Turn)": "leader lease",
    "news|(?-i:News)": "wake-ups, notifications",
    r"translated\(": "driver errors",
    "alarms?": "alert",
    "in (?:the )?line|head of (?:the|a|its|their) line|line up": "in the queue",
    "the line": "the queue; the log line, that row",
    "lines? of people": "queue",
    r"(?:store|redis|database)_?(?: is|_is)? ?_?away": "Redis is unavailable",
    "away_error": "unavailable",
    "there is no such|no such": "unknown, not found",
    "back to the file": "reset to the configured value",
    "twice equals once": "idempotent",
    "seen to": "processed, handled",
    "comes? about": "happens, is made",
    "called, not here": "called, not yet arrived",
}

#: What has such a word and keeps it: each a regular expression, taken out before the search.
KEPT = {
    r"\bAwayError\b": "the deprecated name of UnavailableError",
    r'\bdoor(?==~?\\*"|[`"),:;{}])|[`"{]door\b|by \(door|door, state': "a label of a metric",
    'alias="told"': "a field of a document that Redis keeps",
    r"waitroom[-_]desk": "the name of a cookie that browsers have",
    r"\b\w*store_away\b|WaitroomStoreAway": "a metric, a log event, an alert",
    r"\b\w*let_in_alone(?:_total)?\b": "a metric",
    """["']graded?["']|EVENTS  graded""": "a script, and an event in the history",
    """["'`]study["'`]""": "an event of the dashboard's stream, which open pages listen for",
    "waitroom_line_waiting": "a metric",
    '"waitroom/desk/"': "the salt of sessions, the same for replicas of two versions",
    r"""["#']lane\b""": "an element of the waiting page, which you may have made your own",
    r'" (?:not )?in line\b|field in line:': "code that looks into a line of text",
    "(?:jobs_)?database_away|Support  grade": "log events, and what the operators' log says",
    "(?:names|remove) the line$|names the line ": "a line of a configuration",
    r"waitroom_(?:\w+_)?asked": "variables of nginx, which configurations may use",
    r"`[\w/]+::\w+`": "the name of a test",
    "[Yy]ou are (?:not )?in line|[Ll]eave the line|left the line|[Tt]he line is|join the line"
    "|next in line|wait in line|see the line|[Ss]tay in line": "what the waiting page says: people "
    "stand in line",
}

#: Where the product is: code, what is installed beside it, and what is written about it.
PLACES = (
    "README.md",
    "sidecar",
    "waitroom",
    "nginx",
    "static",
    "docs",
    "demo",
    "monitoring",
    "kubernetes",
)
PLACES += ("proxies", "docker", "systemd", "scripts", "loadtest")
SUFFIXES = {".py", ".lua", ".md", ".conf", ".html", ".js", ".css", ".json", ".toml", ".yml"}
SUFFIXES |= {".yaml", ".cfg", ".ini", ".service", ".sh"}
#: Generated from measurements, what the test itself is about, and other languages.
SKIPPED = re.compile(
    r"docs/(?:reliability|glossary)\.md|loadtest/reports/.*|static/i18n/(?!en\b).*"
)


def split(line: str) -> str:
    """`StoreAwayError` has the words of `store_away_error`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", line)


PATTERN = re.compile(f"(?i)(?<![a-z])(?:{'|'.join(WORDS)})(?![a-z])")
EXEMPT = re.compile("|".join(KEPT))


def find_words(text: str) -> Iterator[tuple[int, str]]:
    """Each home-made word, with the number of its line."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in PATTERN.finditer(split(EXEMPT.sub("", line))):
            yield number, match[0]


def find_files(place: Path) -> list[Path]:
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    names = {file: file.relative_to(ROOT).as_posix() for file in files}
    return [
        file for file in files if file.suffix in SUFFIXES and not SKIPPED.fullmatch(names[file])
    ]


def test_no_home_made_word_comes_back():
    """In names, comments, texts and docs; WORDS has what to write in its place."""
    found = [
        f"{file.relative_to(ROOT)}:{number}: {word}"
        for place in PLACES
        for file in find_files(ROOT / place)
        for number, word in find_words(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def as_told(self):", ["told"]),
        ("class StoreAwayError(Exception):", ["Store_Away"]),
        ("from sidecar.jobs import Lane", ["Lane"]),
        ("their place in line", ["in line"]),
        ("a new line in the file", []),
        ("it was asked for", []),
        ("as_asked(request)", ["as_asked"]),
        ('labels=("room", "door", "state")', []),
        ("the door", ["door"]),
    ],
)
def test_words_are_found_in_names_and_texts(text, words):
    """Whole words, also as parts of names; labels and cookies keep theirs."""
    assert [word for _, word in find_words(text)] == words
