"""Checks that an optional dependency (an extra) is installed, and says how to install it."""

import json
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from sidecar.kit.errors import InputError

#: What pip and pipx install Waitroom from: a clone, as long as the package index does not have it.
#: A release sets this to "waitroom", and a test then names the pages that still say otherwise.
SOURCE = "."
#: Installs for all users, because the replicas cannot see home folders.
PIPX_INSTALL = "sudo PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install --force"
_PIPX_VENV = "/opt/pipx/venvs/waitroom"
#: A module of each extra. The extra is installed if the module can be imported.
_MODULES = {"sql": "sqlalchemy", "memory": "fakeredis"}


def require(extra: str, *, setting: str) -> None:
    """Raise InputError if the extra is not installed. It names `setting`, which needs the extra."""
    try:
        import_module(_MODULES[extra])
    except ModuleNotFoundError:
        how = format_install(extra)
        problem = f"{setting}: {_MODULES[extra]} is not installed; install it: {how}"
        raise InputError([problem]) from None


def format_install(extra: str) -> str:
    """Format the command that adds an extra to this installation."""
    folder, is_editable = _find_clone()
    command = PIPX_INSTALL if sys.prefix == _PIPX_VENV else f"{sys.executable} -m pip install"
    return f"{command}{' -e' if is_editable else ''} '{folder or SOURCE}[{extra}]'"


def find_source() -> str:
    """Return what to install Waitroom from: the clone that it came from, or else SOURCE."""
    return _find_clone()[0] or SOURCE


def _find_clone() -> tuple[str, bool]:
    """Return the folder that this installation came from, or "", and whether it is editable."""
    from importlib import metadata  # noqa: PLC0415 - most commands start faster
    from urllib.request import url2pathname  # noqa: PLC0415

    try:
        # pip writes this file if it did not install from a package index (PEP 610).
        text = metadata.distribution("waitroom").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text or '{"url": ""}')
    folder = url2pathname(urlsplit(origin["url"]).path)
    is_there = bool(folder) and Path(folder).exists()
    return folder if is_there else "", origin.get("dir_info", {}).get("editable", False)
