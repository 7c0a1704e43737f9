"""Which changes of a target an operator may make, and which only an admin."""

from sidecar.jobs.settings import TargetSettings

#: The settings that only an admin may change: where calls go, and their secrets.
ADMIN_SETTINGS = (
    *("url", "private", "headers", "callback_urls"),
    *("callback_secret", "previous_callback_secret"),
)


class AdminNeededError(Exception):
    """Only an admin may make the change that the error text names."""


def describe_admin_change(before: TargetSettings | None, after: TargetSettings) -> str:
    """Describe a change that only an admin may make, or return "" if an operator may make it."""
    if before is None:
        return "A new target"
    names = [name for name in ADMIN_SETTINGS if getattr(before, name) != getattr(after, name)]
    return f"A change of {' and '.join(names)}" if names else ""
