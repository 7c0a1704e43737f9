"""Find the settings file."""

from pathlib import Path

DEFAULT_FILE = "waitroom.toml"
#: Where `waitroom init` puts it; read where the working directory has none.
SYSTEM_FILE = Path("/etc/waitroom") / DEFAULT_FILE


def find_file(path: str | None) -> Path | None:
    """The settings file that is read; None: there is none, and none was named."""
    if path is not None:
        return Path(path)
    return next((file for file in (Path(DEFAULT_FILE), SYSTEM_FILE) if _may_exist(file)), None)


def _may_exist(file: Path) -> bool:
    """Also where its folder is closed to us: reading it says so."""
    try:
        return file.exists()
    except PermissionError:
        return True
