"""The files beside the code: of the checkout, or those installed with the package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
#: Where a checkout has what the wheel has in `sidecar/share`.
_IN_CHECKOUT = {"static": "static", "nginx": "nginx/waitroom", "systemd": "deploy/systemd"}


def find_share(name: str) -> Path:
    """The folder `static`, `nginx` or `systemd`."""
    installed = _PACKAGE / "share" / name
    return installed if installed.is_dir() else _PACKAGE.parent / _IN_CHECKOUT[name]
