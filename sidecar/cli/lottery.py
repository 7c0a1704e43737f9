"""waitroom verify-draw: a draw computed again, by anybody. Needs no settings and no replica's
word for anything but what it has published."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import click

from sidecar.cli.common import Unreachable
from sidecar.cli.printing import JSON, coloured, print_json
from sidecar.kit.progress import progress

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

    from sidecar.lottery.commitment import Kept, Published

#: Places in one request; how long a response may take, seconds, and be, bytes.
_PAGE = 10_000
_TIMEOUT_S = 30
_ANSWER_BYTES = 4_000_000
#: Places that are read, whatever count is given; characters that are shown of what a server says.
_MOST = 5_000_000
_SHOWN = 300
#: The first request starts to compute the list's digest: so many requests, one a second.
_TRIES = 30
_WHOLE = "write the whole address, https://…"


@click.command("verify-draw")
@click.argument("source", metavar="FILE|URL")
@click.option("--commitment", metavar="HEX", help="The one that you noted before the pre-queue.")
@click.option(
    "--digest", metavar="HEX", help="The list's SHA-256 that you noted after the opening."
)
@click.option("--visitor", metavar="ID", help="Tell this visitor's place too.")
@click.option("--save", metavar="FILE", help="Keep what was published, to be checked again.")
@JSON
def verify_draw(source: str, save: str | None, *, as_json: bool, **noted: str | None) -> None:
    """Compute a pre-queue's draw again, and say what is proven.

    URL is https://your.site/_waitroom/ROOM/draw, with ?event=NAME for another than the last. FILE
    is what --save wrote. Exit 1 where something is not as it was published, or not published yet.
    """
    import asyncio  # noqa: PLC0415

    from sidecar.lottery.commitment import verify  # noqa: PLC0415

    kept = asyncio.run(_fetch(source)) if _is_address(source) else _read(source)
    draw = kept.draw
    if save:
        _write(save, kept)
    with progress("computing the draw again"):
        checks = verify(draw, kept.places, **noted)
    is_right = draw.secret is not None and all(check.holds for check in checks)
    if as_json:
        found = [asdict(check) for check in checks]
        print_json({"draw": draw.model_dump(mode="json"), "is_right": is_right, "checks": found})
        sys.exit(0 if is_right else 1)
    click.echo(
        f"{draw.room}, {draw.event}: {len(kept.places)} places, commitment {draw.commitment}"
    )
    for check in checks:
        word = coloured("right", "green") if check.holds else coloured("WRONG", "red")
        click.echo(f"{word}  {check.what:<10}  {check.says}")
    if draw.secret is None:
        raise click.ClickException(
            f"nothing is drawn yet: note the commitment, and come back after {draw.revealed_at}"
        )
    if noted["commitment"] is None:
        click.echo(
            "note   commitment  compare it with the one that was announced before the pre-queue: "
            "--commitment HEX"
        )
    if draw.store_emptied_at is not None:
        click.echo(
            f"note   list        the store was emptied at {draw.store_emptied_at}: the list is of "
            "those who came back since"
        )
    sys.exit(0 if is_right else 1)


def _is_address(source: str) -> bool:
    """Raises ClickException where it is neither a whole address nor a file's name."""
    if "://" not in source:
        return False
    try:
        parts = urlsplit(source)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise click.ClickException(f"{_printable(source)}: {_WHOLE}")
    return True


def _printable(given: object) -> str:
    """Text of another party, so that it cannot control the terminal, or fill it."""
    text = "".join(one if one.isprintable() else "?" for one in str(given))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


async def _fetch(url: str) -> Kept:
    import asyncio  # noqa: PLC0415

    import aiohttp  # noqa: PLC0415

    from sidecar.lottery.commitment import Kept  # noqa: PLC0415

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
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        message = _printable(str(error) or "no answer in time")
        raise Unreachable(f"{url}: {message}") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        message = _printable(str(error) or type(error).__name__)
        raise click.ClickException(f"{url}: {message}") from None


async def _fetch_places(session: ClientSession, url: str, draw: Published) -> list[tuple[str, int]]:
    if draw.places_url is None:
        raise click.ClickException(
            f"the list of {draw.event} is not published (any more): give a file that was saved"
        )
    listed = urljoin(url, draw.places_url)
    if urlsplit(listed)[:2] != urlsplit(url)[:2]:
        raise click.ClickException(f"the list is elsewhere, at {_printable(listed)}")
    joint = "&" if urlsplit(listed).query else "?"
    # However much is sent, it is read to an end; one place too many is wrong already.
    most = _MOST if draw.count is None else min(draw.count, _MOST)
    places: list[tuple[str, int]] = []
    offset: int | None = 0
    with progress("reading places", total=draw.count) as advance:
        while offset is not None and len(places) <= most:
            page = f"{listed}{joint}after={offset}&limit={_PAGE}"
            document = await _get(session, page)
            rows = document.get("places")
            found = _checked({"draw": draw, "places": rows}, page).places
            places += found
            advance(len(found))
            following = document.get("next")
            goes_on = isinstance(following, int) and following > offset and bool(rows)
            offset = following if goes_on else None
    if len(places) > _MOST:
        raise click.ClickException(f"more than {_MOST:,} places are listed: no more are read")
    return places


async def _get(session: ClientSession, url: str) -> dict[str, Any]:
    """Raises ClickException with what a problem document says, or with what is wrong."""
    async with session.get(url, allow_redirects=False) as reply:
        if 300 <= reply.status < 400 and "Location" in reply.headers:
            to = _printable(urljoin(url, reply.headers["Location"]))
            raise click.ClickException(
                f"{url}: this address leads on to {to}: say that one if you trust it"
            )
        try:
            document = json.loads(await _body(reply))
        except (ValueError, RecursionError):
            document = None
        if reply.status >= 300:
            known = document if isinstance(document, dict) else {}
            lines = [_printable(known[name]) for name in ("title", "detail") if known.get(name)]
            raise click.ClickException("\n".join(lines) or f"{url}: HTTP {reply.status}")
        if not isinstance(document, dict):
            raise click.ClickException(f"{url}: this is no draw as a room publishes it")
        return document


async def _body(reply: ClientResponse) -> bytes:
    """Raises ValueError where it is longer than a page of places can be."""
    body = bytearray()
    async for part in reply.content.iter_any():
        body += part
        if len(body) > _ANSWER_BYTES:
            raise ValueError("the answer is too long")
    return bytes(body)


def _read(source: str) -> Kept:
    try:
        document = json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{_printable(source)}: {error.strerror}"
        if "/" in source and isinstance(error, FileNotFoundError | NotADirectoryError):
            message += f"; if this is an address, {_WHOLE}"
        raise click.ClickException(message) from None
    except (ValueError, RecursionError):
        raise click.ClickException(f"{source}: this is no file of --save") from None
    return _checked(document, source)


def _checked(document: Any, where: str) -> Kept:
    from pydantic import ValidationError  # noqa: PLC0415

    from sidecar.kit.setting_types import problems_in  # noqa: PLC0415
    from sidecar.lottery.commitment import Kept  # noqa: PLC0415

    try:
        return Kept.model_validate(document)
    except ValidationError as error:
        wrong = [_printable(line) for line in problems_in(error)[:5]]
        lines = [f"{where}: this is no draw as a room publishes it", *wrong]
        raise click.ClickException("\n".join(lines)) from None


def _write(path: str, kept: Kept) -> None:
    try:
        Path(path).write_text(kept.model_dump_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
