"""Creates the HTTP client of commands that talk to a replica, and the options --url, --token-file
and --config.

The replica's URL and the token come from an option, an environment variable or the settings file.
Other settings of the file are not read, so they need not be valid.
"""

import functools
import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

import click

from sidecar.cli.config import CONFIG_HELP
from sidecar.cli.output import BadValue, CommandGroup, Unreachable, print_result
from sidecar.cli.replica_api import Client, format_error
from sidecar.kit.errors import InputError
from sidecar.settings.file import DEFAULT_FILE, SYSTEM_FILE, find_file

_UNIX, _SYSTEM_DIR = "unix:", SYSTEM_FILE.parent
#: The context settings of a command with an argument that may begin with a hyphen. They make -c a
#: long option, so that -cabin is an argument.
ANY_TEXT: dict[str, Any] = {
    "ignore_unknown_options": True,
    "help_option_names": ["--help"],
    "token_normalize_func": lambda option: "-config" if option == "c" else option,
}
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class ReplicaOptions:
    """The options of a command that talks to a replica."""

    config: str | None = None
    url: str | None = None
    token_file: str | None = None

    @contextmanager
    def client(
        self, *, timeout_s: float = 10, has_token: bool = True, retries: int = 0
    ) -> Iterator[Client]:
        """Open a client of the replica. Convert the client's errors to ClickExceptions."""
        from waitroom import Client, RejectedError, UnavailableError, WaitroomError  # noqa: PLC0415 - the other commands start faster

        address, (token, source) = self.find_url(), self._find_token() if has_token else ("", "")
        operator = f"{_get_user_name()} (command line)"
        try:
            with Client(
                address, token=token, timeout=timeout_s, retries=retries, operator=operator
            ) as client:
                yield client
        except UnavailableError as error:
            raise Unreachable(format_error(error, address, source)) from None
        except WaitroomError as error:
            is_bad_value = isinstance(error, RejectedError) and error.status == 422
            error_class = BadValue if is_bad_value else click.ClickException
            raise error_class(format_error(error, address, source)) from None

    def find_url(self) -> str:
        """Return the replica's URL, http://HOST:PORT or unix:/path. Raises ClickException."""
        if url := self.url or os.environ.get("WAITROOM_URL"):
            return _check_url("--url" if self.url else "WAITROOM_URL", url)
        listen = self._read_settings().ops_listen
        if listen.startswith("0.0.0.0:"):
            listen = "127.0.0.1:" + listen.rpartition(":")[2]
        return listen if listen.startswith(_UNIX) else f"http://{listen}"

    def _find_token(self) -> tuple[str, str]:
        """Return the token, and the file or variable that it came from. Raises ClickException."""
        if self.token_file:
            return _read_token("--token-file", self.token_file), self.token_file
        if token := os.environ.get("WAITROOM_TOKEN"):
            return _check_token("WAITROOM_TOKEN", token), "WAITROOM_TOKEN"
        if file := os.environ.get("WAITROOM_TOKEN_FILE"):
            return _read_token("WAITROOM_TOKEN_FILE", file), file
        settings = self._read_settings()
        source = f"the environment (there is no {DEFAULT_FILE} in this folder or in {_SYSTEM_DIR})"
        if path := find_file(self.config):
            source = f"{path} with WAITROOM_* variables"
        for name in ("admin_token", "service_token"):
            if token := getattr(settings, name):
                return _check_token(name, token), f"{name} of {source}"
        raise BadValue(
            "no token: give --token-file FILE or set WAITROOM_TOKEN; "
            f"{source} has no admin_token either"
        )

    def _read_settings(self) -> Any:
        """Read ops_listen, admin_token and service_token. Raises ClickException with all problems.

        Variables of other settings are ignored, because they may name files of another user.
        """
        from pydantic import BaseModel, Field, ValidationError  # noqa: PLC0415

        from sidecar.kit.setting_types import DEFAULT_OPS_LISTEN, Listen, describe_problems  # noqa: PLC0415
        from sidecar.settings.values import ENV_PREFIX, read_values  # noqa: PLC0415

        class ReplicaSettings(BaseModel):
            ops_listen: Listen = DEFAULT_OPS_LISTEN
            admin_token: str = Field(default="", repr=False)
            service_token: str = Field(default="", repr=False)

        names = {f"{ENV_PREFIX}{name.upper()}" for name in ReplicaSettings.model_fields}
        environ = {n: value for n, value in os.environ.items() if n.removesuffix("_FILE") in names}
        try:
            values, problems = read_values(self.config, environ, ReplicaSettings)
            settings = ReplicaSettings.model_validate(values)
        except InputError as error:
            problems = error.problems
        except ValidationError as error:
            problems += describe_problems(error, ReplicaSettings)
        if problems:
            raise click.ClickException("\n".join(problems))
        return settings


