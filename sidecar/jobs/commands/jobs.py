"""waitroom jobs: submit jobs, look at them, wait for them, cancel them, try them again."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import click

from sidecar.cli.common import asking, call
from sidecar.cli.connection import ReplicaGroup
from sidecar.jobs.commands.progress import PAGE, ask_of, page_of, standing, under_way, watch
from sidecar.jobs.model import State

if TYPE_CHECKING:
    from sidecar.cli.connection import Connection

#: How long a result of the greatest length may take to be read, seconds.
BODY_S = 600
EVERY = click.option(
    "--every", type=click.FloatRange(0.2, 60), default=1, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip


@click.group(cls=ReplicaGroup)
def jobs() -> None:
    """Submit jobs, look at them and wait for them, through a replica's ops listener."""


@jobs.command()
@click.argument("target")
@click.option("--method", "-X", metavar="WORD", help="GET, or POST where there is a body.")
@click.option("--path", metavar="PATH", help="Below the target's url.")
@click.option("--query", metavar="TEXT", help="What follows the ?, as it is sent.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME: VALUE",
              help="As often as there are headers.")  # fmt: skip
@click.option("--body", "-d", metavar="TEXT", help="The request's body; -: standard input.")
@click.option("--body-file", type=click.File("rb"), metavar="FILE", help="The same, from a file.")
@click.option("--kind", type=click.Choice(["offline", "online"]),
              help="Who calls: a runner, or whoever has the permit.")  # fmt: skip
@click.option("--class", "class_name", metavar="NAME", help="The class that the grant gives.")
@click.option("--grant", metavar="TEXT", help="Gives a class; waitroom grant makes one.")
@click.option("--key", metavar="TEXT", help="The same key again names the same job.")
@click.option("--callback", metavar="URL", help="Is told when the job has ended.")
@click.option("--wait", "is_waiting", is_flag=True,
              help="Until it has ended, or an online one is called. Exit 1 if it did not come "
              "to be completed.")  # fmt: skip
@EVERY
@click.pass_obj
def submit(
    connection: Connection, /, target: str, is_waiting: bool, every: float, **said: Any
) -> None:
    """Submit a job. Its id is printed, and to standard error how it stands."""
    headers = dict(_header(line) for line in said["headers"])
    named = {
        "method": said["method"], "path": said["path"], "query": said["query"],
        "headers": headers or None, **_body(said["body"], said["body_file"]),
        "kind": said["kind"], "class": said["class_name"], "grant": said["grant"],
        "idempotency_key": said["key"], "callback_url": said["callback"],
    }  # fmt: skip
    given = {name: value for name, value in named.items() if value is not None}
    job = call(connection, "POST", "/v1/jobs", {"target": target, **given})
    click.echo(job["id"])
    if is_waiting:
        is_good = watch(connection, [job["id"]], every_s=every, until_called=True)
        sys.exit(0 if is_good else 1)
    click.echo(standing(job), err=True)


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"{line}: write NAME: VALUE, such as Content-Type: text/plain")
    return name.strip(), value.strip()


def _body(text: str | None, file: IO[bytes] | None) -> dict[str, str]:
    """As the service API takes it: a text, or what is none as base64."""
    if text is not None and file is not None:
        raise click.UsageError("say either --body or --body-file")
    if text is not None and text != "-":
        return {"body": text}
    if text == "-":
        file = sys.stdin.buffer
    if file is None:
        return {}
    data = file.read()
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(data).decode()}


@jobs.command()
@click.argument("id_", metavar="ID")
@click.option("--body", "is_body", is_flag=True, help="The result's body alone, as it came.")
@click.pass_obj
def show(connection: Connection, id_: str, is_body: bool) -> None:
    """A job and its result, as JSON."""
    if is_body:
        asyncio.run(_print_body(connection, id_))
    else:
        click.echo(json.dumps(call(connection, "GET", ask_of(id_)), indent=2))


async def _print_body(connection: Connection, id_: str) -> None:
    out = sys.stdout.buffer
    async with asking(connection, "GET", f"{ask_of(id_)}/body", timeout_s=BODY_S) as reply:
        async for part in reply.content.iter_chunked(65_536):
            out.write(part)
    out.flush()


@jobs.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def cancel(connection: Connection, id_: str) -> None:
    """Cancel a job that waits, or cut off its call where the target allows it."""
    told = call(connection, "DELETE", ask_of(id_))
    is_cut = told.get("aborting")
    click.echo(f"{id_}: its call is being cut off" if is_cut else f"{id_} is {told['state']}")


@jobs.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def retry(connection: Connection, id_: str) -> None:
    """Try a job again that has ended, however it did: it waits at the end of the line, and what
    came of it is forgotten."""
    click.echo(f"{id_} is {standing(call(connection, 'POST', f'{ask_of(id_)}/retry'))}")


@jobs.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def done(connection: Connection, id_: str) -> None:
    """Say that an online job's call is over, so that the next one is called."""
    click.echo(f"{id_} is {standing(call(connection, 'POST', f'{ask_of(id_)}/done'))}")


@jobs.command("list")
@click.option("--target", metavar="NAME", help="Of one target.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="In one state.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@click.pass_obj
def list_jobs(connection: Connection, target: str | None, state: str | None, limit: int) -> None:
    """One line a job, newest first: those of the token, or all by the admin token."""
    after: str | None = ""
    while after is not None and limit > 0:
        page = page_of(connection, min(limit, PAGE), after, target=target, state=state)
        if not after:
            click.echo(f"{'id':<22} {'target':<16} {'owner':<12} {'created':<19} http state")
        for job in page["jobs"]:
            status = job["status"] or "-"
            click.echo(f"{job['id']:<22} {job['target']:<16} {job['owner']:<12} "
                       f"{job['created_at'][:19]} {status:<4} {standing(job)}")  # fmt: skip
        limit -= len(page["jobs"])
        after = page["next"]


@jobs.command("watch")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--target", metavar="NAME", help="All of its jobs that have not ended now.")
@EVERY
@click.pass_obj
def watch_jobs(
    connection: Connection, ids: tuple[str, ...], target: str | None, every: float
) -> None:
    """Wait for jobs and show how they stand. Exit 0 when all of them were completed, 1 when one
    failed, expired or was cancelled."""
    if bool(ids) == (target is not None):
        raise click.UsageError("say either ids of jobs, or --target NAME")
    if target is not None:
        call(connection, "GET", f"/v1/targets/{quote(target, safe='')}")  # there is one
        ids = tuple(under_way(connection, target))
        if not ids:
            click.echo(f"{target}: all jobs have ended")
    sys.exit(0 if watch(connection, dict.fromkeys(ids), every_s=every, target=target) else 1)
