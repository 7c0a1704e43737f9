"""The command `waitroom verify-draw`, which verifies the draw of a room's pre-queue.

It computes the draw again from the data that the room has published. It needs no settings, and does
not trust the replica.
"""

import ssl
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import click

from sidecar.cli.output import JSON, Unreachable, add_colour, print_json
from sidecar.cli.parsing import is_web_url, read_object
from sidecar.kit.progress import progress

if TYPE_CHECKING:
    import httpx2

    from sidecar.lottery.commitment import PublishedDraw, SavedDraw

#: The limits of one request: the number of places, the seconds, and the bytes of the response.
_PAGE_SIZE = 10_000
_TIMEOUT_S = 30
_MAX_RESPONSE_BYTES = 4_000_000
#: The maximum number of places to read, and of characters to show of a text from a server.
_MAX_PLACES = 5_000_000
_MAX_SHOWN = 300
#: The maximum number of requests, one per second, until the replica has computed a draw's digest.
_ATTEMPTS = 30
_URL_HINT = "write the whole address, https://…"
_NOT_A_DRAW = "this is no draw as a room publishes it"


@click.command("verify-draw")
@click.argument("source", metavar="FILE|URL")
@click.option(
    "--commitment", metavar="HEX", help="The commitment that you noted before the pre-queue."
)
@click.option(
    "--digest", metavar="HEX", help="The SHA-256 of the list, as you noted it after the opening."
)
@click.option("--visitor", metavar="ID", help="Also print this visitor's place.")
@click.option("--save", metavar="FILE", help="Save the published data, to verify it again later.")
@JSON
def verify_draw(source: str, save: str | None, *, as_json: bool, **expected: str | None) -> None:
    """Compute the draw of a pre-queue again, and print what this proves.

    URL is https://your.site/_waitroom/ROOM/draw, with ?event=NAME for an event other than the last.
    FILE is a file that --save wrote. Exit 1 if a result differs from the published result, or if
    nothing is published yet.
    """
    from sidecar.lottery.commitment import verify  # noqa: PLC0415

    record = _fetch_draw(source) if "://" in source else _read_draw(source)
    draw = record.draw
    if save:
        try:
            Path(save).write_text(record.model_dump_json() + "\n", encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{save}: {error.strerror}") from None
    with progress("computing the draw again"):
        checks = verify(draw, record.places, **expected)
    is_right = draw.secret is not None and all(check.is_passed for check in checks)
    if as_json:
        document = {"draw": draw.model_dump(mode="json"), "is_right": is_right}
        print_json({**document, "checks": [asdict(check) for check in checks]})
        sys.exit(0 if is_right else 1)
    click.echo(
        f"{draw.room}, {draw.event}: {len(record.places)} places, commitment {draw.commitment}"
    )
    for check in checks:
        verdict = add_colour("right", "green") if check.is_passed else add_colour("WRONG", "red")
        click.echo(f"{verdict}  {check.subject:<10}  {check.explanation}")
    if draw.secret is None:
        raise click.ClickException(
            f"nothing is drawn yet: note the commitment, and come back after {draw.revealed_at}"
        )
    if expected["commitment"] is None:
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


def _make_printable(text: object) -> str:
    """Shorten a text from a server, and replace characters that could control the terminal."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return printable if len(printable) <= _MAX_SHOWN else f"{printable[:_MAX_SHOWN]}…"


def _fetch_draw(url: str) -> "SavedDraw":
    """Fetch a draw and its places. Raises ClickException."""
    import httpx2  # noqa: PLC0415

    from sidecar.lottery.commitment import SavedDraw  # noqa: PLC0415

    if not is_web_url(url):
        raise click.ClickException(f"{_make_printable(url)}: {_URL_HINT}")
    try:
        with httpx2.Client(
            headers={"Accept": "application/json"},
            timeout=_TIMEOUT_S,
            verify=ssl.create_default_context(),
            trust_env=False,
        ) as client:
            for _ in range(_ATTEMPTS):
                draw = _validate_draw({"draw": _get_json(client, url), "places": []}, url).draw
                if draw.secret is None or draw.count is not None:
                    break
                time.sleep(1)
            places = [] if draw.secret is None else _fetch_places(client, url, draw)
            return SavedDraw(draw=draw, places=places)
    except httpx2.TimeoutException:
        raise Unreachable(f"{url}: no answer in time") from None
    except httpx2.TransportError as error:
        prefix = "Cannot connect: " if isinstance(error, httpx2.ConnectError) else ""
        raise Unreachable(f"{url}: {prefix}{_make_printable(error)}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        message = _make_printable(str(error) or type(error).__name__)
        raise click.ClickException(f"{url}: {message}") from None


def _fetch_places(
    client: "httpx2.Client", url: str, draw: "PublishedDraw"
) -> list[tuple[str, int]]:
    if draw.places_url is None:
        raise click.ClickException(
            f"the list of {draw.event} is not published (any more): give a file that was saved"
        )
    list_url = urljoin(url, draw.places_url)
    if urlsplit(list_url)[:2] != urlsplit(url)[:2]:
        raise click.ClickException(f"the list is elsewhere, at {_make_printable(list_url)}")
    separator = "&" if urlsplit(list_url).query else "?"
    # A malicious server may send an endless list, so stop once there are too many places.
    max_places = _MAX_PLACES if draw.count is None else min(draw.count, _MAX_PLACES)
    places: list[tuple[str, int]] = []
    offset: int | None = 0
    with progress("reading places", total=draw.count) as advance:
        while offset is not None and len(places) <= max_places:
            page = f"{list_url}{separator}after={offset}&limit={_PAGE_SIZE}"
            document = _get_json(client, page)
            rows = _validate_draw({"draw": draw, "places": document.get("places")}, page).places
            places += rows
            advance(len(rows))
            next_offset = document.get("next")
            has_more = isinstance(next_offset, int) and next_offset > offset and bool(rows)
            offset = next_offset if has_more else None
    if len(places) > _MAX_PLACES:
        raise click.ClickException(f"more than {_MAX_PLACES:,} places are listed: no more are read")
    return places


def _get_json(client: "httpx2.Client", url: str) -> dict[str, Any]:
    """Request a JSON object. Raises ClickException if the response is anything else."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    with client.stream("GET", url) as response:
        if 300 <= response.status_code < 400 and "Location" in response.headers:
            target = _make_printable(urljoin(url, response.headers["Location"]))
            raise click.ClickException(
                f"{url}: this address leads on to {target}: say that one if you trust it"
            )
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if time.monotonic() > deadline_s:
                raise Unreachable(f"{url}: no answer in time")
            if len(body) > _MAX_RESPONSE_BYTES:
                raise click.ClickException(f"{url}: {_NOT_A_DRAW}")
    document = read_object(bytes(body))
    if response.status_code >= 300:
        texts = ((document or {}).get(name) for name in ("title", "detail"))
        lines = "\n".join(_make_printable(text) for text in texts if text)
        raise click.ClickException(lines or f"{url}: HTTP {response.status_code}")
    if document is None:
        raise click.ClickException(f"{url}: {_NOT_A_DRAW}")
    return document


def _read_draw(file: str) -> "SavedDraw":
    """Read a file that --save wrote. Raises ClickException."""
    try:
        document = read_object(Path(file).read_bytes())
    except OSError as error:
        message = f"{_make_printable(file)}: {error.strerror}"
        if "/" in file and isinstance(error, FileNotFoundError | NotADirectoryError):
            message += f"; if this is an address, {_URL_HINT}"
        raise click.ClickException(message) from None
    if document is None:
        raise click.ClickException(f"{file}: this is no file of --save")
    return _validate_draw(document, file)


def _validate_draw(document: Any, source: str) -> "SavedDraw":
    """Validate a draw. `source` is its URL or file. Raises ClickException with the first errors."""
    from pydantic import ValidationError  # noqa: PLC0415

    from sidecar.kit.setting_types import describe_problems  # noqa: PLC0415
    from sidecar.lottery.commitment import SavedDraw  # noqa: PLC0415

    try:
        return SavedDraw.model_validate(document)
    except ValidationError as error:
        mistakes = [_make_printable(line) for line in describe_problems(error)[:5]]
        raise click.ClickException("\n".join([f"{source}: {_NOT_A_DRAW}", *mistakes])) from None
