"""waitroom nginx-key: write the file with nginx's key, by which stamps are on."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import click

from sidecar.cli.common import CONFIG, load_settings
from sidecar.gate.stamps import key_file

#: Ours are the file itself, which is replaced, and the includes.
_OURS = re.compile(r"(?:^|/)waitroom[^/]*/stamp\.conf$|(?:^|/)waitroom-stamp[^/]*\.conf$")
_USES = re.compile(r"^[^#\n]*(?:\bsecure_link(?:_md5|_secret)?\s|\$secure_link\b)", re.MULTILINE)
_MAX_CONF = 1_000_000


@click.command("nginx-key")
@click.argument("file", metavar="FILE")
@CONFIG
@click.option("--force", is_flag=True, help="Although your nginx uses secure_link itself.")
def nginx_key(file: str, path: str | None, force: bool) -> None:
    """Write nginx's key to FILE, by which it knows for seconds who is inside (stamps).

    FILE is waitroom-stamp.conf beside nginx.conf; -: print it. Made from secret_keys: again
    whenever they change, and `nginx -s reload` after it.
    """
    text = key_file(load_settings(path).secret_keys)
    if file == "-":
        click.echo(text, nl=False)
        return
    target = Path(file)
    if not re.fullmatch(r"waitroom-stamp[^/]*\.conf", target.name):
        raise click.UsageError(
            f"{file}: nginx reads waitroom-stamp.conf beside nginx.conf, such as "
            "/etc/nginx/waitroom-stamp.conf"
        )
    if not target.parent.is_dir():
        raise click.UsageError(f"{file}: there is no folder {target.parent}")
    found = None if force else _use_of_secure_link(target.parent)
    if found is not None:
        raise click.ClickException(
            f"{found} uses secure_link: it and stamps would read each other's results. "
            "Leave stamps off, or say --force (docs/nginx.md)."
        )
    try:
        _write(target, text)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    click.echo(f"{file} is written. Now: nginx -t && nginx -s reload", err=True)


def _write(target: Path, text: str) -> None:
    """All at once, and never readable by others (mkstemp: 0600)."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".waitroom-stamp-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _use_of_secure_link(folder: Path) -> Path | None:
    """A file of nginx's configuration, other than ours, that uses the module."""
    for each in sorted(folder.rglob("*")):
        if _OURS.search(each.as_posix()):
            continue
        try:
            if each.is_file() and each.stat().st_size <= _MAX_CONF and _USES.search(_text(each)):
                return each
        except OSError:  # a broken link, or not ours to read
            continue
    return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
