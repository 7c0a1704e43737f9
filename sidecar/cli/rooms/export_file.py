"""The commands `waitroom rooms export` and `import`, which copy a room from one Redis to another.

The file is JSON Lines: a head, pages of visitors and other rows (sidecar/rooms/store/transfer.py),
and a last line with the number of the lines before it and their SHA-256. A file without that line
is not imported.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from sidecar.cli.parsing import read_object
from sidecar.cli.replica_api import Client, format_error
from sidecar.cli.replica_client import ReplicaOptions
from sidecar.kit.files import atomic_write
from sidecar.kit.progress import Advance, progress

#: The longest line of an export, in bytes.
_MAX_LINE_BYTES = 1_000_000
#: The time limit for one page, in seconds.
_TIMEOUT_S = 60
_INTACT = "Nothing was changed"
_RESUME = "waitroom rooms set {} queue_all=null"
_NOT_AN_EXPORT = "this is no file of `waitroom rooms export`"


@click.command("export")
@click.argument("room")
@click.option(
    "--output",
    "-o",
    default="-",
    metavar="FILE",
    help="The file to write (default: standard output).",
)
@click.pass_obj
def export_room(options: ReplicaOptions, room: str, output: str) -> None:
    """Write a room's queue, sessions and run-time settings to a file.

    The room keeps running. To move the room to another Redis server, set queue_all=true before the
    export, so that no visitor is called twice.
    """
    has_progress = output != "-" or not sys.stdout.isatty()
    with (
        options.client(timeout_s=_TIMEOUT_S) as client,
        _open_output(output) as file,
        progress(f"exporting {room}", is_on=has_progress) as advance,
    ):
        counts = _write_export(client, room, file, advance)
    click.echo(f"{room}: {_format_counts(counts)} exported", err=True)


@click.command("import")
@click.argument("room")
@click.option(
    "--input",
    "-i",
    "file",
    type=click.File("rb"),
    default="-",
    metavar="FILE",
    help="The file to read (default: standard input).",
)
@click.pass_obj
def import_room(options: ReplicaOptions, room: str, file: IO[bytes]) -> None:
    """Import a room from a file that `export` wrote.

    The room is paused during the import, and then gets the run-time settings in the file. Visitors
    already in the room stay. A repeated import is safe. Both sides need the same secret_keys.
    """
    if not file.seekable():  # for example a pipe
        pipe, file = file, tempfile.TemporaryFile()  # noqa: SIM115 - the context closes it
        click.get_current_context().with_resource(file)
        shutil.copyfileobj(pipe, file)
        file.seek(0)
    head, offsets = _check_file(file)
    if head.get("room") != room:
        raise click.ClickException(
            f"the file is of room {str(head.get('room'))[:60]!r}: tickets are of one room alone, "
            "so both must be called the same"
        )
    total = file.seek(0, os.SEEK_END)
    with (
        options.client(timeout_s=_TIMEOUT_S) as client,
        progress(f"importing {room}", total=total) as advance,
    ):
        counts = _send_import(client, room, head, file, offsets, advance)
    click.echo(f"{room}: {_format_counts(counts)} new here")
    if head.get("settings", {}).get("queue_all"):
        click.echo(f"It is paused, as the file says. To go on: {_RESUME.format(room)}")


def _write_export(client: Client, room: str, file: IO[bytes], advance: Advance) -> Counter[str]:
    """Write a replica's export of a room to a file. Return the numbers of rows by kind."""
    counts: Counter[str] = Counter()
    digest, lines, query = hashlib.sha256(), 0, dict[str, str]()
    page: dict[str, Any] = {"next": ""}
    while page["next"] is not None:
        page = client.request("GET", f"/admin/rooms/{room}/export", query=query)
        query = {"cursor": page["next"]}
        for line in page["lines"]:
            text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            file.write(text)
            digest.update(text)
            lines += 1
            if "format" in line:
                advance(0, total=line["waiting"] + line["active"])
            kind, rows = line.get("kind", ""), len(line.get("rows", ()))
            counts[kind] += rows
            advance(rows if kind in {"waiting", "active"} else 0)
    end = {"end": {"lines": lines, "sha256": digest.hexdigest()}}
    file.write(json.dumps(end).encode() + b"\n")
    return counts


def _send_import(  # noqa: PLR0913, PLR0917 - the parts of a file
    client: Client,
    room: str,
    head: dict[str, Any],
    file: IO[bytes],
    offsets: dict[str, list[int]],
    advance: Advance,
) -> Counter[str]:
    """Send a checked file's lines to a replica. Return the numbers of rows added, by kind."""
    from sidecar.rooms.store.transfer import WRITE_ORDER  # noqa: PLC0415 - other commands start faster
    from waitroom import WaitroomError  # noqa: PLC0415

    counts: Counter[str] = Counter()

    def send(step: dict[str, Any]) -> int:
        return int(client.request("POST", f"/admin/rooms/{room}/import", step)["added"])

    send({"kind": "begin", "head": head})
    try:
        for kind in WRITE_ORDER:
            for offset in offsets.get(kind, ()):
                file.seek(offset)
                text = file.readline()
                line = json.loads(text)
                counts[kind] += send({**line, "exported_at_ms": head["exported_at_ms"]})
                advance(len(text))
        send({"kind": "end", "head": head})
    except (WaitroomError, KeyboardInterrupt) as error:
        reason = format_error(error) if isinstance(error, WaitroomError) else "interrupted"
        raise click.ClickException(
            f"{reason}\nThe import broke off. What came in stays, and the room is paused "
            "(queue_all). Run the same command again; or let the room go on as it is: "
            f"{_RESUME.format(room)}"
        ) from None
    return counts


def _check_file(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Check that a file is a complete export. Return its head, and the offsets of its lines by
    kind. Raises ClickException."""
    from sidecar.rooms.store.transfer import FORMAT  # noqa: PLC0415

    head = _parse_line(file.readline(_MAX_LINE_BYTES))
    name = str(head.get("format", ""))
    if not name.startswith("waitroom-room/"):
        raise click.ClickException(_NOT_AN_EXPORT)
    if name != FORMAT:
        raise click.ClickException(f"its format is {name[:40]}; this version reads {FORMAT}")
    file.seek(0)
    digest, lines = hashlib.sha256(), 0
    offsets: dict[str, list[int]] = defaultdict(list)
    while True:
        offset = file.tell()
        text = file.readline(_MAX_LINE_BYTES)
        if not text.endswith(b"\n"):
            raise click.ClickException(f"the file is cut off: its last line is missing. {_INTACT}")
        line = _parse_line(text)
        if "end" in line:
            break
        digest.update(text)
        lines += 1
        if "kind" in line:
            offsets[str(line["kind"])].append(offset)
    if line["end"] != {"lines": lines, "sha256": digest.hexdigest()} or file.read(1):
        raise click.ClickException(f"the file was changed: its checksum is another. {_INTACT}")
    return head, offsets


def _parse_line(text: bytes) -> dict[str, Any]:
    if (line := read_object(text)) is None:
        raise click.ClickException(_NOT_AN_EXPORT)
    return line


@contextmanager
def _open_output(output: str) -> Iterator[IO[bytes]]:
    """Open a file for an atomic write, or standard output if the name is "-". Only the owner may
    read the file, because it contains visitors' ids."""
    if output == "-":
        yield sys.stdout.buffer
        return
    try:
        with atomic_write(Path(output)) as file:
            yield file
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from None


def _format_counts(counts: Counter[str]) -> str:
    return f"{counts['waiting']} place(s) and {counts['active']} session(s)"
