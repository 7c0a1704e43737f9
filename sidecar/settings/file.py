"""Finds the settings file, which may be named by an option or be in a default place."""

from pathlib import Path

DEFAULT_FILE = "waitroom.toml"
#: The file that `waitroom init` writes. It is read if the working directory has no settings file.
SYSTEM_FILE = Path("/etc/waitroom") / DEFAULT_FILE


def find_file(path: str | None) -> Path | None:
    """Return `path` or, if that is None, the first default settings file that exists."""
    if path is not None:
        return Path(path)
    return next((file for file in (Path(DEFAULT_FILE), SYSTEM_FILE) if _may_exist(file)), None)


def _may_exist(file: Path) -> bool:
    """Return True if the file exists, or if its folder cannot be read. In that case, the attempt to
    read the file reports the error."""
    try:
        return file.exists()
    except PermissionError:
        return True
