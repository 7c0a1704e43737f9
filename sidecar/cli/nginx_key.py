"""The command `waitroom nginx-key`, which writes the file with nginx's key.

With this key nginx itself verifies stamps: cookies by which admitted visitors pass for some seconds
without a request to the sidecar.
"""

import re
from pathlib import Path

import click

from sidecar.cli.config import CONFIG, load_settings
from sidecar.gate.nginx_key import build_key_file
from sidecar.kit.files import atomic_write

#: Matches the paths of Waitroom's own nginx files, which may use secure_link.
_OWN_PATHS = re.compile(r"(?:^|/)waitroom[^/]*/stamp\.conf$|(?:^|/)waitroom-stamp[^/]*\.conf$")
_SECURE_LINK = re.compile(
    r"^[^#\n]*(?:\bsecure_link(?:_md5|_secret)?\s|\$secure_link\b)", re.MULTILINE
)
_MAX_CONF_BYTES = 1_000_000


@click.command("nginx-key")
@click.argument("file", metavar="FILE")
@CONFIG
@click.option(
    "--force", is_flag=True, help="Write the key even if your own nginx files use secure_link."
)
def nginx_key(file: str, path: str | None, force: bool) -> None:
    """Write to FILE the key with which nginx verifies stamps (cookies valid for a few seconds).

    FILE must be waitroom-stamp.conf in the folder of nginx.conf. If FILE is -, the command prints
    the key. The key is derived from secret_keys. When secret_keys change, write the key
    again and run `nginx -s reload`.
    """
    text = build_key_file(load_settings(path).secret_keys)
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
    if not force and (other := _find_secure_link(target.parent)):
        raise click.ClickException(
            f"{other} uses secure_link: it and stamps would read each other's results. "
            "Leave stamps off, or say --force (docs/nginx.md)."
        )
    try:
        with atomic_write(target) as new:
            new.write(text.encode())
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    click.echo(f"{file} is written. Now: nginx -t && nginx -s reload", err=True)


def _find_secure_link(folder: Path) -> Path | None:
    """Find a file below a folder that uses secure_link and is not Waitroom's. Return it or None."""
    for path in sorted(folder.rglob("*")):
        if _OWN_PATHS.search(path.as_posix()):
            continue
        try:
            is_small = path.is_file() and path.stat().st_size <= _MAX_CONF_BYTES
            if is_small and _SECURE_LINK.search(path.read_text("utf-8", errors="replace")):
                return path
        except OSError:  # a broken link, or no permission to read
            continue
    return None
