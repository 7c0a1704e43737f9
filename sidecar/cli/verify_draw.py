"""waitroom verify-draw: compute a draw again from what a room has published.

It needs no settings, and takes a replica's word for nothing but that.
"""

import json
import ssl
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import click

from sidecar.cli.output import JSON, Unreachable, coloured, print_json
from sidecar.kit.progress import progress

if TYPE_CHECKING:
    import httpx

    from sidecar.lottery.commitment import Published, SavedDraw

#: Places in one request; how long a response may take, in seconds, and be, in bytes.
_PAGE = 10_000
_TIMEOUT_S = 30
_ANSWER_BYTES = 4_000_000
#: Places that are read, whatever count was published; characters shown of a server's text.
_MOST = 5_000_000
_SHOWN = 300
#: Requests, one a second, until a replica has computed the list's digest. The first one starts it.
_TRIES = 30
_WHOLE = "write the whole address, https://…"
_NO_DRAW = "this is no draw as a room publishes it"


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
    from sidecar.lottery.commitment import verify  # noqa: PLC0415

    kept = _fetch(source) if "://" in source else _read(source)
    draw = kept.draw
    if save:
        try:
            Path(save).write_text(kept.model_dump_json() + "\n", encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{save}: {error.strerror}") from None
    with progress("computing the draw again"):
        checks = verify(draw, kept.places, **noted)
    is_right = draw.secret is not None and all(check.holds for check in checks)
    if as_json:
        document = {"draw": draw.model_dump(mode="json"), "is_right": is_right}
        print_json({**document, "checks": [asdict(check) for check in checks]})
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


def _printable(text: object) -> str:
    """Return a server's text so that it can neither control the terminal nor fill it."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _fetch(url: str) -> "SavedDraw":
    """Fetch a draw and its places. Raises ClickException."""
    import httpx  # noqa: PLC0415

    from sidecar.lottery.commitment import SavedDraw  # noqa: PLC0415

    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise click.ClickException(f"{_printable(url)}: {_WHOLE}")
    try:
        with httpx.Client(
            headers={"Accept": "application/json"},
            timeout=_TIMEOUT_S,
            verify=ssl.create_default_context(),
            trust_env=False,
        ) as client:
            for _ in range(_TRIES):
                draw = _check({"draw": _get(client, url), "places": []}, url).draw
                if draw.secret is None or draw.count is not None:
                    break
                time.sleep(1)
            if draw.secret is None:
                return SavedDraw(draw=draw, places=[])
            return SavedDraw(draw=draw, places=_fetch_places(client, url, draw))
    except httpx.TimeoutException:
        raise Unreachable(f"{url}: no answer in time") from None
    except httpx.TransportError as error:
        what = "Cannot connect: " if isinstance(error, httpx.ConnectError) else ""
        raise Unreachable(f"{url}: {what}{_printable(error)}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        message = _printable(str(error) or type(error).__name__)
        raise click.ClickException(f"{url}: {message}") from None


def _fetch_places(client: "httpx.Client", url: str, draw: "Published") -> list[tuple[str, int]]:
    if draw.places_url is None:
        raise click.ClickException(
            f"the list of {draw.event} is not published (any more): give a file that was saved"
        )
    list_url = urljoin(url, draw.places_url)
    if urlsplit(list_url)[:2] != urlsplit(url)[:2]:
        raise click.ClickException(f"the list is elsewhere, at {_printable(list_url)}")
    joint = "&" if urlsplit(list_url).query else "?"
    # An endless list is read to one place too many, which is wrong already.
    most = _MOST if draw.count is None else min(draw.count, _MOST)
    places: list[tuple[str, int]] = []
    offset: int | None = 0
    with progress("reading places", total=draw.count) as advance:
        while offset is not None and len(places) <= most:
            page = f"{list_url}{joint}after={offset}&limit={_PAGE}"
            document = _get(client, page)
            rows = _check({"draw": draw, "places": document.get("places")}, page).places
            places += rows
            advance(len(rows))
            following = document.get("next")
            goes_on = isinstance(following, int) and following > offset and bool(rows)
            offset = following if goes_on else None
    if len(places) > _MOST:
        raise click.ClickException(f"more than {_MOST:,} places are listed: no more are read")
    return places


def _get(client: "httpx.Client", url: str) -> dict[str, Any]:
    """Return a JSON object. Raises ClickException with a problem document's text, or with what is
    wrong."""
    end_s = time.monotonic() + _TIMEOUT_S
    with client.stream("GET", url) as reply:
        if 300 <= reply.status_code < 400 and "Location" in reply.headers:
            to = _printable(urljoin(url, reply.headers["Location"]))
            raise click.ClickException(
                f"{url}: this address leads on to {to}: say that one if you trust it"
            )
        body = bytearray()
        for part in reply.iter_bytes():
            body += part
            if time.monotonic() > end_s:
                raise Unreachable(f"{url}: no answer in time")
            if len(body) > _ANSWER_BYTES:
                raise click.ClickException(f"{url}: {_NO_DRAW}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if reply.status_code >= 300:
        problem = document if isinstance(document, dict) else {}
        lines = [_printable(problem[name]) for name in ("title", "detail") if problem.get(name)]
        raise click.ClickException("\n".join(lines) or f"{url}: HTTP {reply.status_code}")
    if not isinstance(document, dict):
        raise click.ClickException(f"{url}: {_NO_DRAW}")
    return document


def _read(file: str) -> "SavedDraw":
    """Read what --save wrote. Raises ClickException."""
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{_printable(file)}: {error.strerror}"
        if "/" in file and isinstance(error, FileNotFoundError | NotADirectoryError):
            message += f"; if this is an address, {_WHOLE}"
        raise click.ClickException(message) from None
    except (ValueError, RecursionError):
        raise click.ClickException(f"{file}: this is no file of --save") from None
    return _check(document, file)


def _check(document: Any, source: str) -> "SavedDraw":
    """Return a draw that has the right form. Raises ClickException with the first mistakes."""
    from pydantic import ValidationError  # noqa: PLC0415

    from sidecar.kit.setting_types import problems_in  # noqa: PLC0415
    from sidecar.lottery.commitment import SavedDraw  # noqa: PLC0415

    try:
        return SavedDraw.model_validate(document)
    except ValidationError as error:
        wrong = [_printable(line) for line in problems_in(error)[:5]]
        raise click.ClickException("\n".join([f"{source}: {_NO_DRAW}", *wrong])) from None
