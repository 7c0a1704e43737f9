"""Find the settings file."""

from pathlib import Path

DEFAULT_FILE = "waitroom.toml"
#: The file that `waitroom init` writes, read if the working directory has none.
SYSTEM_FILE = Path("/etc/waitroom") / DEFAULT_FILE


def find_file(path: str | None) -> Path | None:
    """Return the settings file to read: `path` if it is given, else the first default that
    exists."""
    if path is not None:
        return Path(path)
    return next((file for file in (Path(DEFAULT_FILE), SYSTEM_FILE) if _may_exist(file)), None)


def _may_exist(file: Path) -> bool:
    """Return True also if the folder is not readable: reading the file then reports that."""
    try:
        return file.exists()
    except PermissionError:
        return True
