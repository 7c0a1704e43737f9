"""The command `waitroom grant`, which creates signed tokens that give a visitor or job a class."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from sidecar.cli.config import CONFIG, Settings, load_settings
from sidecar.cli.output import JSON, print_json
from sidecar.cli.parsing import is_web_url, read_duration
from sidecar.kit.clock import iso

if TYPE_CHECKING:
    from sidecar.jobs.settings import TargetSettings
    from sidecar.rooms.settings import RoomSettings
    from sidecar.visitors.grants import GrantKind

MAX_COUNT = 1_000_000


def _check_url(_context: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    if url is not None and not is_web_url(url):
        raise click.BadParameter("write a whole address, such as https://shop.example/sale")
    return url


@click.command()
@click.argument("room")
@click.argument("class_name", metavar="CLASS")
@CONFIG
@click.option(
    "--expires",
    "life_s",
    default="1d",
    show_default=True,
    callback=read_duration,
    metavar="DURATION",
    help="How long the grants are valid, such as 2h (at most 366d).",
)
@click.option("--once", is_flag=True, help="Print single-use grants.")
@click.option("--id", "id_", metavar="ID", help="Print one single-use grant with this id.")
@click.option(
    "--count",
    default=1,
    type=click.IntRange(1, MAX_COUNT),
    help="The number of grants to print; requires --once.",
)
@click.option("--url", callback=_check_url, metavar="URL", help="Print grants as links to a page.")
@click.option(
    "--kind",
    type=click.Choice(["room", "target"]),
    help="Whether ROOM means a room or a target, if there is one of each with this name.",
)
@JSON
def grant(room: str, class_name: str, path: str | None, **options: Any) -> None:
    """Print grants, which give visitors or jobs a class in a queue.

    ROOM is the name of a room, or of a target (an API that jobs call).

    To use a grant, a visitor opens a URL with waitroom_grant=GRANT in its query string. --url
    prints such links. No replica is needed: the class and the keys are read from the settings.
    """
    settings = load_settings(path)
    kind, classes = _find_classes(settings, room, options["kind"])
    if class_name not in classes:
        raise click.UsageError(
            f"no class of {room} is named {class_name!r}; "
            f"the settings name {', '.join(classes) or 'none'}; "
            f"one that was set at run time: POST /admin/rooms/{room}/grants"
        )
    id_, count, is_once = options["id_"], options["count"], options["once"]
    if id_ == "":
        raise click.UsageError("--id: it is empty, and everybody could use the grant")
    if is_once and id_ is not None:
        raise click.UsageError("--id and --once: an id is for one visitor already")
    if count > 1 and not is_once:
        raise click.UsageError("--count: all would be the same; say --once too")
    from sidecar.visitors.grants import Grant, Grants, compute_expiry_s, new_grant_id  # noqa: PLC0415

    grants = Grants(room, settings.keys_of_grants, kind)
    expires_s = compute_expiry_s(options["life_s"], int(time.time() * 1000))
    ids = (new_grant_id() for _ in range(count)) if is_once else [id_ or ""]
    tokens = (grants.sign(Grant(class_name, expires_s, grant_id)) for grant_id in ids)
    lines = (add_grant(options["url"], token) if options["url"] else token for token in tokens)
    if not options["as_json"]:
        for line in lines:
            click.echo(line)
        return
    expires_at = iso(expires_s * 1000)
    print_json({"room": room, "class": class_name, "expires_at": expires_at, "grants": list(lines)})


def _find_classes(
    settings: Settings, name: str, kind: "GrantKind | None"
) -> "tuple[GrantKind, Mapping[str, object]]":
    """Find the room or target with this name, or only one of them if `kind` is not None. Return its
    kind and its classes. Raises UsageError."""
    settings_of: dict[GrantKind, Mapping[str, RoomSettings | TargetSettings]]
    settings_of = {"room": settings.rooms, "target": settings.targets}
    kinds = [k for k, names in settings_of.items() if name in names and kind in {None, k}]
    if not kinds:
        what = f"no {kind} is" if kind else "no room and no target is"
        raise click.UsageError(f"{what} named {name!r}")
    if len(kinds) > 1:
        raise click.UsageError(f"a room and a target are named {name!r}: say --kind room or target")
    return kinds[0], settings_of[kinds[0]][name].classes


def add_grant(url: str, grant: str) -> str:
    """Add a grant to the query of a URL."""
    from sidecar.visitors.grants import PARAMETER  # noqa: PLC0415

    parts = urlsplit(url)
    query = f"{parts.query}&{PARAMETER}={grant}" if parts.query else f"{PARAMETER}={grant}"
    return parts._replace(path=parts.path or "/", query=query).geturl()
