"""Finds the folders of data files, in a checkout or in the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
#: Maps a folder of `sidecar/share` in the installed package to its path in a checkout.
_IN_CHECKOUT = {"static": "static", "nginx": "nginx/waitroom", "systemd": "deploy/systemd"}


def find_share(name: str) -> Path:
    """Return the path of the folder `static`, `nginx` or `systemd`."""
    installed_folder = _PACKAGE / "share" / name
    return installed_folder if installed_folder.is_dir() else _PACKAGE.parent / _IN_CHECKOUT[name]
