"""The folders of static files, in a checkout or in the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
#: The paths in a checkout of the folders that the wheel has in `sidecar/share`.
_IN_CHECKOUT = {"static": "static", "nginx": "nginx/waitroom", "systemd": "deploy/systemd"}


def find_share(name: str) -> Path:
    """Return the folder `static`, `nginx` or `systemd`."""
    installed = _PACKAGE / "share" / name
    return installed if installed.is_dir() else _PACKAGE.parent / _IN_CHECKOUT[name]
