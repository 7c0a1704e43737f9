"""waitroom nginx-key: write the file with nginx's key, by which stamps are on."""

import re
from pathlib import Path

import click

from sidecar.cli.config import CONFIG, load_settings
from sidecar.gate.stamps import key_file
from sidecar.kit.files import replacing

#: Files of Waitroom: the key file, which is replaced, and the includes.
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
    if not force and (user := _user_of_secure_link(target.parent)):
        raise click.ClickException(
            f"{user} uses secure_link: it and stamps would read each other's results. "
            "Leave stamps off, or say --force (docs/nginx.md)."
        )
    try:
        with replacing(target) as new:
            new.write(text.encode())
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    click.echo(f"{file} is written. Now: nginx -t && nginx -s reload", err=True)


def _user_of_secure_link(folder: Path) -> Path | None:
    """Return a file of nginx's configuration that uses the module, except Waitroom's own."""
    for each in sorted(folder.rglob("*")):
        if _OURS.search(each.as_posix()):
            continue
        try:
            is_small = each.is_file() and each.stat().st_size <= _MAX_CONF
            if is_small and _USES.search(each.read_text(encoding="utf-8", errors="replace")):
                return each
        except OSError:  # a broken link, or not ours to read
            continue
    return None
