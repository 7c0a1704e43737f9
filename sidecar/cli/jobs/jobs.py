"""waitroom jobs: submit jobs, look them up, wait for them, cancel them, retry them."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click

from sidecar.cli.connection import ReplicaGroup, pass_client, read_pages
from sidecar.cli.jobs.progress import standing, under_way, watch
from sidecar.cli.printing import JSON, print_json, printed, table
from sidecar.jobs.model import ENDED, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from waitroom import Client, Job

F = TypeVar("F", bound="Callable[..., Any]")
#: Ids in one request.
AT_ONCE = 100

EVERY = click.option(
    "--every", type=click.FloatRange(0.2, 60), default=1, help="How often to look, seconds (1)."
)
STYLES = {"completed": "green", "failed": "red", "expired": "red", "cancelled": "yellow"}


@click.group(cls=ReplicaGroup)
def jobs() -> None:
    """Submit jobs, look them up and wait for them, through a replica's ops listener."""


def _headers(
    _: click.Context, __: click.Parameter, lines: tuple[str, ...]
) -> dict[str, str] | None:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f"{line}: write NAME: VALUE, such as Content-Type: text/plain")
        headers[name.strip()] = value.strip()
    return headers or None


@jobs.command()
@click.argument("target")
@click.option("--method", "-X", metavar="WORD", help="GET, or POST where there is a body.")
@click.option("--path", metavar="PATH", help="Below the target's url.")
@click.option("--query", metavar="TEXT", help="What follows the ?, as it is sent.")
@click.option("--header", "-H", "headers", multiple=True, callback=_headers, metavar="NAME: VALUE")
@click.option("--body", "-d", metavar="TEXT", help="The request's body; -: standard input.")
@click.option("--body-file", type=click.File("rb"), metavar="FILE", help="The same, from a file.")
@click.option("--kind", type=click.Choice(["offline", "online"]), help="Whether a worker calls.")
@click.option("--class", "class_name", metavar="NAME", help="The class that the grant gives.")
@click.option("--grant", metavar="TEXT", help="Gives a class; waitroom grant makes one.")
@click.option("--key", "idempotency_key", metavar="TEXT", help="The same key is the same job.")
@click.option("--callback", "callback_url", metavar="URL", help="Gets a POST when it has ended.")
@click.option("--wait", "is_waiting", is_flag=True, help="Until it has ended, or is called.")
@EVERY
@JSON
@pass_client
def submit(client: Client, /, target: str, is_waiting: bool, every: float, **request: Any) -> None:
    """Submit a job. Prints its id, and its state to standard error. With --wait exit 1 unless it
    was completed, or an online one was called."""
    if (as_json := request.pop("as_json")) and is_waiting:
        raise click.UsageError("say either --json or --wait; waitroom jobs watch waits")
    request["body"] = _body(request["body"], request.pop("body_file"))
    job = client.jobs.submit(target, **request)
    if as_json:
        print_json(job)
        return
    click.echo(job["id"])
    if is_waiting:
        is_good = watch(client, [job["id"]], every_s=every, until_called=True)
        sys.exit(0 if is_good else 1)
    click.echo(standing(job), err=True)


def _body(text: str | None, file: IO[bytes] | None) -> str | bytes | None:
    """Bytes where it is no text."""
    if text is not None and file is not None:
        raise click.UsageError("say either --body or --body-file")
    if text == "-":
        file = sys.stdin.buffer
    if file is None:
        return text
    data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


