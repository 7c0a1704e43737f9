"""waitroom init and waitroom update-files."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.setup.plan import (
    NGINX,
    SECRET_KEYS,
    TOML,
    Room,
    compose_file,
    first_files,
    shipped,
)
from sidecar.cli.setup.systems import SYSTEMS, System, find_system
from sidecar.cli.setup.write import BESIDE, MANIFEST, write_once, write_shipped
from sidecar.kit.names import NAME, RESERVED_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.cli.setup.write import Outcome

_SITE = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>[a-z0-9-][a-z0-9.-]*)(?P<port>:\d{1,5})?/?", re.ASCII
)
_INSTALL_REDIS = "The replicas need it. On Debian and Ubuntu: sudo apt install redis-server"
_HOMES = ("/home/", "/root/")
_ROOT = Path("/")
#: In a container `redis` is the service of that name.
_REDIS = {"docker": "redis://redis:6379/0"}


class _Question(click.Option):
    """An option that is asked for where it is missing and somebody sits at a terminal."""

    def __init__(self, *args: Any, question: str, **kwargs: Any) -> None:
        kwargs["prompt"] = question if sys.stdin.isatty() else False
        super().__init__(*args, **kwargs)


def _read_site(_context: click.Context, _parameter: click.Parameter, value: str) -> re.Match[str]:
    if (found := _SITE.fullmatch(value.lower())) is None:
        raise click.BadParameter(f"{value!r} is no host name, such as shop.example")
    return found


def _read_redis(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not value:
        return _REDIS.get(context.params["system"], "redis://127.0.0.1:6379/0")
    from sidecar.kit.setting_types import read_store  # noqa: PLC0415

    try:
        return read_store(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _read_room(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not NAME.match(value):
        raise click.BadParameter("a name has lower-case letters, digits, - and _, 48 at most")
    if value in RESERVED_NAMES:
        raise click.BadParameter(f"{value} is taken, by an address or a cookie of our own")
    return value


@dataclass(frozen=True, slots=True)
class Place:
    """Where files are written."""

    system: str
    root: Path
    dry_run: bool


def at_a_place(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that say where, as its first argument."""

    @functools.wraps(command)
    def run(*, system: str, into: Path | None, dry_run: bool, **others: Any) -> None:
        root = into or (Path("waitroom") if system == "docker" else _ROOT)
        command(Place(system, root, dry_run), **others)

    options = (
        click.option(
            "--system",
            type=click.Choice(list(SYSTEMS)),
            default=find_system,
            is_eager=True,
            show_default="this machine's",
            help="Whose places to use. plain: without systemd.",
        ),
        click.option(
            "--into",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Write below this folder.  [default: /; for docker ./waitroom]",
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be written; write nothing."),
    )
    return functools.reduce(lambda made, option: option(made), reversed(options), run)


@click.command()
@click.option(
    "--site",
    cls=_Question,
    question="Which site gets the waiting room",
    required=True,
    callback=_read_site,
    help="Its host name or address: shop.example, https://shop.example.",
)
@click.option(
    "--users",
    cls=_Question,
    question="How many visitors may be inside at the same time",
    required=True,
    type=click.IntRange(0, 10_000_000),
    help="The cap of the room.",
)
@click.option(
    "--redis",
    "store",
    cls=_Question,
    question="Where is Redis (Enter: on this machine)",
    default="",
    show_default="redis://127.0.0.1:6379/0",
    callback=_read_redis,
    help="The address of Redis or Valkey.",
)
@click.option(
    "--room",
    default="",
    metavar="NAME",
    show_default="from the site's",
    callback=_read_room,
    help="The room's name.",
)
@click.option(
    "--site-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The site's file in nginx's folder. It is read, and the lines that it needs are printed.",
)
@at_a_place
def init(  # noqa: PLR0913 - one for each option
    place: Place,
    *,
    site: re.Match[str],
    users: int,
    store: str,
    room: str,
    site_file: Path | None,
) -> None:
    """Write what a first waiting room needs, and say what is left to do.

    That is: settings with comments, secrets that root alone can read, nginx's includes and the
    waiting page, and units for systemd. What you have written or edited is never overwritten.
    """
    chosen, root, dry_run = SYSTEMS[place.system], place.root, place.dry_run
    name = room or _room_of(site["host"])
    edit = _edit_of(site_file, name) if site_file else _usual_edit(chosen.site_file, name)

    def write() -> list[tuple[str, Outcome]]:
        keys = _keys_in(root / SECRET_KEYS)
        first = Room(name, users, store)
        files = first_files(
            first,
            keys,
            list(chosen.replicas),
            has_units=chosen.has_units,
            has_settings=(root / TOML).exists(),
        )
        if place.system == "docker":
            files.append(compose_file(root))
        done = write_once(root, files, dry_run=dry_run)
        return done + write_shipped(root, _shipped(chosen), dry_run=dry_run)

    _report(root, _written(write, root), dry_run=dry_run)
    if not dry_run:
        url = f"{site['scheme'] or 'http'}://{site['host']}{site['port'] or ''}/"
        click.echo("\n".join(_what_is_left(chosen, root, edit, url)))
        if place.system != "docker" and (problem := _problem_of_redis(store)):
            click.echo(f"\nWarning: Redis does not answer: {problem}. {_INSTALL_REDIS}", err=True)


@click.command("update-files")
@at_a_place
def update_files(place: Place) -> None:
    """Bring nginx's includes, the waiting page and the units to this version.

    Your settings stay. So does a shipped file that you have edited: the new one is written beside
    it, with .new after its name.
    """
    chosen, root, dry_run = SYSTEMS[place.system], place.root, place.dry_run
    if not (root / NGINX).is_dir():
        raise click.ClickException(f"there is no {root / NGINX}; waitroom init writes it")
    done = _written(lambda: write_shipped(root, _shipped(chosen), dry_run=dry_run), root)
    _report(root, done, dry_run=dry_run)
    if not dry_run and any(outcome in {"new", "updated"} for _, outcome in done):
        click.echo(f"\nNow let nginx read them: {chosen.reload}")


def _room_of(host: str) -> str:
    """`shop` of www.shop.example; `site` where the host is an address."""
    label = host.removeprefix("www.").partition(".")[0]
    is_name = (
        NAME.match(label)
        and label.strip("0123456789_")
        and label not in {"localhost", *RESERVED_NAMES}
    )
    return label if is_name else "site"


def _program() -> str:
    """This command, as a unit can start it."""
    return str(Path(sys.executable).with_name("waitroom"))


def _problem_of_redis(store: str) -> str:
    """Why no server answers there; empty: one does, or Sentinel or a Cluster knows where."""
    import redis  # noqa: PLC0415

    from sidecar.kit.errors import StoreError  # noqa: PLC0415
    from sidecar.storage.redis.one_server import ask_server  # noqa: PLC0415

    try:
        ask_server(store, redis.Redis.ping)
    except StoreError as error:
        return str(error).rstrip(".")
    return ""


def _shipped(system: System) -> list[Any]:
    return shipped(_program(), system.nginx_user, has_units=system.has_units)


def _keys_in(file: Path) -> list[str]:
    return file.read_text("utf-8").replace(",", " ").split() if file.exists() else []


def _written(
    write: Callable[[], list[tuple[str, Outcome]]], root: Path
) -> list[tuple[str, Outcome]]:
    try:
        return write()
    except json.JSONDecodeError as error:
        text = f"{root / MANIFEST} is damaged ({error}); remove it, and edited files stay"
        raise click.ClickException(text) from None
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
        if isinstance(error, PermissionError) and root == _ROOT and os.geteuid() != 0:
            text += ". Run it with sudo, or write elsewhere first: --into ./files"
        raise click.ClickException(text) from None


def _report(root: Path, done: list[tuple[str, Outcome]], *, dry_run: bool) -> None:
    """One line for each file; nginx's many files that are as shipped are one line."""
    shown: dict[tuple[str, Outcome], int] = {}
    for path, outcome in done:
        name = f"{NGINX}/…" if path.startswith(f"{NGINX}/") and outcome != "kept" else path
        shown[name, outcome] = shown.get((name, outcome), 0) + 1
    for (name, outcome), count in shown.items():
        click.echo(f"{outcome:8} {root / name}{f' ({count} files)' if count > 1 else ''}")
    if any((root / f"{path}{BESIDE}").exists() for path, outcome in done if outcome == "kept"):
        click.echo(f"\nWhat you have edited is kept; the new version lies beside it, in *{BESIDE}.")
    if dry_run:
        click.echo("\nNothing was written: this was a dry run.")


def _usual_edit(file: str, room: str) -> tuple[str, ...]:
    return (
        f"Add three lines to {file}:",
        "server {",
        "    include waitroom/server.conf;        # add this, first in the server",
        "    location / {",
        f"        set $waitroom_room {room};",
        "        include waitroom/location.conf;  # add these two to each location with a room",
    )


def _edit_of(file: Path, room: str) -> tuple[str, ...]:
    """What this very file needs, block by block."""
    from sidecar.cli.setup.site_file import steps_for  # noqa: PLC0415

    try:
        steps = steps_for(file, room)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--site-file") from None
    if not steps:
        return (f"{file} has all the lines that it needs.",)
    said: list[str] = []
    for step in steps:
        why = f": {step.why}" if step.why else ""
        said += [f"line {step.line}, {step.block}{why}"]
        said += [f"    {line}" for line in step.lines] or ["    (no line to add)"]
    return (f"Add these lines to {file}, each at the beginning of its block:", *said)


def _what_is_left(system: System, root: Path, edit: tuple[str, ...], url: str) -> list[str]:
    """The steps, numbered: each is a sentence, and its lines."""
    copy = ("Copy the files to the server:", f"sudo cp -rn {root}/etc {root}/usr /")
    steps = [
        *([copy] if system.has_units and root != _ROOT else []),
        edit,
        system.start,
        ("Let nginx read its files:", system.reload),
        ("See whether all is right:", f"waitroom doctor {url}"),
    ]
    lines = ["", "What is left to do:"]
    for number, (sentence, *commands) in enumerate(steps, 1):
        lines += ["", f"{number}. {sentence}", *(f"     {line}" for line in commands)]
    program = _program()
    if system.has_units and program.startswith(_HOMES):
        lines += [
            "",
            f"Warning: {program} is in a home folder, which the replicas do not see.",
            "Install it for all users, and write the units again:",
            "     sudo PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install waitroom",
            "     sudo waitroom update-files",
        ]
    return [line.replace("{into}", str(root)) for line in lines]
