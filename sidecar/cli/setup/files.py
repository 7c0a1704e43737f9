"""The files of an installation: those of a version and those of the user; edits are never lost."""

import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import Literal
from urllib.parse import urlsplit

from sidecar import __version__
from sidecar.cli.setup.systems import System
from sidecar.gate.stamps import key_file
from sidecar.kit.files import SECRET, replacing
from sidecar.kit.share import find_share

ETC = "etc/waitroom"
TOML = f"{ETC}/waitroom.toml"
SECRET_KEYS = f"{ETC}/secrets/secret_keys"
NGINX = "etc/nginx/waitroom"
UNITS = "etc/systemd/system"
#: The include that the user owns: it names the replicas.
SETTINGS = "settings.conf"
#: The program in the units as they are shipped.
PROGRAM = "/opt/waitroom/venv/bin/waitroom"
_STORE_UNITS = ("waitroom@.service", "waitroom-jobs.service")
#: A unit fails if a file that it loads is missing: only installations with a password have this.
_STORE_DROP_IN = f"""# The address of Redis with its password; it overrides store in waitroom.toml.
[Service]
LoadCredential=store:/{ETC}/secrets/store
Environment=WAITROOM_STORE_FILE=%d/store
"""
_SERVER = re.compile(r"^( *)server 127\.0\.0\.1:8400 (.*)$", re.MULTILINE)
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class File:
    """One file of an installation; `path` is relative to the folder that stands for `/`."""

    path: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class FirstRoom:
    """A room as `waitroom init` asks for it."""

    name: str
    users: int
    store: str


def shipped(program: str, system: System) -> list[File]:
    """Return the files that a new version replaces: nginx's includes, the page, the units."""
    files = [
        File(f"{NGINX}/{path.name}", path.read_bytes())
        for path in _files_in(find_share("nginx"))
        if path.name != SETTINGS
    ]
    static = find_share("static")
    files += [
        File(f"{NGINX}/static/{path.relative_to(static)}", path.read_bytes())
        for path in _files_in(static)
    ]
    if not system.has_units:
        return files
    units = find_share("systemd")
    files += [
        File(f"{UNITS}/{path.name}", path.read_bytes().replace(PROGRAM.encode(), program.encode()))
        for path in _files_in(units)
        if path.suffix in {".service", ".target"}
    ]
    group = (units / "waitroom.sysusers").read_text("utf-8") + f"m {system.nginx_user} waitroom\n"
    return [*files, File("usr/lib/sysusers.d/waitroom.conf", group.encode())]


def first_files(
    room: FirstRoom, keys: list[str], system: System, *, has_settings: bool
) -> list[File]:
    """Return the files that the user owns: settings, secrets, addresses.

    `keys`: existing secret_keys; if there are none, one is made. `has_settings`: settings exist;
    they stay, and name Redis.
    """
    keys = keys or [secrets.token_hex(32)]
    has_password = bool(urlsplit(room.store).password)
    store = 'store_file = "secrets/store"' if has_password else f"store = {json.dumps(room.store)}"
    words = {"room": room.name, "users": str(room.users), "store": store}
    of_store = [File(f"{ETC}/secrets/store", f"{room.store}\n".encode(), SECRET)]
    if system.has_units:
        of_store += [
            File(f"{UNITS}/{unit}.d/store.conf", _STORE_DROP_IN.encode()) for unit in _STORE_UNITS
        ]
    return [
        File(TOML, _filled("waitroom.toml", words)),
        *(of_store if has_password and not has_settings else []),
        File(SECRET_KEYS, f"{keys[-1]}\n".encode(), SECRET),
        File(f"{ETC}/secrets/admin_token", f"{secrets.token_hex(32)}\n".encode(), SECRET),
        File("etc/nginx/waitroom-stamp.conf", key_file(keys).encode(), SECRET),
        File(f"{NGINX}/{SETTINGS}", _nginx_settings(system.replicas)),
        File("etc/nginx/conf.d/waitroom.conf", b"include waitroom/http.conf;\n"),
    ]


def compose_file(folder: Path) -> File:
    """Return what Docker users add to their compose.yaml. `folder`: where the other files are."""
    # The replica reads secrets that belong to the user who runs this.
    user = f"{os.getuid()}:{os.getgid()}"
    words = {"folder": str(folder.absolute()), "version": __version__, "user": user}
    return File("compose.waitroom.yaml", _filled("compose.waitroom.yaml", words))


def _filled(template: str, words: dict[str, str]) -> bytes:
    text = (_TEMPLATES / f"{template}.template").read_text("utf-8")
    return Template(text).substitute(words).encode()


def _nginx_settings(replicas: Iterable[str]) -> bytes:
    """Return the shipped settings.conf with these replicas."""
    text = (find_share("nginx") / SETTINGS).read_text("utf-8")

    def lines(line: re.Match[str]) -> str:
        return "\n".join(f"{line[1]}server {address} {line[2]}" for address in replicas)

    return _SERVER.sub(lines, text).encode()


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# Writing them -----------------------------------------------------------------------------------

Outcome = Literal["new", "same", "updated", "kept"]
#: The SHA-256 of each shipped file as it was written, by path. A file with another was edited.
MANIFEST = f"{ETC}/files.json"
#: A shipped file that the user has edited stays; the new one lies beside it.
BESIDE = ".new"


def write_once(root: Path, files: Iterable[File], *, dry_run: bool) -> list[tuple[str, Outcome]]:
    """Write the files that do not exist. Raises OSError."""
    done: list[tuple[str, Outcome]] = []
    for file in files:
        is_there = (root / file.path).exists()
        if not is_there and not dry_run:
            _write(root, file)
        done.append((file.path, "kept" if is_there else "new"))
    return done


def write_shipped(root: Path, files: Iterable[File], *, dry_run: bool) -> list[tuple[str, Outcome]]:
    """Write the files of this version over those of the previous one. Raises OSError.

    A file that the user has edited stays as it is, and the new one is written beside it.
    """
    manifest = root / MANIFEST
    digests = json.loads(manifest.read_text("utf-8")) if manifest.exists() else {}
    done: list[tuple[str, Outcome]] = []
    try:
        for file in files:
            outcome = _outcome(root / file.path, file, digests.get(file.path))
            done.append((file.path, outcome))
            if dry_run or outcome == "same":
                continue
            if outcome != "kept":
                _write(root, file)
                digests[file.path] = _digest(file.data)
            elif digests.get(new := f"{file.path}{BESIDE}") in {None, _digest_of(root / new)}:
                _write(root, file, BESIDE)
                digests[new] = _digest(file.data)
    finally:
        if not dry_run:
            text = json.dumps(digests, indent=1, sort_keys=True) + "\n"
            _write(root, File(MANIFEST, text.encode()))
    return done


def _outcome(path: Path, file: File, written: str | None) -> Outcome:
    current = _digest_of(path)
    if current is None:
        return "new"
    if current == _digest(file.data):
        return "same"
    return "updated" if current == written else "kept"


def _write(root: Path, file: File, suffix: str = "") -> None:
    path = root / f"{file.path}{suffix}"
    root.mkdir(parents=True, exist_ok=True)
    for folder in reversed(path.relative_to(root).parents):
        is_secret = file.mode == SECRET and folder == path.parent.relative_to(root)
        (root / folder).mkdir(
            mode=0o700 if is_secret and "secrets" in folder.parts else 0o755, exist_ok=True
        )
    with replacing(path, mode=file.mode) as new:
        new.write(file.data)


def _digest_of(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.exists() else None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
