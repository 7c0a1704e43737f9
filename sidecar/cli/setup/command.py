"""The commands `waitroom init` and `waitroom update-files`."""

import functools
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sidecar import __version__
from sidecar.cli.output import combine
from sidecar.cli.setup.files import (
    MANIFEST,
    NEW_SUFFIX,
    NGINX,
    SECRET_KEYS,
    TOML,
    Outcome,
    create_compose_file,
    create_first_files,
    read_shipped_files,
    write_once,
    write_shipped_files,
)
from sidecar.cli.setup.platforms import PLATFORMS, Platform, find_platform
from sidecar.kit.extras import PIPX_INSTALL, find_source
from sidecar.kit.names import NAME, RESERVED_NAMES

_SITE = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>[a-z0-9-][a-z0-9.-]*)(?P<port>:\d{1,5})?/?", re.ASCII
)
_INSTALL_REDIS = "The replicas need it. On Debian and Ubuntu: sudo apt install redis-server"
#: The path of the program `waitroom`, for systemd units.
_PROGRAM = str(Path(sys.executable).with_name("waitroom"))
_HOMES = ("/home/", "/root/")
_ROOT = Path("/")


class _Question(click.Option):
    """An option that is prompted for if it is missing and standard input is a terminal."""

    def __init__(self, *args: Any, question: str, **kwargs: Any) -> None:
        kwargs["prompt"] = question if sys.stdin.isatty() else False
        super().__init__(*args, **kwargs)


def _read_site(_context: click.Context, _parameter: click.Parameter, value: str) -> re.Match[str]:
    if (site := _SITE.fullmatch(value.lower())) is None:
        raise click.BadParameter(f"{value!r} is no host name, such as shop.example")
    return site


