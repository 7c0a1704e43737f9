"""docs/configuration.md says of every setting what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import annotated_types
import pytest
from pydantic_core import PydanticUndefined

from sidecar.jobs.settings import METHODS, TargetSettings
from sidecar.kit.setting_types import parse_duration
from sidecar.kit.signing import MIN_WEBHOOK_SECRET_LENGTH
from sidecar.leases.settings import LeaseSettings
from sidecar.limits.settings import MAX_LIMIT, UNLIMITED, LimitSettings
from sidecar.queue.classes import MAX_CLASSES, MAX_LINES, Line, VisitorClass
from sidecar.rooms.openings import MAX_EVENTS, RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.settings import MIN_ADMIN_TOKEN_LENGTH, MIN_SECRET_LENGTH, Settings, load
from sidecar.webhooks.settings import EVENTS, WANTED, Webhook

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()
ROW = re.compile(r"\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]*) \| ([^|]+) \|")
MODELS = {
    "The replica": Settings,
    "A room": RoomSettings,
    "A class": VisitorClass,
    "A line": Line,
    "An event": RoomEvent,
    "A webhook": Webhook,
    "A lease": LeaseSettings,
    "A limit": LimitSettings,
    "A target": TargetSettings,
}
#: What a list of words may hold.
WORDS = {"events": WANTED, "methods": METHODS, "kinds": ("offline", "online")}


def rows(heading: str) -> dict[str, tuple[str, ...]]:
    """A section's table: the cells after the name, by name."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {match[1]: tuple(match.groups()[1:]) for match in ROW.finditer(section)}


SETTINGS = [(heading, name) for heading, model in MODELS.items() for name in model.model_fields]


@pytest.mark.parametrize("heading", MODELS)
def test_every_setting_is_documented_and_no_other(heading):
    """The page's tables have a row for each setting, and no row for what is none."""
    assert sorted(rows(heading)) == sorted(MODELS[heading].model_fields)
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(SETTINGS), "a row that this test cannot read"


@pytest.mark.parametrize(("heading", "name"), SETTINGS)
def test_the_documented_default_is_the_default(heading, name):
    """The default that the page names is the one that is used."""
    kind, cell, *_ = rows(heading)[name]
    field = MODELS[heading].model_fields[name]
    if cell == "needed":
        # A table or list that must not be empty is needed too, though it has a default.
        assert field.default in (PydanticUndefined, [], {})
    elif cell in ("none", "empty"):
        assert field.default in {"none": [None], "empty": ["", {}, [], ()]}[cell]
    elif cell == "all but `called`":
        assert field.default == [*EVENTS]
    elif kind == "list of statuses":
        assert re.findall(r"`(\w+)`", cell) == [str(part) for part in field.default]
    elif kind == "list of words":
        assert tuple(re.findall(r"`(\w+)`", cell)) == field.default
    else:
        assert read(kind, cell.strip("`")) == field.default


def read(kind: str, text: str) -> object:
    """A cell's value by its column `type`."""
    if kind == "duration":
        return parse_duration(text)
    if kind == "number":
        return int(text.replace(",", ""))
    return text == "true" if kind == "switch" else text


@pytest.mark.parametrize(("heading", "name"), SETTINGS)
def test_the_documented_bounds_are_the_bounds(heading, name):
    """What the page allows is what is allowed: words, and least and most of numbers."""
    kind, _, cell, _ = rows(heading)[name]
    field = MODELS[heading].model_fields[name]
    words = {str(word) for part in (field.annotation, *field.metadata) for word in get_args(part)}
    bounds = {type(one): one for one in field.metadata}
    if kind == "switch":
        assert cell == "`true`, `false`"
    elif kind == "word" or name == "queueing_status_code":
        assert set(re.findall(r"`(\w+)`", cell)) == words
    elif kind == "list of words":
        assert re.findall(r"`(\w+)`", cell) == [*WORDS[name]]
    elif (heading, name) == ("A limit", "limit"):
        assert cell == f"0 to {MAX_LIMIT:,}, or {UNLIMITED}"
    elif kind in ("number", "duration"):
        match = re.fullmatch(r"(?:from |over )?(\S+)(?: to (\S+))?", cell.partition(";")[0])
        assert match
        low, high = (one and read(kind, one.strip("`")) for one in match.groups())
        least = bounds.get(annotated_types.Ge) or bounds[annotated_types.Gt]
        assert low == (least.ge if "over" not in cell else least.gt)
        assert high == (bounds[annotated_types.Le].le if annotated_types.Le in bounds else None)
    else:
        lengths = {
            "message": bounds.get(annotated_types.MaxLen),
            "secret_keys": MIN_SECRET_LENGTH,
            "admin_token": MIN_ADMIN_TOKEN_LENGTH,
            "service_token": MIN_ADMIN_TOKEN_LENGTH,
            "secret": MIN_WEBHOOK_SECRET_LENGTH,
            "classes": MAX_CLASSES,
            "events": MAX_EVENTS,
            "key": bounds.get(annotated_types.MaxLen),
            "callback_secret": MIN_WEBHOOK_SECRET_LENGTH,
        }
        if name in lengths:
            length = getattr(lengths[name], "max_length", lengths[name])
            assert int(re.findall(r"\d+", cell)[0]) == length


def test_the_documented_number_of_lines_is_the_number():
    """At least two, or there is one line as ever."""
    assert f"2 to {MAX_LINES} [lines]" in rows("A room")["lines"][2]


def test_the_pages_tables_are_right(tmp_path):
    """Each table that the page shows is part of a configuration."""
    file = tmp_path / "example.toml"
    base = {f"WAITROOM_ROOMS__{room}__TOTAL_ACTIVE_USERS": "9" for room in ("SHOP", "TICKETS")}
    found = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for text in found:
        file.write_text(text)
        load(str(file), {"WAITROOM_SECRET_KEYS": "s" * 64, **base})
    assert len(found) == 8


def test_the_pages_example_is_right(tmp_path, monkeypatch):
    """The file and the variables that the page shows are a configuration."""
    toml = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
    variables = dict(re.findall(r"^    (WAITROOM_\w+)=(\S+)$", PAGE, re.MULTILINE))
    secret = tmp_path / "secret"
    secret.write_text("s" * 64)
    variables["WAITROOM_SECRET_KEYS_FILE"] = str(secret)
    file = tmp_path / "example.toml"
    file.write_text(toml)
    settings = load(str(file), {"WAITROOM_SECRET_KEYS": "s" * 64})
    assert settings.rooms["shop"].session_duration == 600
    assert settings.rooms["tickets"].new_users_per_minute == 120
    monkeypatch.chdir(tmp_path)  # where there is no waitroom.toml
    alone = load(None, variables)
    assert alone.store == "redis://redis:6379/0"
    assert alone.rooms["shop"].total_active_users == 300
