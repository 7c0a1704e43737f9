"""waitroom jobs: submit jobs, look them up, wait for them, cancel them, retry them."""

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import IO, Any, TypeVar

import click

from sidecar.cli.output import JSON, print_json, table
from sidecar.cli.replica_client import (
    Client,
    Job,
    ReplicaGroup,
    api_path,
    explain,
    pass_client,
    read_pages,
    reply_shown_by,
)
from sidecar.jobs.model import ENDED, State

F = TypeVar("F", bound="Callable[..., Any]")
#: Ids in one request.
AT_ONCE = 100
#: More jobs than these are counted, not shown one by one.
MOST_LINES = 8

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
        sys.exit(0 if wait_for(client, [job["id"]], every_s=every, until_called=True) else 1)
    click.echo(in_words(job), err=True)


def _body(text: str | None, file: IO[bytes] | None) -> str | bytes | None:
    """Return the request's body; bytes if it is no text."""
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


def _filters(*, ended: bool | None = None) -> Callable[[F], Any]:
    """Add the options that choose jobs. `ended`: offer only the states of jobs that have ended, or
    only the others."""
    states = [s.value for s in State if ended is None or (s in ENDED) is ended]
    return _all_of(
        click.option("--target", metavar="NAME", help="Of one target."),
        click.option("--state", type=click.Choice(states), help="In one state."),
        click.option("--status", metavar="HTTP", help="Whose last answer was 503, or any 5xx."),
        click.option("--id", "prefix", metavar="TEXT", help="Whose id begins so."),
        click.option("--owner", metavar="TOKEN", help="That this token submitted."),
        click.option("--from", "from", metavar="TIME", help="Since then: 24h, 2026-11-27T18:00Z."),
        click.option("--to", metavar="TIME", help="Before then."),
    )


def _all_of(*decorators: Callable[[Any], Any]) -> Callable[[F], Any]:
    """Return one decorator for several, the first one outermost."""
    return lambda command: functools.reduce(
        lambda inner, decorator: decorator(inner), reversed(decorators), command
    )


def _query(filters: dict[str, str | None]) -> dict[str, str]:
    """Return the filters that were given, as the API names them."""
    filters["id"] = filters.pop("prefix", None)
    return {name: value for name, value in filters.items() if value}


def _show_cancelled(job: dict[str, Any]) -> None:
    state = ": its call is being cut off" if job.get("aborting") else f" is {job['state']}"
    click.echo(f"{job['id']}{state}")


def _show_state(job: Job) -> None:
    click.echo(f"{job['id']} is {in_words(job)}")


def _many(*, ended: bool) -> Callable[[F], Any]:
    """Create a command that changes one job, or many."""
    return _all_of(
        jobs.command(),
        click.argument("ids", nargs=-1, metavar="[ID]…"),
        _filters(ended=ended),
        click.option("--dry-run", is_flag=True, help="Only say how many it is."),
        click.option("--yes", is_flag=True, help="Do not ask before many are changed."),
        JSON,
        pass_client,
    )


@_many(ended=False)
def cancel(client: Client, /, ids: tuple[str, ...], **options: Any) -> None:
    """Cancel jobs that wait, or cut off their calls where the target allows it: those named, or all
    that the options describe."""
    if _is_one(ids, options):
        job: Any = client.jobs.cancel(ids[0])
        (print_json if options["as_json"] else _show_cancelled)(job)
        return
    _change(client, "cancel", ids, options)


@_many(ended=True)
def retry(client: Client, /, ids: tuple[str, ...], **options: Any) -> None:
    """Retry jobs that have ended in any state: those named, or all that the options describe;
    without --state only those that failed or expired. They wait at the end of the queue, and their
    results are forgotten."""
    if _is_one(ids, options):
        job = client.jobs.retry(ids[0])
        (print_json if options["as_json"] else _show_state)(job)
        return
    _change(client, "retry", ids, options)


def _is_one(ids: tuple[str, ...], options: dict[str, Any]) -> bool:
    return len(ids) == 1 and not any(options[name] for name in options if name != "as_json")


