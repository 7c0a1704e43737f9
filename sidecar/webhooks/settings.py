"""The settings of a webhook: where, which events of which rooms, and in what format."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic import field_validator as rule
from yarl import URL

from sidecar.kit.setting_types import split_list
from sidecar.kit.signing import MIN_WEBHOOK_SECRET_LENGTH

#: The events of a room. A webhook that names no events gets all of these.
Event = Literal["queue_started", "queue_over", "queue_empty", "room_full"]
EVENTS: tuple[Event, ...] = get_args(Event)
#: `called` is about visitors. Only a webhook that names it gets it.
Wanted = Literal[Event, "called"]
WANTED: tuple[Wanted, ...] = get_args(Wanted)


def _address(value: str) -> str:
    """Check an address as aiohttp reads it. Errors repeat no part of it, because it is a secret."""
    try:
        url = URL(value)
    except (ValueError, IndexError):  # the latter of yarl, for [] before a @
        raise ValueError("the address cannot be read: a port is a number up to 65535") from None
    host = url.host or ""
    if url.scheme not in {"http", "https"} or not host or any(c <= " " for c in value):
        raise ValueError("write an address such as https://example.com/hook, without spaces")
    return value


class Webhook(BaseModel):
    """One receiver. Neither `url` nor `secret` is ever shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, AfterValidator(_address)] = Field(repr=False)
    """Where each notification is sent, by POST. It is never logged."""
    format: Literal["generic", "slack", "dingtalk"] = "generic"
    """`generic`: a JSON object with the room's numbers. `slack` and `dingtalk`: a sentence in the
    form that these take."""
    secret: str = Field(default="", repr=False)
    """Signs what is sent. 16 characters or more. For `dingtalk` it is the robot's own (`SEC…`);
    `slack` takes none. Empty: nothing is signed."""
    events: Annotated[list[Wanted], BeforeValidator(split_list)] = Field(
        default=[*EVENTS], min_length=1
    )
    """Which notifications. `called` is about single visitors whose turn it is: it is sent only
    where you name it, in the format `generic`. In a variable, commas separate them."""
    rooms: Annotated[list[str], BeforeValidator(split_list)] = []
    """Which rooms. Empty: all."""

    @rule("secret")
    @classmethod
    def _is_long_enough(cls, secret: str, info: ValidationInfo) -> str:
        if secret and info.data.get("format") == "slack":
            raise ValueError("Slack takes no signature, its url is the secret: leave this out")
        if 0 < len(secret) < MIN_WEBHOOK_SECRET_LENGTH:
            raise ValueError(f"fewer than {MIN_WEBHOOK_SECRET_LENGTH} characters")
        return secret

    @rule("events")
    @classmethod
    def _are_for_the_format(cls, events: list[Wanted], info: ValidationInfo) -> list[Wanted]:
        if "called" in events and info.data.get("format") in {"slack", "dingtalk"}:
            raise ValueError(
                "called is for programs, an address for each visitor: leave it out, or say "
                'format = "generic"'
            )
        return events

    @property
    def tells_of_calls(self) -> bool:
        return "called" in self.events

    @property
    def host(self) -> str:
        """Return the part of the address that may be shown."""
        return URL(self.url).host or ""

    def is_about(self, room: str) -> bool:
        return not self.rooms or room in self.rooms
