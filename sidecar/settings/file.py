"""Finds the settings file."""

from pathlib import Path

DEFAULT_FILE = "waitroom.toml"
#: The file that `waitroom init` writes, read if the working directory has none.
SYSTEM_FILE = Path("/etc/waitroom") / DEFAULT_FILE


def find_file(path: str | None) -> Path | None:
    """Return `path` or, if that is None, the first default settings file that exists."""
    if path is not None:
        return Path(path)
    return next((file for file in (Path(DEFAULT_FILE), SYSTEM_FILE) if _may_exist(file)), None)


def _may_exist(file: Path) -> bool:
    """Return True if a file exists or its folder cannot be read, which is reported later."""
    try:
        return file.exists()
    except PermissionError:
        return True
