"""The command `waitroom doctor`."""

import json
import os
import shutil
import sys
from dataclasses import asdict
from typing import Any

import click

from sidecar.cli.config import CONFIG
from sidecar.cli.output import JSON, add_colour


@click.command()
@CONFIG
@click.argument("url", required=False)
@click.option("--room", metavar="NAME", help="The room's name, if the page does not show it.")
@click.option("--ops-port", default=8401, show_default=True, help="Check if this port is closed.")
@click.option("--edge-port", default=8400, show_default=True, help="Check if this port is closed.")
@click.option("--insecure", is_flag=True, help="Accept any TLS certificate.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, help="Seconds to wait.")
@JSON
def doctor(
    url: str | None, *, path: str | None, insecure: bool, as_json: bool, **options: Any
) -> None:
    """Visit a page as a browser does, and print any problems. Without URL, visit the public_url of
    the first room that has one.

    Exit 0 if there is no problem. The visit takes up to two places in the room and releases them.
    """
    import asyncio  # noqa: PLC0415

    from sidecar.cli.doctor import findings  # noqa: PLC0415
    from sidecar.cli.doctor.checks import diagnose  # noqa: PLC0415
    from sidecar.cli.doctor.visit import Options  # noqa: PLC0415

    url = url or _read_public_url(path, options["room"])
    try:
        results = asyncio.run(diagnose(url, Options(verify=not insecure, **options)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        document = {
            "problems": findings.count_findings(results, findings.Level.PROBLEM),
            "warnings": findings.count_findings(results, findings.Level.WARNING),
            "findings": [asdict(finding) for finding in results],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        click.echo(findings.format_findings(results, columns=columns, add_colour=add_colour))
    sys.exit(1 if findings.count_findings(results, findings.Level.PROBLEM) else 0)


def _read_public_url(path: str | None, room: str | None) -> str:
    """Read the public_url of a room from the settings. If `room` is None, read that of the first
    room that has one. Secrets are not needed. Raises UsageError if there is no public_url."""
    from sidecar.settings.model import Settings  # noqa: PLC0415
    from sidecar.settings.values import read_values  # noqa: PLC0415

    rooms = read_values(path, dict(os.environ), Settings)[0].get("rooms", {})
    for name in [room] if room else rooms:
        if url := rooms.get(name, {}).get("public_url"):
            return str(url)
    raise click.UsageError("Missing argument 'URL': the settings have no public_url of a room")
