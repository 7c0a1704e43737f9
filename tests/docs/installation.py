"""Runs the commands and programs of a documentation page, on a replica with the page's settings.

All other URLs on the page lead to one server on this machine. Events are removed from the settings,
because they would wait for a date.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.error
import urllib.request
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from pydantic import ValidationError

from sidecar.settings.model import Settings
from tests.docs.blocks import Block, blocks_of, strip_shell
from tests.support.http_server import serve
from tests.support.processes import CLEAN, WAITROOM
from tests.support.service import TOKEN, Service
from tests.support.site import ADMIN_TOKEN, SECRET, make_folder
from waitroom import Client

#: The programs that commands of a page can use. sudo, apt and rm are not among them.
PROGRAMS = ("awk", "bash", "cat", "chmod", "curl", "cut", "date", "echo", "grep", "head", "jq",
            "mkdir", "openssl", "printf", "sed", "sh", "sleep", "sort", "tail", "tr")  # fmt: skip
#: The `waitroom` of the sandbox. It starts no replica or worker, because both already run. `init`
#: writes below the working directory, and a live view ends after 3 s.
COMMAND = """#!/bin/sh
case "$1/$2" in
    serve/*|run-jobs/*) exec {waitroom} "$1" --help ;;
    init/*) exec {waitroom} "$@" --into "$PWD/root" ;;
    */watch) {timeout} --signal=INT 3 {waitroom} "$@" || [ $? = 124 ] ;;
    *) exec {waitroom} "$@" ;;
esac
"""
#: Variables that a page's Python blocks assume, by name.
GIVEN = {"key": SECRET, "token": TOKEN, "ends": 2_000_000_000}
SYSTEM = re.compile(r"(?<![\w.])/(?:etc|lib|opt|run|usr|var)/")
LOG = "".join(
    f'192.0.2.{n} - - [27/Nov/2026:19:0{n}:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-"\n'
    for n in range(1, 9)
)


def merge_tables(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`. Nested tables are merged as well."""
    both = {
        name: merge_tables(base[name], value) if isinstance(base.get(name), dict) else value
        for name, value in over.items()
        if isinstance(value, dict) == isinstance(base.get(name, value), dict)
    }
    return {**base, **both}


