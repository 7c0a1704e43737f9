"""waitroom verify-draw: a draw computed again, by anybody. Needs no settings and no replica's
word for anything but what it has published."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import click
from pydantic import ValidationError

from sidecar.base.draw import Kept, Published, verify
from sidecar.base.fields import problems_in

if TYPE_CHECKING:
    from aiohttp import ClientSession

#: Places that are asked for at once; and how long an answer may take, seconds.
_PAGE = 10_000
_TIMEOUT_S = 30
#: The list's digest is computed when it is first asked for: so often is asked, and each second.
_TRIES = 30


@click.command("verify-draw")
@click.argument("source", metavar="FILE|URL")
@click.option("--commitment", metavar="HEX", help="The one that you noted before the pre-queue.")
@click.option(
    "--digest", metavar="HEX", help="The list's SHA-256 that you noted after the opening."
)
@click.option("--visitor", metavar="ID", help="Tell this visitor's place too.")
@click.option("--save", metavar="FILE", help="Keep what was published, to be checked again.")
def verify_draw(
    source: str, commitment: str | None, digest: str | None, visitor: str | None, save: str | None
) -> None:
    """Compute a pre-queue's draw again, and say what is proven.

    URL is https://your.site/_waitroom/ROOM/draw, with ?event=NAME for another than the last. FILE
    is what --save wrote. Exit 1 where something is not as it was published, or not published yet.
    """
    kept = asyncio.run(_fetch(source)) if "://" in source else _read(source)
    draw = kept.draw
    if save:
        _write(save, kept)
    click.echo(
        f"{draw.room}, {draw.event}: {len(kept.places)} places, commitment {draw.commitment}"
    )
    checks = verify(draw, kept.places, commitment=commitment, digest=digest, visitor=visitor)
    for check in checks:
        click.echo(f"{'right' if check.holds else 'WRONG'}  {check.what:<10}  {check.says}")
    if draw.secret is None:
        raise click.ClickException(
            f"nothing is drawn yet: note the commitment, and come back after {draw.revealed_at}"
        )
    if commitment is None:
        click.echo("note   commitment  compare it with the one that was announced before the "
                   "pre-queue: --commitment HEX")  # fmt: skip
    if draw.store_emptied_at is not None:
        click.echo(f"note   list        the store was emptied at {draw.store_emptied_at}: the "
                   "list is of those who came back since")  # fmt: skip
    sys.exit(0 if all(check.holds for check in checks) else 1)


async def _fetch(url: str) -> Kept:
    import aiohttp  # noqa: PLC0415 - the other commands start faster without

    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    headers = {"Accept": "application/json"}
    try:
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            for _ in range(_TRIES):
                document = await _get(session, url)
                draw = _checked({"draw": document, "places": []}, url).draw
                if draw.secret is None or draw.count is not None:
                    break
                await asyncio.sleep(1)
            if draw.secret is None:
                return Kept(draw=draw, places=[])
            return Kept(draw=draw, places=await _fetch_places(session, url, draw))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise click.ClickException(f"{url}: {error or type(error).__name__}") from None


async def _fetch_places(session: ClientSession, url: str, draw: Published) -> list[tuple[str, int]]:
    if draw.places_url is None:
        raise click.ClickException(
            f"the list of {draw.event} is not published (any more): give a file that was saved"
        )
    listed = urljoin(url, draw.places_url)
    if urlsplit(listed)[:2] != urlsplit(url)[:2]:
        raise click.ClickException(f"the list is said to be elsewhere, at {listed}")
    joint = "&" if urlsplit(listed).query else "?"
    places: list[tuple[str, int]] = []
    offset: int | None = 0
    while offset is not None:
        page = f"{listed}{joint}offset={offset}&limit={_PAGE}"
        document = await _get(session, page)
        rows = document.get("places")
        places += _checked({"draw": draw, "places": rows}, page).places
        following = document.get("next")
        # However much is sent, it is read to an end.
        goes_on = isinstance(following, int) and following > offset and bool(rows)
        offset = following if goes_on else None
    return places


async def _get(session: ClientSession, url: str) -> dict[str, Any]:
    """Raises ClickException with what a problem document says, or with what is wrong."""
    async with session.get(url) as reply:
        try:
            document = json.loads(await reply.text())
        except (ValueError, LookupError, RecursionError):
            document = None
        if reply.status >= 400:
            known = document if isinstance(document, dict) else {}
            lines = [str(known[name]) for name in ("title", "detail") if known.get(name)]
            raise click.ClickException("\n".join(lines) or f"{url}: HTTP {reply.status}")
        if not isinstance(document, dict):
            raise click.ClickException(f"{url}: this is no draw as a room publishes it")
        return document


def _read(source: str) -> Kept:
    try:
        document = json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise click.ClickException(f"{source}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise click.ClickException(f"{source}: this is no file of --save") from None
    return _checked(document, source)


def _checked(document: Any, where: str) -> Kept:
    try:
        return Kept.model_validate(document)
    except ValidationError as error:
        lines = [f"{where}: this is no draw as a room publishes it", *problems_in(error)[:5]]
        raise click.ClickException("\n".join(lines)) from None


def _write(path: str, kept: Kept) -> None:
    try:
        Path(path).write_text(kept.model_dump_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
