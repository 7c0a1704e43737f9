"""The settings of a webhook: its URL, its format, and the events and rooms it is about."""

from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)
from yarl import URL

from sidecar.kit.setting_types import split_list
from sidecar.kit.signing import check_webhook_secret

#: The default of a webhook's `events`.
RoomEventName = Literal["queue_started", "queue_over", "queue_empty", "room_full"]
ROOM_EVENT_NAMES: tuple[RoomEventName, ...] = get_args(RoomEventName)
#: The events of targets, which a webhook gets if it names them.
TargetEventName = Literal["target_queue_over"]
TARGET_EVENT_NAMES: tuple[TargetEventName, ...] = get_args(TargetEventName)
#: The events of rooms that are not in the default: `site_state` may be frequent, and the messages
#: of `called` are about individual visitors.
WebhookEventName = Literal[RoomEventName, "site_state", "called", TargetEventName]


def _check_url(value: str) -> str:
    """Check that aiohttp can use a URL. Errors do not contain the URL, because it is secret."""
    try:
        url = URL(value)
    except (ValueError, IndexError):  # yarl raises IndexError for [] before @
        raise ValueError("the address cannot be read: a port is a number up to 65535") from None
    host = url.host or ""
    if url.scheme not in {"http", "https"} or not host or any(c <= " " for c in value):
        raise ValueError("write an address such as https://example.com/hook, without spaces")
    return value


class Webhook(BaseModel):
    """The settings of one webhook. `url` and `secret` are never shown or logged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, AfterValidator(_check_url)] = Field(repr=False)
    """The URL to which messages are sent by POST. It is never logged."""
    format: Literal["generic", "slack", "dingtalk"] = "generic"
    """`generic`: a JSON object with the room's numbers. `slack` and `dingtalk`: a sentence in the
    format of that service."""
    secret: str = Field(default="", repr=False)
    """The secret that signs the messages: at least 16 characters, for example `whsec_` followed by
    24 to 64 random bytes in base64. For `dingtalk`, it is the robot's secret (`SEC…`). `slack`
    does not allow a secret. If it is empty, messages are not signed."""
    previous_secret: str = Field(default="", repr=False)
    """The old secret, while you replace `secret`: each message is signed with both secrets, as
    Standard Webhooks allows. Remove it when the receiver has the new secret. Only for `generic`."""
    events: Annotated[list[WebhookEventName], BeforeValidator(split_list)] = Field(
        default=[*ROOM_EVENT_NAMES], min_length=1
    )
    """The events about which messages are sent. `called` is about one visitor whose turn it is, and
    requires the format `generic`. `target_queue_over` is about targets with `notify_above`, and
    `site_state` about adaptive rooms. These three are sent only if you list them. In an environment
    variable, separate events with commas."""
    rooms: Annotated[list[str], BeforeValidator(split_list)] = []
    """The rooms about which messages are sent. Empty: all rooms. Messages about targets are sent
    regardless of this setting."""

    @field_validator("secret", "previous_secret")
    @classmethod
    def _check_secret(cls, secret: str, info: ValidationInfo) -> str:
        if not secret:
            return secret
        match info.field_name, info.data.get("format"):
            case "secret", "slack":
                raise ValueError("Slack takes no signature, its url is the secret: leave this out")
            case "previous_secret", "dingtalk":
                raise ValueError("DingTalk has one secret at a time: leave this out")
        if info.data.get("secret") == "":
            raise ValueError("requires `secret`, the new secret")
        check_webhook_secret(secret)
        return secret

    @field_validator("events")
    @classmethod
    def _check_events(
        cls, events: list[WebhookEventName], info: ValidationInfo
    ) -> list[WebhookEventName]:
        if "called" in events and info.data.get("format") in {"slack", "dingtalk"}:
            raise ValueError(
                'called requires format = "generic", because each message has links for visitors'
            )
        return events

    @property
    def secrets(self) -> list[str]:
        """Return the secrets that sign messages, the newest first."""
        return [secret for secret in (self.secret, self.previous_secret) if secret]

    @property
    def has_calls(self) -> bool:
        return "called" in self.events

    @property
    def host(self) -> str:
        """Return the host of the URL, the only part that is not secret."""
        return URL(self.url).host or ""

    def is_about(self, room: str) -> bool:
        return not self.rooms or room in self.rooms
