"""Creates and writes the files of an installation. The user's edits are never overwritten."""

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
from sidecar.cli.setup.platforms import Platform
from sidecar.gate.nginx_key import build_key_file
from sidecar.kit.files import PRIVATE_MODE, atomic_write
from sidecar.kit.share import find_share

ETC = "etc/waitroom"
TOML = f"{ETC}/waitroom.toml"
SECRET_KEYS = f"{ETC}/secrets/secret_keys"
NGINX = "etc/nginx/waitroom"
UNITS = "etc/systemd/system"
#: The nginx include with the replicas' addresses. Updates do not replace it.
SETTINGS = "settings.conf"
#: The path of the program in the shipped systemd units, which is replaced by the actual path.
PROGRAM = "/opt/waitroom/venv/bin/waitroom"
_STORE_UNITS = ("waitroom@.service", "waitroom-jobs.service")
#: A drop-in for _STORE_UNITS. It is written only if Redis has a password, because a unit fails to
#: start if a file in LoadCredential is missing.
_STORE_DROP_IN = f"""# The address of Redis with its password; it overrides store in waitroom.toml.
[Service]
LoadCredential=store:/{ETC}/secrets/store
Environment=WAITROOM_STORE_FILE=%d/store
"""
_SERVER_LINE = re.compile(r"^( *)server 127\.0\.0\.1:8400 (.*)$", re.MULTILINE)
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class File:
    """One file of an installation. `path` is relative to the root folder."""

    path: str
    data: bytes
    mode: int = 0o644


def read_shipped_files(program: str, platform: Platform) -> list[File]:
    """Read the files that an update replaces: nginx's includes, the waiting page, systemd units."""
    files = [
        File(f"{NGINX}/{path.name}", path.read_bytes())
        for path in _list_files(find_share("nginx"))
        if path.name != SETTINGS
    ]
    static = find_share("static")
    files += [
        File(f"{NGINX}/static/{path.relative_to(static)}", path.read_bytes())
        for path in _list_files(static)
    ]
    if not platform.has_units:
        return files
    units = find_share("systemd")
    files += [
        File(f"{UNITS}/{path.name}", path.read_bytes().replace(PROGRAM.encode(), program.encode()))
        for path in _list_files(units)
        if path.suffix in {".service", ".target"}
    ]
    group = (units / "waitroom.sysusers").read_text("utf-8") + f"m {platform.nginx_user} waitroom\n"
    return [*files, File("usr/lib/sysusers.d/waitroom.conf", group.encode())]


def create_first_files(
    room: dict[str, str], store: str, keys: list[str], platform: Platform, *, has_settings: bool
) -> list[File]:
    """Create the files that updates do not replace: settings, secrets, addresses of replicas.

    `room` has the room's values for the settings template, and `store` is the URL of Redis. If
    `keys`, the existing secret_keys, is empty, create a key. If a settings file exists
    (`has_settings`), it has the URL of Redis, so create no file for the URL.
    """
    keys = keys or [secrets.token_hex(32)]
    has_password = bool(urlsplit(store).password)
    line = 'store_file = "secrets/store"' if has_password else f"store = {json.dumps(store)}"
    store_files = [File(f"{ETC}/secrets/store", f"{store}\n".encode(), PRIVATE_MODE)]
    if platform.has_units:
        store_files += [
            File(f"{UNITS}/{unit}.d/store.conf", _STORE_DROP_IN.encode()) for unit in _STORE_UNITS
        ]
    return [
        File(TOML, _fill_template("waitroom.toml", {**room, "store": line})),
        *(store_files if has_password and not has_settings else []),
        File(SECRET_KEYS, f"{keys[-1]}\n".encode(), PRIVATE_MODE),
        File(f"{ETC}/secrets/admin_token", f"{secrets.token_hex(32)}\n".encode(), PRIVATE_MODE),
        File("etc/nginx/waitroom-stamp.conf", build_key_file(keys).encode(), PRIVATE_MODE),
        File(f"{NGINX}/{SETTINGS}", _fill_nginx_settings(platform.replicas)),
        File("etc/nginx/conf.d/waitroom.conf", b"include waitroom/http.conf;\n"),
    ]