def _change(client: Client, what: str, ids: tuple[str, ...], options: dict[str, Any]) -> None:
    dry_run, yes, as_json = (options.pop(name) for name in ("dry_run", "yes", "as_json"))
    query = _query(options)
    if bool(ids) == bool(query):
        raise click.UsageError("say either ids of jobs, or which jobs by --state, --target, …")
    if query and (dry_run or not yes):
        matching = _change_all(client, what, [{**query, "dry_run": True}])
        count = _jobs(matching["changed"])
        if dry_run:
            print_json(matching) if as_json else click.echo(f"{count} match")
            return
        if matching["changed"]:
            click.confirm(f"{what.capitalize()} {count}?", abort=True, err=True)
    elif dry_run:
        raise click.UsageError("--dry-run counts jobs that options describe; these are named")
    bodies = [{"ids": ids[n : n + AT_ONCE]} for n in range(0, len(ids), AT_ONCE)]
    done = _change_all(client, what, bodies or [query])
    if as_json:
        print_json(done)
        return
    for each in done["skipped"]:
        click.echo(f"{each['id']}: {each['reason']}", err=True)
    word = {"retry": "wait again", "cancel": "are cancelled"}[what]
    click.echo(f"{_jobs(done['changed'])} {word}, {len(done['skipped'])} skipped")


def _change_all(client: Client, what: str, bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Send bulk requests, page by page, and return their responses put together."""
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
@reply_shown_by(_show_state)
def done(client: Client, id_: str) -> Any:
    """Report that an online job's call is over, so that the next one is called."""
    return client.jobs.done(id_)


def _table(document: dict[str, Any]) -> None:
    rows = []
    for job in document["jobs"]:
        state, _, about = in_words(job).partition(", ")
        created = job["created_at"][:19]
        row = job["id"], job["target"], job["owner"], created, job["status"], state, about
        rows.append(row)
    headings = "id", "target", "owner", "created", "http", "state", "about"
    table(headings, rows, styles=STYLES)


@jobs.command("list")
@_filters()
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@reply_shown_by(_table)
def list_jobs(client: Client, /, limit: int, **filters: str | None) -> Any:
    """List jobs, newest first. A service token sees its own; the admin token sees all."""
    return read_pages(client, "/v1/jobs", "jobs", limit=limit, **_query(filters))


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
        client.request("GET", api_path("/v1/targets", target))  # an unknown one is an error
        ids = tuple(_not_ended(client, target))
        if not ids:
            click.echo(f"{target}: all jobs have ended")
    sys.exit(0 if wait_for(client, dict.fromkeys(ids), every_s=every, target=target) else 1)


# Waiting for jobs --------------------------------------------------------------------------------


def in_words(job: Job) -> str:
    """Return a job's state, and what there is to know about it, in a few words."""
    state, words = job["state"], [job["state"]]
    if state == State.PENDING:
        if job["position"] is not None:
            words.append(f"position {job['position']:,}")
        if job["retry_at"]:
            words.append(f"tries again at {job['retry_at']}")
        elif job["wait_seconds"] is not None:
            words.append(f"about {_seconds(job['wait_seconds'])}")
    elif state == State.CALLED:
        words.append(f"the permit {job['permit']} is good until {job['permit_expires_at']}")
    elif state == State.PROCESSING and job["attempts"] > 1:
        words.append(f"attempt {job['attempts']}")
    elif result := job["result"]:
        words.append(f"{result['status']}, {result['size']:,} bytes")
    elif job["status"] and state == State.COMPLETED:
        words.append(str(job["status"]))
    if state in ENDED | {State.PENDING} and job["error"]:
        words.append(job["error"])
    return ", ".join(words)


def _seconds(wait_s: float) -> str:
    return f"{wait_s:.0f} s" if wait_s < 120 else f"{wait_s / 60:.0f} min"


def wait_for(
    client: Client,
    ids: Iterable[str],
    *,
    every_s: float,
    target: str | None = None,
    until_called: bool = False,
) -> bool:
    """Show jobs until all have ended; return whether all were completed.

    On a terminal below the lines there is a bar; elsewhere each change is a line. `target`: the
    target of all the jobs, which makes looking at many cheaper. `until_called`: do not wait for the
    end of an online job that is called.
    """
    from rich import progress as rich  # noqa: PLC0415 - the other commands start faster
    from rich.console import Console  # noqa: PLC0415

    is_terminal, left = sys.stdout.isatty(), list(ids)
    is_many = len(left) > MOST_LINES
    over = ENDED | {State.CALLED} if until_called else ENDED
    jobs: dict[str, Job] = {}
    first_positions: dict[str, int] = {}
    shown: dict[str, object] = {}
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def show(about: str, text: str, facts: object) -> None:
        """Print a line if the facts about a job, or about all, are not those shown last."""
        if shown.get(about) != facts:
            shown[about] = facts
            clock = "" if is_terminal else f"{datetime.now():%H:%M:%S} "  # noqa: DTZ005 - local
            console.print(f"{clock}{about}{' ' if about else ''}{text}")

    columns = rich.BarColumn(20), rich.TextColumn("{task.description}", markup=False)
    with rich.Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not is_terminal
    ) as bar:
        task = bar.add_task("", total=1, visible=False)
        while left:
            for id_, job in _look(client, left, target, is_first=not jobs).items():
                jobs[id_] = job
                first_positions.setdefault(id_, job["position"] or 1)
                is_over = job["state"] in over
                is_good = job["state"] == State.COMPLETED
                if (is_over and not is_good) if is_many else (is_over or not is_terminal):
                    facts = job["state"], job["position"], job["attempts"], job["error"]
                    show(id_, in_words(job), facts)
            left = [id_ for id_ in left if id_ not in jobs or jobs[id_]["state"] not in over]
            if is_terminal and left:
                share = _share(jobs, first_positions)
                bar.update(task, description=_summary(jobs), completed=share, visible=True)
                bar.refresh()
            elif is_many:
                show("", _summary(jobs), Counter(job["state"] for job in jobs.values()))
            if left:
                time.sleep(every_s)
    return all(job["state"] not in ENDED - {State.COMPLETED} for job in jobs.values())