def complete_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Add to a part of a settings file what every file and every table must have."""
    base: dict[str, Any] = {
        "store": "memory://",
        "secret_keys": [SECRET],
        "rooms": {name: {"total_active_users": 1} for name in settings.get("rooms", {"shop": {}})},
    }
    if targets := settings.get("targets"):
        base["jobs"] = "sqlite:///jobs.db"
        base["targets"] = {name: {"url": "https://images.example/v1/"} for name in targets}
    return merge_tables(base, settings)


def to_toml(value: Any) -> str:
    """Convert a value to TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {to_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(to_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def to_toml_file(settings: dict[str, Any]) -> str:
    return "".join(f"{name} = {to_toml(value)}\n" for name, value in settings.items())


#: The response to each request of a page's target.
IMAGE = 200, b"fine", {"Content-Type": "image/png"}


class Installation(AbstractContextManager["Installation"]):
    """An installation for one page. Its servers are started when they are first needed."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._stack = ExitStack()
        self.folder = make_folder(self._stack)
        self.names: dict[str, Any] = dict(GIVEN)
        self.printed = ""

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def target(self) -> str:
        """The URL of a server for calls of jobs, webhooks, and requests to the site."""
        return self._stack.enter_context(serve(lambda _: IMAGE)) + "/"

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings in all blocks of the page, merged and changed for this machine."""
        settings: dict[str, Any] = {}
        for block in blocks_of(self._page):
            if block.language == "toml" and block.is_run:
                both = merge_tables(settings, tomllib.loads(block.text))
                with contextlib.suppress(ValidationError):  # A page may show alternatives.
                    Settings.model_validate(complete_settings(both))
                    settings = both
        settings = complete_settings(settings)
        for room in settings["rooms"].values():
            room["total_active_users"] = 1  # so that a second visitor waits
            room.pop("events", None)
        for table in ("targets", "webhooks"):
            for values in settings.get(table, {}).values():
                values["url"] = self.target
                if table == "targets":
                    values["private"] = True
        if "jobs" in settings:
            settings["jobs"] = f"sqlite:///{self.folder}/jobs.db"
        for name in ("store", "secret_keys", "service_token", "edge_listen", "ops_listen"):
            settings.pop(name, None)
        return {**settings, "admin_token": ADMIN_TOKEN}

    @cached_property
    def service(self) -> Service:
        service = self._stack.enter_context(Service(to_toml_file(self.settings), replicas=1))
        config = service.folder / "replica-0.toml"
        shutil.copy(config, self.folder / "waitroom.toml")
        if "targets" in self.settings:
            service.run("jobs", [WAITROOM, "run-jobs", "--config", str(config)])
        return service

    @property
    def edge(self) -> str:
        self.service  # noqa: B018 - it writes the file
        config = tomllib.loads((self.folder / "waitroom.toml").read_text())
        return f"http://{config['edge_listen']}"

    def localize(self, text: str) -> str:
        """Replace the URLs, tokens and ids in a page's text by those of this installation."""
        text = re.sub(r"https?://[\w.-]+(?=/_waitroom/)", self.edge, text)
        text = re.sub(r"http://(?:127\.0\.0\.1|localhost):8401", self.service.urls[0], text)
        text = re.sub(r"https?://[\w.-]+\.example(?:\.com)?/", self.target, text)
        text = re.sub(r"(ADMIN_TOKEN|SERVICE_TOKEN|SECRET_KEYS)=\$\(.*?\)", r"\1=$GIVEN_\1", text)
        text = text.replace("/var/log/nginx/access.log", "access.log")
        text = text.replace('token="…"', f'token="{TOKEN}"')
        if re.search(r"\bVISITOR\b", text):
            text = re.sub(r"\bVISITOR\b", self.visitor, text)
        return re.sub(r"\bshow ID\b", lambda _: f"show {self.job}", text)

    @cached_property
    def visitor(self) -> str:
        """The id of a visitor who waits."""
        for _ in range(2):
            asked = {"X-Waitroom-Room": "shop", "Accept": "application/json"}
            _ask(f"{self.edge}/check", asked)
        lines = f"{self.service.urls[0]}/admin/rooms/shop/waiting"
        found = _ask(lines, {"Authorization": f"Bearer {ADMIN_TOKEN}"})
        return str(found["waiting"][0]["visitor"])

    @cached_property
    def job(self) -> str:
        name = next(iter(self.settings["targets"]))
        asked = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        made = _ask(f"{self.service.urls[0]}/v1/jobs", asked, {"target": name, "path": "x"})
        return str(made["id"])

    def shell(self, block: Block) -> str:
        """Run a block as a shell script, with the variables of the blocks before it. Return "", or
        the script and its output if it fails."""
        self._make_sandbox()
        text = self.localize(strip_shell(block.text))
        assert not SYSTEM.search(text), "it writes to the system: say that it needs root"
        script = f"[ ! -f .env ] || . ./.env\nset -aeu\n{text}\nset +u; export -p > .env\n"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, timeout=180,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.printed = done.stdout
        return "" if done.returncode == 0 else f"{text}\n{done.stdout}{done.stderr}"

    @property
    def _environment(self) -> dict[str, str]:
        own = {"KEY": SECRET, "WAITROOM_SERVICE_TOKEN": TOKEN, "GIVEN_SERVICE_TOKEN": TOKEN,
               "GIVEN_ADMIN_TOKEN": ADMIN_TOKEN}  # fmt: skip
        return {**CLEAN, **own, "GIVEN_SECRET_KEYS": SECRET, "PATH": f"{self.folder}/bin"}

    def _make_sandbox(self) -> None:
        folder = self.folder / "bin"
        if folder.exists():
            return
        folder.mkdir()
        for program in PROGRAMS:
            found = shutil.which(program)
            assert found, f"{program} is not installed"
            (folder / program).symlink_to(found)
        text = COMMAND.format(waitroom=shlex.quote(WAITROOM), timeout=shutil.which("timeout"))
        (folder / "waitroom").write_text(text)
        (folder / "waitroom").chmod(0o755)
        (self.folder / "access.log").write_text(LOG)
        self.service  # noqa: B018 - it writes the settings that commands look for

    def python(self, block: Block) -> None:
        """Run a Python block, with the variables of the blocks before it on the page."""
        self.names.update({name: MagicMock() for name in block.names}, url=self.target)
        with contextlib.chdir(self.folder), patch.dict(os.environ, WAITROOM_SERVICE_TOKEN=TOKEN):
            exec(compile(self.localize(block.text), str(block), "exec"), self.names)
        for value in self.names.values():
            if isinstance(value, Client):
                self._stack.callback(value.close)


def _ask(url: str, headers: dict[str, str], body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        if error.code >= 500 and error.code != 503:
            raise
        return None