def pass_client(command: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
    """Pass a client of the replica to a command of a ReplicaGroup."""

    @click.pass_obj
    @functools.wraps(command)
    def run(options: ReplicaOptions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with options.client() as client:
            return command(client, *args, **kwargs)

    return run


def _get_user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, the user may have no name
        return "somebody"


def _check_url(name: str, text: str) -> str:
    if text.startswith(_UNIX) and len(text) > len(_UNIX):
        return text
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        has_port = url.port is None or url.port > 0
        is_valid = url.scheme in {"http", "https"} and bool(url.hostname) and has_port
    except ValueError:
        is_valid = False
    if not is_valid or "@" in url.netloc or url.path not in {"", "/"} or url.query or url.fragment:
        hint = "write http://HOST:PORT or unix:/path, the replica's ops_listen"
        raise BadValue(f"{name}: {hint}")
    return f"{url.scheme}://{url.netloc}"


def _read_token(name: str, file: str) -> str:
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadValue(f"{name}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadValue(f"{name}: {file} is no text") from None
    if not token:
        raise BadValue(f"{name}: {file} is empty")
    return _check_token(name, token)


def _check_token(name: str, token: str) -> str:
    if not token.isprintable():
        raise BadValue(f"{name}: a token is one line, without control characters")
    return token


def _store_option(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Store an option in ReplicaOptions. The last one overrides one before the command's name."""
    options = context.ensure_object(ReplicaOptions)
    if value is not None:
        setattr(options, str(option.name), value)


_HELP = {
    "--url": "The address of the replica's ops listener: http://HOST:PORT or unix:/path "
    "(default: WAITROOM_URL, or ops_listen in the settings).",
    "--token-file": "Read the token from this file (default: from WAITROOM_TOKEN or "
    "WAITROOM_TOKEN_FILE, or else from admin_token or service_token in the settings).",
    "--config -c": CONFIG_HELP,
}
#: The options that fill ReplicaOptions.
REPLICA_OPTIONS: list[click.Parameter] = [
    click.Option(
        names.split(),
        metavar="URL" if names == "--url" else "FILE",
        help=help_text,
        expose_value=False,
        callback=_store_option,
    )
    for names, help_text in _HELP.items()
]


class SettingsGroup(CommandGroup):
    """A group whose commands have the option --config, before or after the command's name."""

    options = REPLICA_OPTIONS[-1:]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += self.options

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.params += self.options
        super().add_command(cmd, name)


class ReplicaGroup(SettingsGroup):
    """A group whose commands talk to a replica over HTTP."""

    options = REPLICA_OPTIONS

    def reply_command(
        self, show: Callable[[Any], object] | str, *arguments: str, **settings: Any
    ) -> Callable[[Callable[..., Any]], click.Command]:
        """Decorate a function as a command that prints the JSON object that the function returns.

        With --json, the command prints JSON. Otherwise it calls `show` to print the object, or
        prints the text `show`, in which {placeholders} name members of the object. The decorated
        function gets a client of the replica and `arguments`.
        """

        def show_text(document: dict[str, Any]) -> None:
            click.echo(str(show).format(**document))

        def decorate(function: Callable[..., Any]) -> click.Command:
            run = print_result(show if callable(show) else show_text)(pass_client(function))
            for argument in reversed(arguments):
                run = click.argument(argument)(run)
            return self.command(**settings)(run)

        return decorate