def _look(client: Client, ids: list[str], target: str | None, *, is_first: bool) -> dict[str, Job]:
    """Return the jobs with these ids; none while no replica answers, unless `is_first`."""
    from waitroom import RejectedError, WaitroomError  # noqa: PLC0415 - other commands start faster

    try:
        of_target = _not_ended(client, target) if target else {}
        return {id_: of_target.get(id_) or client.jobs.get(id_) for id_ in ids}
    except WaitroomError as error:
        if is_first or (isinstance(error, RejectedError) and error.status < 500):
            raise
        click.echo(explain(error), err=True)
        return {}


def _not_ended(client: Client, target: str) -> dict[str, Job]:
    """Return all jobs of a target that have not ended, by id."""
    return {
        job["id"]: job
        for state in State
        if state not in ENDED
        for job in client.jobs.iterate(target=target, state=state)
    }


def _summary(jobs: dict[str, Job]) -> str:
    if len(jobs) == 1:
        [job] = jobs.values()
        return f"{job['target']}: {in_words(job)}"
    counts = Counter(job["state"] for job in jobs.values())
    text = ", ".join(f"{counts[state]:,} {state}" for state in State if counts[state])
    waits = [job["wait_seconds"] for job in jobs.values() if job["wait_seconds"] is not None]
    return f"{text}; the last is called in about {_seconds(max(waits))}" if waits else text


def _share(jobs: dict[str, Job], first_positions: dict[str, int]) -> float:
    """Return how far jobs have come, 0 to 1; the queue is half of the way."""
    shares = []
    for id_, job in jobs.items():
        share = 1.0 if job["state"] in ENDED else 0.5
        if job["state"] == State.PENDING:
            first = first_positions[id_]
            share = 0.5 * max(0, 1 - (job["position"] or first) / max(2, first))
        shares.append(share)
    return sum(shares) / max(1, len(shares))
