"""docs/settings.md and docs/configuration.md: what is written by hand there is right."""

import re
import tomllib
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from scripts.docs_pages import DOCS, settings
from scripts.docs_pages.setting_sections import CLASS, EVENT, REPLICA, ROOM, SECTIONS, WEBHOOK
from scripts.docs_pages.setting_sections import TARGET as A_TARGET
from scripts.docs_pages.settings import example, written_duration
from sidecar.app.openapi.operations import find_description
from sidecar.kit.setting_types import MAX_NETWORKS, MAX_PATHS, parse_duration
from sidecar.kit.signing import MIN_WEBHOOK_SECRET_LENGTH
from sidecar.rooms.openings import MAX_EVENTS
from sidecar.settings.load import load
from sidecar.settings.model import MIN_ADMIN_TOKEN_LENGTH, MIN_SECRET_LENGTH
from sidecar.visitors.classes import MAX_CLASSES, MAX_LINES

PAGES = {
    "configuration.md": (DOCS / "configuration.md").read_text(),
    "settings.md": settings.page(),
}
SETTINGS = [(section, name) for section in SECTIONS for name in section.model.model_fields]
IDS = [f"{section.title}-{name}" for section, name in SETTINGS]


@pytest.mark.parametrize(("section", "name"), SETTINGS, ids=IDS)
def test_a_setting_says_what_it_does(section, name):
    """In whole sentences, below its field."""
    assert find_description(section.model, name).endswith(".")


@pytest.mark.parametrize(("section", "name"), SETTINGS, ids=IDS)
def test_an_example_is_allowed_and_no_default(section, name):
    """As far as one setting can be right without the others."""
    field = section.model.model_fields[name]
    value = tomllib.loads(example(section, name))[name]
    if name in {"prequeue_from", "opens_at", "closes_at"}:
        return  # their time zone is another setting: the section's own example is read below
    found = TypeAdapter(Annotated[field.annotation, None, *field.metadata]).validate_python(value)
    assert found != field.default


def test_each_setting_has_an_anchor_of_its_own():
    """By which error messages and people can link to it."""
    headings = re.findall(r"^### (.+)$", PAGES["settings.md"], re.MULTILINE)
    assert len(headings) == len(set(headings)) == len(SETTINGS)
    assert "`total_active_users`" in headings


@pytest.mark.parametrize(
    ("section", "name", "text"),
    [
        (REPLICA, "secret_keys", f"at least {MIN_SECRET_LENGTH} characters"),
        (REPLICA, "admin_token", f"at least {MIN_ADMIN_TOKEN_LENGTH} characters"),
        (REPLICA, "service_token", f"at least {MIN_ADMIN_TOKEN_LENGTH} characters"),
        (REPLICA, "tokens", f"at least {MIN_ADMIN_TOKEN_LENGTH} characters"),
        (WEBHOOK, "secret", f"at least {MIN_WEBHOOK_SECRET_LENGTH} characters"),
        (A_TARGET, "callback_secret", f"at least {MIN_WEBHOOK_SECRET_LENGTH} characters"),
        (A_TARGET, "classes", f"At most {MAX_CLASSES} priority classes"),
        (ROOM, "classes", f"At most {MAX_CLASSES} classes"),
        (ROOM, "lines", f"2 to {MAX_LINES}"),
        (ROOM, "events", f"At most {MAX_EVENTS} scheduled openings"),
        (ROOM, "exempt_addresses", f"At most {MAX_NETWORKS:,} IP addresses"),
        (ROOM, "exempt_paths", f"at most {MAX_PATHS:,} paths"),
    ],
)
def test_a_bound_in_words_is_the_bound(section, name, text):
    """Where a function checks it, and no bound of the field."""
    assert text in " ".join(find_description(section.model, name).split())


@pytest.mark.parametrize("text", ["1ms", "500ms", "1s", "90s", "2m", "36h", "7d"])
def test_a_duration_is_written_as_it_is_read(text):
    """In the largest unit of which it has a whole number."""
    assert written_duration(parse_duration(text)) == text


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_tables_are_right(tmp_path, monkeypatch, name):
    """Each table that a page shows is part of a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets").mkdir()
    for secret in ("secret_keys", "admin_token"):
        (tmp_path / "secrets" / secret).write_text("s" * 64)
    base = {f"WAITROOM_ROOMS__{room}__TOTAL_ACTIVE_USERS": "9" for room in ("SHOP", "TICKETS")}
    found = re.findall(r"```toml\n(.*?)```", PAGES[name], re.DOTALL)
    assert len(found) == {"configuration.md": 2, "settings.md": 10}[name]
    for text in found:
        (tmp_path / "waitroom.toml").write_text(text)
        keys = {} if "secret_keys_file" in text else {"WAITROOM_SECRET_KEYS": "s" * 64}
        load(None, {**base, **keys})


def test_the_pages_variables_are_right(tmp_path):
    """They do without a file."""
    block = re.search(r"```sh\n(WAITROOM_.*?)```", PAGES["configuration.md"], re.DOTALL)[1]
    variables = dict(line.split("=", 1) for line in block.splitlines())
    (tmp_path / "secret").write_text("s" * 64)
    variables["WAITROOM_SECRET_KEYS_FILE"] = str(tmp_path / "secret")
    variables = {name: value.strip("'") for name, value in variables.items()}
    (tmp_path / "waitroom.toml").write_text("")
    room = load(str(tmp_path / "waitroom.toml"), variables).rooms["shop"]
    assert (room.total_active_users, room.classes["vip"].head_start) == (300, 300)


def test_what_the_pages_say_of_one_table_is_of_that_table():
    """Sections are named as configuration.md links to them."""
    tables = PAGES["configuration.md"].split("## The tables")[1]
    linked = re.findall(r"settings\.md#([a-z-]+)\)", tables)
    titles = {section.title.lower().replace(" ", "-") for section in SECTIONS}
    assert set(linked) == titles >= {"a-class", "an-event"}
    assert CLASS.belongs_to == EVENT.belongs_to == ROOM.title
