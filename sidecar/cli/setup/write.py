"""Write files and never lose what a user has edited."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

from sidecar.cli.setup.plan import ETC, SECRET, File

Outcome = Literal["new", "same", "updated", "kept"]
#: The SHA-256 of each shipped file as we wrote it, by its path: with another one, it was edited.
MANIFEST = f"{ETC}/files.json"
#: A shipped file that the user has edited stays; the new one lies beside it.
BESIDE = ".new"


def write_once(root: Path, files: Iterable[File], *, dry_run: bool) -> list[tuple[str, Outcome]]:
    """Write those files that are not there. Raises OSError."""
    done: list[tuple[str, Outcome]] = []
    for file in files:
        is_there = (root / file.path).exists()
        if not is_there and not dry_run:
            _write(root, file)
        done.append((file.path, "kept" if is_there else "new"))
    return done


def write_shipped(root: Path, files: Iterable[File], *, dry_run: bool) -> list[tuple[str, Outcome]]:
    """Write the files of this version over those of the one before. Raises OSError.

    A file that the user has edited stays as it is, and the new one is written beside it.
    """
    manifest = root / MANIFEST
    known = json.loads(manifest.read_text("utf-8")) if manifest.exists() else {}
    done: list[tuple[str, Outcome]] = []
    try:
        for file in files:
            outcome = _outcome(root / file.path, file, known.get(file.path))
            done.append((file.path, outcome))
            if dry_run or outcome == "same":
                continue
            if outcome != "kept":
                _write(root, file)
                known[file.path] = _digest(file.data)
            elif known.get(new := f"{file.path}{BESIDE}") in {None, _digest_of(root / new)}:
                _write(root, file, BESIDE)
                known[new] = _digest(file.data)
    finally:
        if not dry_run:
            text = json.dumps(known, indent=1, sort_keys=True) + "\n"
            _write(root, File(MANIFEST, text.encode()))
    return done


def _outcome(path: Path, file: File, written: str | None) -> Outcome:
    if not path.exists():
        return "new"
    there = _digest(path.read_bytes())
    if there == _digest(file.data):
        return "same"
    return "updated" if there == written else "kept"


def _write(root: Path, file: File, suffix: str = "") -> None:
    """All at once: nobody reads half a file, and a secret is never readable by others."""
    path = root / f"{file.path}{suffix}"
    root.mkdir(parents=True, exist_ok=True)
    for folder in reversed(path.relative_to(root).parents):
        is_secret = file.mode == SECRET and folder == path.parent.relative_to(root)
        (root / folder).mkdir(
            mode=0o700 if is_secret and "secrets" in folder.parts else 0o755, exist_ok=True
        )
    half = path.with_name(f".{path.name}.half")
    half.unlink(missing_ok=True)
    half.touch(mode=file.mode, exist_ok=False)
    half.write_bytes(file.data)
    half.chmod(file.mode)
    half.replace(path)


def _digest_of(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.exists() else None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