def _read_redis(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not value:
        # In a container, the host name `redis` is the Compose service.
        host = "redis" if context.params["system"] == "docker" else "127.0.0.1"
        return f"redis://{host}:6379/0"
    from sidecar.kit.setting_types import check_store  # noqa: PLC0415

    try:
        return check_store(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _read_room(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not NAME.match(value):
        raise click.BadParameter("a name has lower-case letters, digits, - and _, 48 at most")
    if value in RESERVED_NAMES:
        raise click.BadParameter(f"{value} is taken, by an address or a cookie of our own")
    return value


@dataclass(frozen=True, slots=True)
class Destination:
    """The folder that files are written to, and the platform for which they are made."""

    platform: Platform
    is_docker: bool
    root: Path
    dry_run: bool

    def write_shipped_files(self) -> list[tuple[str, Outcome]]:
        files = read_shipped_files(_PROGRAM, self.platform)
        return write_shipped_files(self.root, files, dry_run=self.dry_run)

    def write_and_report(self, write: Callable[[], list[tuple[str, Outcome]]]) -> set[Outcome]:
        """Call `write`, print each file and its outcome, and return the distinct outcomes.

        All of nginx's includes with the same outcome share a line. Raises ClickException.
        """
        try:
            outcomes = write()
        except json.JSONDecodeError as error:
            text = f"{self.root / MANIFEST} is damaged ({error}); remove it, and edited files stay"
            raise click.ClickException(text) from None
        except OSError as error:
            text = f"{error.filename}: {error.strerror}"
            if isinstance(error, PermissionError) and self.root == _ROOT and os.geteuid() != 0:
                text += ". Run it with sudo, or write elsewhere first: --into ./files"
            raise click.ClickException(text) from None
        counts = Counter(
            (f"{NGINX}/…" if path.startswith(f"{NGINX}/") and outcome != "kept" else path, outcome)
            for path, outcome in outcomes
        )
        for (name, outcome), count in counts.items():
            files = f" ({count} files)" if count > 1 else ""
            click.echo(f"{outcome:8} {self.root / name}{files}")
        kept_paths = [path for path, outcome in outcomes if outcome == "kept"]
        if any((self.root / f"{path}{NEW_SUFFIX}").exists() for path in kept_paths):
            text = "What you have edited is kept; the new version lies beside it, in"
            click.echo(f"\n{text} *{NEW_SUFFIX}.")
        if self.dry_run:
            click.echo("\nNothing was written: this was a dry run.")
        return {outcome for _, outcome in outcomes}


def with_destination(command: Callable[..., None]) -> Any:
    """Decorate a command with --system, --into and --dry-run, and pass it a Destination."""

    @functools.wraps(command)
    def run(*, system: str, into: Path | None, dry_run: bool, **others: Any) -> None:
        is_docker = system == "docker"
        root = into or (Path("waitroom") if is_docker else _ROOT)
        command(Destination(PLATFORMS[system], is_docker, root, dry_run), **others)

    return combine(
        click.option(
            "--system",
            type=click.Choice(list(PLATFORMS)),
            default=find_platform,
            is_eager=True,
            show_default="this machine",
            help="The system to write files for. plain: any system without systemd.",
        ),
        click.option(
            "--into",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Write the files below this folder.  [default: /, or ./waitroom for docker]",
        ),
        click.option("--dry-run", is_flag=True, help="Only print which files would be written."),
    )(run)


@click.command()
@click.option(
    "--site",
    cls=_Question,
    question="Which site gets the waiting room",
    required=True,
    callback=_read_site,
    help="The host name or URL of the site: shop.example or https://shop.example.",
)
@click.option(
    "--users",
    cls=_Question,
    question="How many visitors may be inside at the same time",
    required=True,
    type=click.IntRange(0, 10_000_000),
    help="The cap: the maximum number of visitors inside the room at a time.",
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
    show_default="derived from the site's name",
    callback=_read_room,
    help="The room's name.",
)
@click.option(
    "--site-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the site's nginx file, and print the lines to add to it.",
)
@with_destination
def init(  # noqa: PLR0913 - one per option
    destination: Destination,
    *,
    site: re.Match[str],
    users: int,
    store: str,
    room: str,
    site_file: Path | None,
) -> None:
    """Write the files for a first waiting room, and print what is left to do.

    The files are commented settings, secrets that only root can read, nginx's include files, the
    waiting page, and systemd units. Files that you wrote or edited are kept.
    """
    name = room or _derive_room_name(site["host"])
    url = f"{site['scheme'] or 'http'}://{site['host']}{site['port'] or ''}"
    root, dry_run, platform = destination.root, destination.dry_run, destination.platform
    edit = _format_edit(site_file, name, platform)

    def write() -> list[tuple[str, Outcome]]:
        keys_file, has_settings = root / SECRET_KEYS, (root / TOML).exists()
        keys = keys_file.read_text("utf-8").replace(",", " ").split() if keys_file.exists() else []
        values = {"room": name, "url": url, "users": str(users)}
        files = create_first_files(values, store, keys, platform, has_settings=has_settings)
        if destination.is_docker:
            files.append(create_compose_file(root))
        return write_once(root, files, dry_run=dry_run) + destination.write_shipped_files()

    destination.write_and_report(write)
    if not dry_run:
        click.echo("\n".join(_format_next_steps(destination, edit, f"{url}/")))
        if not destination.is_docker and (problem := _find_redis_problem(store)):
            click.echo(f"\nWarning: Redis does not answer: {problem}. {_INSTALL_REDIS}", err=True)


@click.command("update-files")
@with_destination
def update_files(destination: Destination) -> None:
    """Update nginx's include files, the waiting page and the systemd units to this version.

    Your settings are kept, and so are shipped files that you have edited. The new version of an
    edited file is written to the same folder, with the suffix .new.
    """
    folder = destination.root / NGINX
    if not folder.is_dir():
        raise click.ClickException(f"there is no {folder}; waitroom init writes it")
    outcomes = destination.write_and_report(destination.write_shipped_files)
    if not destination.dry_run and outcomes & {"new", "updated"}:
        click.echo(f"\nNow let nginx read them: {destination.platform.reload}")


def _derive_room_name(host: str) -> str:
    """Derive a room's name from a host: `shop` for www.shop.example, `site` for an IP address."""
    label = host.removeprefix("www.").partition(".")[0]
    is_name = (
        NAME.match(label)
        and label.strip("0123456789_")
        and label not in {"localhost", *RESERVED_NAMES}
    )
    return label if is_name else "site"


def _find_redis_problem(store: str) -> str:
    """Return why Redis does not respond, or "". Sentinels and clusters are not checked."""
    import redis  # noqa: PLC0415

    from sidecar.kit.errors import StoreError  # noqa: PLC0415
    from sidecar.storage.redis.one_server import ask_server  # noqa: PLC0415

    try:
        ask_server(store, redis.Redis.ping)
    except StoreError as error:
        return str(error).rstrip(".")
    return ""


def _format_edit(file: Path | None, room: str, platform: Platform) -> tuple[str, ...]:
    """Format the lines that a site's nginx file lacks, by block. If `file` is None, format the
    lines that every site needs."""
    if file is None:
        return (
            f"Add three lines to {platform.site_file}:",
            "server {",
            "    include waitroom/server.conf;        # add this, first in the server",
            "    location / {",
            f"        set $waitroom_room {room};",
            "        include waitroom/location.conf;  # add these two to each location with a room",
        )
    from sidecar.cli.setup.site_file import find_missing_lines  # noqa: PLC0415

    try:
        blocks = find_missing_lines(file, room)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--site-file") from None
    if not blocks:
        return (f"{file} has all the lines that it needs.",)
    lines = [f"Add these lines to {file}, each at the beginning of its block:"]
    for missing in blocks:
        reason = f": {missing.reason}" if missing.reason else ""
        lines += [f"line {missing.line}, {missing.block}{reason}"]
        lines += [f"    {line}" for line in missing.lines] or ["    (no line to add)"]
    return tuple(lines)


def _format_next_steps(destination: Destination, edit: tuple[str, ...], url: str) -> list[str]:
    """Format the steps that the user still has to do, each a numbered sentence with commands."""
    platform, root = destination.platform, destination.root
    copy = ("Copy the files to the server:", f"sudo cp -rn {root}/etc {root}/usr /")
    steps = [
        *([copy] if platform.has_units and root != _ROOT else []),
        edit,
        platform.start,
        ("Let nginx read its files:", platform.reload),
        ("See whether all is right:", f"waitroom doctor {url}"),
    ]
    lines = ["", "What is left to do:"]
    for number, (sentence, *commands) in enumerate(steps, 1):
        lines += ["", f"{number}. {sentence}", *(f"     {line}" for line in commands)]
    if platform.has_units and _PROGRAM.startswith(_HOMES):
        lines += [
            "",
            f"Warning: {_PROGRAM} is in a home folder, which the replicas do not see.",
            "Install it for all users, and write the units again:",
            f"     {PIPX_INSTALL} {find_source()}",
            "     sudo waitroom update-files",
        ]
    places = {"{into}": str(root), "{version}": __version__, "{clone}": find_source()}
    for name, place in places.items():
        lines = [line.replace(name, place) for line in lines]
    return lines
