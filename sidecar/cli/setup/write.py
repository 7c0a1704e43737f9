"""Write files and never lose what a user has edited."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

from sidecar.cli.setup.plan import ETC, File
from sidecar.kit.files import SECRET, replacing

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