def create_compose_file(folder: Path) -> File:
    """Create an addition to compose.yaml with the replica and Redis, which mount `folder`."""
    # The replica must run as the current user, who owns the files with secrets.
    user = f"{os.getuid()}:{os.getgid()}"
    values = {"folder": str(folder.absolute()), "version": __version__, "user": user}
    return File("compose.waitroom.yaml", _fill_template("compose.waitroom.yaml", values))


def _fill_template(template: str, values: dict[str, str]) -> bytes:
    text = (_TEMPLATES / f"{template}.template").read_text("utf-8")
    return Template(text).substitute(values).encode()


def _fill_nginx_settings(replicas: Iterable[str]) -> bytes:
    """Return the shipped settings.conf with a `server` line for each of the replicas."""
    text = (find_share("nginx") / SETTINGS).read_text("utf-8")

    def format_servers(line: re.Match[str]) -> str:
        return "\n".join(f"{line[1]}server {address} {line[2]}" for address in replicas)

    return _SERVER_LINE.sub(format_servers, text).encode()


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# Writing files ----------------------------------------------------------------------------------

#: What was done with a file. "kept": an existing file was not replaced.
Outcome = Literal["new", "same", "updated", "kept"]
#: The file with the SHA-256 of each shipped file as written, to detect the user's edits.
MANIFEST = f"{ETC}/files.json"
#: The suffix for the new version of a shipped file that the user has edited.
NEW_SUFFIX = ".new"


def write_once(root: Path, files: Iterable[File], *, dry_run: bool) -> list[tuple[str, Outcome]]:
    """Write the files that do not exist yet. Raises OSError."""
    outcomes: list[tuple[str, Outcome]] = []
    for file in files:
        exists = (root / file.path).exists()
        if not exists and not dry_run:
            _write(root, file)
        outcomes.append((file.path, "kept" if exists else "new"))
    return outcomes


def write_shipped_files(
    root: Path, files: Iterable[File], *, dry_run: bool
) -> list[tuple[str, Outcome]]:
    """Replace the shipped files of the previous version. Raises OSError.

    Keep a file that the user has edited, and write the new version beside it with NEW_SUFFIX.
    """
    manifest = root / MANIFEST
    digests = json.loads(manifest.read_text("utf-8")) if manifest.exists() else {}
    outcomes: list[tuple[str, Outcome]] = []
    try:
        for file in files:
            outcome = _find_outcome(root / file.path, file, digests.get(file.path))
            outcomes.append((file.path, outcome))
            if dry_run or outcome == "same":
                continue
            if outcome != "kept":
                _write(root, file)
                digests[file.path] = _hash(file.data)
            elif digests.get(new := f"{file.path}{NEW_SUFFIX}") in {None, _read_digest(root / new)}:
                _write(root, file, NEW_SUFFIX)
                digests[new] = _hash(file.data)
    finally:
        if not dry_run:
            text = json.dumps(digests, indent=1, sort_keys=True) + "\n"
            _write(root, File(MANIFEST, text.encode()))
    return outcomes


def _find_outcome(path: Path, file: File, written_digest: str | None) -> Outcome:
    current = _read_digest(path)
    if current is None:
        return "new"
    if current == _hash(file.data):
        return "same"
    return "updated" if current == written_digest else "kept"


def _write(root: Path, file: File, suffix: str = "") -> None:
    path = root / f"{file.path}{suffix}"
    root.mkdir(parents=True, exist_ok=True)
    for folder in reversed(path.relative_to(root).parents):
        is_secret = file.mode == PRIVATE_MODE and folder == path.parent.relative_to(root)
        (root / folder).mkdir(
            mode=0o700 if is_secret and "secrets" in folder.parts else 0o755, exist_ok=True
        )
    with atomic_write(path, mode=file.mode) as new:
        new.write(file.data)


def _read_digest(path: Path) -> str | None:
    return _hash(path.read_bytes()) if path.exists() else None


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()
