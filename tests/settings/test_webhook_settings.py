"""The settings of webhooks: read from a file and from variables, and never repeated."""

import re
from pathlib import Path

import pytest

from sidecar.kit.errors import InputError
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load
from sidecar.webhooks.settings import ROOM_EVENT_NAMES, Webhook
from tests.settings.problems import GOOD, SECRET, problems

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text()
URL = "https://chat.test/token-that-nobody-sees"


def test_a_table_is_a_webhook(write):
    """Its address alone is enough; all events of all rooms are told then."""
    path = write(f'[webhooks.team]\nurl = "{URL}"')
    team = load(path, GOOD).webhooks["team"]
    assert (team.format, team.secret, team.events, team.rooms) == (
        "generic",
        "",
        [*ROOM_EVENT_NAMES],
        [],
    )
    assert team.is_about("shop")
    assert team.host == "chat.test"
    assert load(None, GOOD).webhooks == {}


def test_the_pages_example_is_right(write):
    """What docs/webhooks.md shows is a configuration."""
    path = write(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    settings = load(path, {"WAITROOM_SECRET_KEYS": SECRET})
    assert set(settings.webhooks) == {"team", "autoscaler"}
    assert settings.rooms["shop"].notify_above == 1000


def test_a_webhook_comes_from_variables(folder):
    """Lists have commas between their parts, and address and secret may lie in files."""
    (folder / "url").write_text(URL + "\n")
    (folder / "secret").write_text("s" * 16 + "\n")
    team = {
        "URL_FILE": str(folder / "url"), "SECRET_FILE": str(folder / "secret"),
        "EVENTS": "room_full, queue_over", "ROOMS": "shop",
    }  # fmt: skip
    environ = {f"WAITROOM_WEBHOOKS__TEAM__{name}": text for name, text in team.items()}
    webhook = load(None, {**GOOD, **environ}).webhooks["team"]
    assert webhook == Webhook(
        url=URL, secret="s" * 16, events=["room_full", "queue_over"], rooms=["shop"]
    )
    assert not webhook.is_about("another")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"url": "ftp://nobody-sees/x"}, "url: write an address such as https://"),
        ({"url": "nobody-sees"}, "url: write an address such as https://"),
        ({"url": "https://"}, "url: write an address such as https://"),
        ({"url": "https://h/nobody sees"}, "without spaces"),
        ({"url": "https://nobody-sees:99999/"}, "url: the address cannot be read"),
        ({"url": "https://[nobody-sees/"}, "url: the address cannot be read"),
        ({"url": "https://[]@nobody-sees/"}, "url: the address cannot be read"),
        ({"secret": "nobody-sees"}, "secret: fewer than 16 characters"),
        ({"secret": "nobody-sees-0000", "format": "slack"}, "secret: Slack takes no signature"),
        ({"secret": "whsec_nobody-sees-0000"}, "secret: after whsec_ comes the base64 of 24 to 64"),
        ({"secret": "whsec_bm9ib2R5LXNlZXM="}, "secret: after whsec_ comes the base64 of 24 to 64"),
        ({"previous_secret": "nobody-sees-0000"}, "previous_secret: requires `secret`"),
        (
            {"secret": "s" * 16, "previous_secret": "nobody-sees"},
            "previous_secret: fewer than 16 characters",
        ),
        (
            {"secret": "s" * 16, "previous_secret": "whsec_nobody-sees"},
            "previous_secret: after whsec_ comes the base64",
        ),
        (
            {"secret": "s" * 16, "previous_secret": "nobody-sees-0000", "format": "dingtalk"},
            "previous_secret: DingTalk has one secret at a time",
        ),
        ({"format": "nobody-sees"}, "format: must be 'generic', 'slack' or 'dingtalk'"),
        ({"events": "nobody-sees"}, "'site_state', 'called' or 'target_queue_over'"),
        ({"events": "called", "format": "slack"}, "events: called requires format"),
        ({"events": "room_full,called", "format": "dingtalk"}, "events: called requires format"),
        ({"events": ""}, "events: must have 1 or more entries"),
        ({"colour": "nobody-sees"}, "COLOUR: unknown setting"),
        ({"rooms": "shop,cup"}, "team.rooms: no room is named 'cup'"),
    ],
)
def test_a_problem_says_what_is_allowed_and_repeats_nothing(values, problem):
    """Addresses are secrets here, so no value of a webhook is said again."""
    values = {"url": URL, **values}
    environ = {f"WAITROOM_WEBHOOKS__TEAM__{name.upper()}": v for name, v in values.items()}
    (line,) = problems(**{**GOOD, **environ})
    assert line.startswith(("webhooks", "WAITROOM_WEBHOOKS"))
    assert problem in line
    assert "nobody" not in line


def test_a_webhook_without_an_address_is_a_problem(write):
    """And so is a name that could not be a variable's."""
    path = write(f'[webhooks.team]\nformat = "slack"\n[webhooks."My Team"]\nurl = "{URL}"')
    found = problems(path, **GOOD)
    assert "webhooks.team.url: is needed" in found
    assert any("lower-case letters" in line for line in found)
    assert len(found) == 2


def test_calls_are_told_to_who_asks_for_them():
    """One message about a room is for everybody; one about each visitor is not."""
    assert Webhook(url=URL).has_calls is False
    for events in (["called"], ["called", "room_full"]):
        assert Webhook(url=URL, events=events).has_calls is True


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("https://shop.example", "https://shop.example"),
        ("http://shop.example:8080/", "http://shop.example:8080"),
        ("https://[2001:db8::1]:443", "https://[2001:db8::1]:443"),
    ],
)
def test_a_sites_address_is_scheme_host_and_port(given, taken):
    """What follows it is ours."""
    assert RoomSettings(total_active_users=1, public_url=given).public_url == taken


@pytest.mark.parametrize(
    "given",
    ["", "shop.example", "ftp://shop.example", "https://", "https://shop.example/x", "https:///x",
     "https://shop.example?a=b", "https://shop.example#a", "https://me:pw@shop.example",
     "https://shop.example:0", "https://shop.example:99999", "https://shop example",
     "//shop.example", "https://shop.example\n", "https://ſhop.example", "javascript:alert(1)",
     "https://shop.example:８０"],
)  # fmt: skip
def test_what_is_no_sites_address_is_a_problem(given):
    """It would stand in messages to visitors. Hosts are written as they are sent: xn--…"""
    with pytest.raises(InputError, match="public_url: write the site's address"):
        RoomSettings(total_active_users=1).with_overrides({"public_url": given})


def test_what_is_printed_shows_no_secret():
    """Not even the object's own words do."""
    settings = load(None, {**GOOD, "WAITROOM_WEBHOOKS__TEAM__URL": URL,
                           "WAITROOM_WEBHOOKS__TEAM__SECRET": "secret-nobody-sees"})  # fmt: skip
    assert "team" in repr(settings)
    assert "nobody-sees" not in repr(settings)


def test_scripts_do_not_hear_of_what_webhooks_go_by():
    """It is the notifier's, and the caller's."""
    settings = RoomSettings(total_active_users=1, notify_above=5, public_url="https://shop.example")
    assert "notify_above" not in settings.get_script_settings()
    assert "shop.example" not in str(settings.get_script_settings())
