"""Which replica a command asks, and with which token: by option, by variable, or by the
configuration file, of which nothing else is read, so it need not be valid."""

from __future__ import annotations

import functools
import getpass
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from sidecar.cli.common import CONFIG_HELP, BadValue, Unreachable
from sidecar.settings.file import DEFAULT_FILE, SYSTEM_FILE, find_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.cli.replica_settings import ReplicaSettings
    from waitroom import Client, WaitroomError

_UNIX = "unix:"
#: Items of a list that are asked for at once.
PAGE = 1000
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Connection:
    """What the command line gave; the rest is looked up when it is needed."""

    config: str | None = None
    url: str | None = None
    token_file: str | None = None

    @contextmanager
    def client(self, *, timeout_s: float = 10, has_token: bool = True) -> Iterator[Client]:
        """Of the replica. What it raises becomes a ClickException."""
        from waitroom import Client, RejectedError, UnavailableError, WaitroomError  # noqa: PLC0415 - the other commands start faster

        address, (token, source) = self.address(), self.token() if has_token else ("", "")
        operator = f"{_user()} (command line)"
        try:
            with Client(
                address, token=token, timeout=timeout_s, retries=0, operator=operator
            ) as client:
                yield client
        except UnavailableError as error:
            raise Unreachable(explain(error, address, source)) from None
        except WaitroomError as error:
            is_value = isinstance(error, RejectedError) and error.status == 422
            kind = BadValue if is_value else click.ClickException
            raise kind(explain(error, address, source)) from None

    def address(self) -> str:
        """http://HOST:PORT or unix:/path. Raises ClickException."""
        if given := self.url or os.environ.get("WAITROOM_URL"):
            return _checked("--url" if self.url else "WAITROOM_URL", given)
        listen = self._replica().ops_listen
        if listen.startswith("0.0.0.0:"):
            listen = "127.0.0.1:" + listen.rpartition(":")[2]
        return listen if listen.startswith(_UNIX) else f"http://{listen}"

    def token(self) -> tuple[str, str]:
        """The token, and where it is from. Raises ClickException."""
        if self.token_file:
            return _content("--token-file", self.token_file), self.token_file
        if token := os.environ.get("WAITROOM_TOKEN"):
            return _in_a_header("WAITROOM_TOKEN", token), "WAITROOM_TOKEN"
        if file := os.environ.get("WAITROOM_TOKEN_FILE"):
            return _content("WAITROOM_TOKEN_FILE", file), file
        found = self._replica()
        for name in ("admin_token", "service_token"):
            if token := getattr(found, name):
                return _in_a_header(name, token), f"{name} of {_source(self.config)}"
        raise BadValue(
            "no token: give --token-file FILE or set WAITROOM_TOKEN; "
            f"{_source(self.config)} has no admin_token either"
        )

    def _replica(self) -> ReplicaSettings:
        from sidecar.cli.replica_settings import read_replica_settings  # noqa: PLC0415

        return read_replica_settings(self.config)


def pass_client(command: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
    """Gives a command of a ReplicaGroup a client of the replica."""

    @click.pass_obj
    @functools.wraps(command)
    def run(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with connection.client() as client:
            return command(client, *args, **kwargs)

    return run


def read_pages(
    client: Client, path: str, items: str, *, limit: int | None = None, **query: str
) -> dict[str, Any]:
    """A list of the API, with its pages put together; `limit`: items, at most."""
    page: dict[str, Any] = {"next": ""}
    found: list[Any] = []
    while page["next"] is not None and (limit is None or len(found) < limit):
        most = PAGE if limit is None else min(PAGE, limit - len(found))
        asked = {**query, "after": page["next"], "limit": str(most)}
        page = client.request("GET", path, query=asked)
        found += page[items]
    return {**page, items: found}


def explain(error: WaitroomError, address: str = "", source: str = "") -> str:
    """What a replica answered, or that none did. `source`: where the token is from."""
    problem = getattr(error, "problem", None)
    if problem is None or not (problem.title or address):
        return str(error)
    if not problem.title:
        return (
            f"{address} answers, but not as a replica's ops listener does (HTTP {problem.status}): "
            "--url or WAITROOM_URL is the address that ops_listen names, such as "
            "http://127.0.0.1:8401, and not the site's"
        )
    detail = problem.detail
    if problem.status == 401 and source:
        detail = f"{detail} The token came from {source}.".strip()
    elif problem.status == 404 and not detail:
        detail = "Is that the ops listener (not edge_listen) of a replica of this version?"
    return "\n".join([": ".join(text for text in (problem.title, detail) if text), *problem.errors])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "somebody"


def _source(config: str | None) -> str:
    if file := find_file(config):
        return f"{file} with WAITROOM_* variables"
    return f"the environment (there is no {DEFAULT_FILE} in this folder or in {SYSTEM_FILE.parent})"


def _checked(name: str, given: str) -> str:
    if given.startswith(_UNIX) and len(given) > len(_UNIX):
        return given
    from yarl import URL  # noqa: PLC0415

    try:
        url = URL(given if "://" in given else f"http://{given}")
        is_right = url.scheme in {"http", "https"} and bool(url.host) and url.path in {"", "/"}
    except ValueError:
        is_right = False
    if not is_right or url.user or url.password or url.query_string or url.fragment:
        hint = "write http://HOST:PORT or unix:/path, the replica's ops_listen"
        raise BadValue(f"{name}: {hint}")
    return str(url).rstrip("/")


def _content(name: str, file: str) -> str:
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadValue(f"{name}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadValue(f"{name}: {file} is no text") from None
    if not token:
        raise BadValue(f"{name}: {file} is empty")
    return _in_a_header(name, token)


def _in_a_header(name: str, token: str) -> str:
    if not token.isprintable():
        raise BadValue(f"{name}: a token is one line, without control characters")
    return token


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """An option may stand before the command's name and after it; the latter counts."""
    connection = context.ensure_object(Connection)
    if value is not None:
        setattr(connection, str(option.name), value)


_HELP = {
    "--url": "The replica's ops listener: http://HOST:PORT or unix:/path. "
    "Otherwise WAITROOM_URL, or ops_listen of the settings.",
    "--token-file": "Has the token. Otherwise WAITROOM_TOKEN or WAITROOM_TOKEN_FILE, "
    "or the settings' admin_token or service_token.",
    "--config": CONFIG_HELP,
}


def _options(*names: str, has_letter: bool = True) -> list[click.Option]:
    """`has_letter`: -c is the same as --config."""
    return [
        click.Option(
            [name, "-c"] if name == "--config" and has_letter else [name],
            metavar="URL" if name == "--url" else "FILE",
            help=_HELP[name],
            expose_value=False,
            callback=_keep,
        )
        for name in names
    ]


class SettingsGroup(click.Group):
    """Its commands read the settings; --config stands before their names or after them."""

    options: tuple[str, ...] = ("--config",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options(*self.options)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        # Where an argument may begin with a hyphen, its letters must not be taken for options.
        is_any = cmd.context_settings.get("ignore_unknown_options", False)
        cmd.params += _options(*self.options, has_letter=not is_any)
        super().add_command(cmd, name)


class ReplicaGroup(SettingsGroup):
    """Its commands ask a replica, by HTTP."""

    options = tuple(_HELP)


class ReplicaCommand(click.Command):
    """The same, for a command that is in no group."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options(*_HELP)