@jobs.command()
@click.argument("id_", metavar="ID")
@click.option("--body", "is_body", is_flag=True, help="The result's body alone, as it came.")
@JSON
@pass_client
def show(client: Client, id_: str, *, is_body: bool, as_json: bool) -> None:
    """A job and its result, as JSON."""
    if as_json and is_body:
        raise click.UsageError("say either --json or --body")
    if not is_body:
        print_json(client.jobs.get(id_))
        return
    for part in client.jobs.body(id_):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _filters(*, ended: bool | None = None) -> Callable[[F], F]:
    """The options that say which jobs. `ended`: only those that have ended, or have not."""
    states = [s.value for s in State if ended is None or (s in ENDED) is ended]
    options = (
        click.option("--target", metavar="NAME", help="Of one target."),
        click.option("--state", type=click.Choice(states), help="In one state."),
        click.option("--status", metavar="HTTP", help="Whose last answer was 503, or any 5xx."),
        click.option("--id", "prefix", metavar="TEXT", help="Whose id begins so."),
        click.option("--owner", metavar="TOKEN", help="That this token submitted."),
        click.option("--from", "from", metavar="TIME", help="Since then: 24h, 2026-11-27T18:00Z."),
        click.option("--to", metavar="TIME", help="Before then."),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _given(filters: dict[str, str | None]) -> dict[str, str]:
    filters["id"] = filters.pop("prefix", None)
    return {name: value for name, value in filters.items() if value}


def _cancelled(job: dict[str, Any]) -> None:
    said = ": its call is being cut off" if job.get("aborting") else f" is {job['state']}"
    click.echo(f"{job['id']}{said}")


def _report(job: Job) -> None:
    click.echo(f"{job['id']} is {standing(job)}")


def _many(*, ended: bool) -> Callable[[F], Any]:
    """Of a command that changes one job, or many."""
    options = (
        click.argument("ids", nargs=-1, metavar="[ID]…"),
        _filters(ended=ended),
        click.option("--dry-run", is_flag=True, help="Only say how many it is."),
        click.option("--yes", is_flag=True, help="Do not ask before many are changed."),
        JSON,
        pass_client,
    )

    def decorate(command: F) -> Any:
        for option in reversed(options):
            command = option(command)
        return jobs.command()(command)

    return decorate


@_many(ended=False)
def cancel(client: Client, /, ids: tuple[str, ...], **options: Any) -> None:
    """Cancel jobs that wait, or cut off their calls where the target allows it: those named, or all
    that the options describe."""
    if _is_one(ids, options):
        job: Any = client.jobs.cancel(ids[0])
        (print_json if options["as_json"] else _cancelled)(job)
        return
    _change(client, "cancel", ids, options)


@_many(ended=True)
def retry(client: Client, /, ids: tuple[str, ...], **options: Any) -> None:
    """Retry jobs that have ended in any state: those named, or all that the options describe;
    without --state only those that failed or expired. They wait at the end of the queue, and their
    results are forgotten."""
    if _is_one(ids, options):
        job = client.jobs.retry(ids[0])
        (print_json if options["as_json"] else _report)(job)
        return
    _change(client, "retry", ids, options)


def _is_one(ids: tuple[str, ...], options: dict[str, Any]) -> bool:
    return len(ids) == 1 and not any(options[name] for name in options if name != "as_json")


def _change(client: Client, what: str, ids: tuple[str, ...], options: dict[str, Any]) -> None:
    dry_run, yes, as_json = (options.pop(name) for name in ("dry_run", "yes", "as_json"))
    given = _given(options)
    if bool(ids) == bool(given):
        raise click.UsageError("say either ids of jobs, or which jobs by --state, --target, …")
    if given and (dry_run or not yes):
        found = _all(client, what, [{**given, "dry_run": True}])
        if dry_run:
            print_json(found) if as_json else click.echo(f"{_jobs(found['changed'])} match")
            return
        if found["changed"]:
            click.confirm(f"{what.capitalize()} {_jobs(found['changed'])}?", abort=True, err=True)
    elif dry_run:
        raise click.UsageError("--dry-run counts jobs that options describe; these are named")
    bodies: list[dict[str, Any]] = [given]
    if ids:
        bodies = [{"ids": ids[n : n + AT_ONCE]} for n in range(0, len(ids), AT_ONCE)]
    done = _all(client, what, bodies)
    if as_json:
        print_json(done)
        return
    for each in done["skipped"]:
        click.echo(f"{each['id']}: {each['reason']}", err=True)
    word = {"retry": "wait again", "cancel": "are cancelled"}[what]
    click.echo(f"{_jobs(done['changed'])} {word}, {len(done['skipped'])} skipped")


def _all(client: Client, what: str, bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """The answers to all of it, put together."""
    changed, skipped = 0, list[Any]()
    for body in bodies:
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = client.request("POST", f"/v1/jobs/bulk/{what}", {**body, "after": page["next"]})
            changed += page["changed"]
            skipped += page["skipped"]
    return {"changed": changed, "skipped": skipped}


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


@jobs.command()
@click.argument("id_", metavar="ID")
@printed(_report)
@pass_client
def done(client: Client, id_: str) -> Any:
    """Report that an online job's call is over, so that the next one is called."""
    return client.jobs.done(id_)


def _row(job: Job) -> tuple[object, ...]:
    state, _, about = standing(job).partition(", ")
    created = job["created_at"][:19]
    return job["id"], job["target"], job["owner"], created, job["status"], state, about


def _table(found: dict[str, Any]) -> None:
    headings = "id", "target", "owner", "created", "http", "state", "about"
    table(headings, map(_row, found["jobs"]), styles=STYLES)


@jobs.command("list")
@_filters()
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@printed(_table)
@pass_client
def list_jobs(client: Client, /, limit: int, **filters: str | None) -> Any:
    """List jobs, newest first. A service token sees its own; the admin token sees all."""
    return read_pages(client, "/v1/jobs", "jobs", limit=limit, **_given(filters))


@jobs.command("watch")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--target", metavar="NAME", help="All of its jobs that have not ended now.")
@EVERY
@pass_client
def watch_jobs(client: Client, ids: tuple[str, ...], target: str | None, every: float) -> None:
    """Wait for jobs and show their states. Exit 0 when all of them were completed, 1 when one
    failed, expired or was cancelled."""
    if bool(ids) == (target is not None):
        raise click.UsageError("say either ids of jobs, or --target NAME")
    if target is not None:
        client.request("GET", f"/v1/targets/{quote(target, safe='')}")  # an unknown one is an error
        ids = tuple(under_way(client, target))
        if not ids:
            click.echo(f"{target}: all jobs have ended")
    sys.exit(0 if watch(client, dict.fromkeys(ids), every_s=every, target=target) else 1)
