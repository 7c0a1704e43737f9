"""The commands `waitroom jobs …`, which submit, show, watch, cancel and retry jobs."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import IO, Any, NoReturn

import click

from sidecar.cli.output import JSON, BadValue, combine, print_json, print_table
from sidecar.cli.parsing import read_duration, read_object, read_pairs
from sidecar.cli.replica_api import Client, Job, build_api_path, format_error, read_pages
from sidecar.cli.replica_client import ReplicaGroup, pass_client
from sidecar.jobs.model import ENDED_STATES, State

#: The maximum number of ids or jobs in one bulk request.
MAX_BULK_IDS = 100
#: The maximum number of jobs shown one by one. For more jobs, only counts are shown.
MAX_JOB_LINES = 8

EVERY = click.option(
    "--every",
    type=click.FloatRange(0.2, 60),
    default=1,
    help="Seconds between checks (default: 1).",
)
#: The state that a table shows for a job that was completed by a response other than 2xx.
OTHER_RESPONSE = "completed, no 2xx"
STYLES = {
    "completed": "green",
    **dict.fromkeys((OTHER_RESPONSE, "cancelled"), "yellow"),
    **dict.fromkeys(("failed", "expired"), "red"),
}


@click.group(cls=ReplicaGroup)
def jobs() -> None:
    """Submit jobs, look them up and wait for them."""


@jobs.command()
@click.argument("target", required=False)
@click.option(
    "--method", "-X", metavar="WORD", help="The HTTP method (default: POST with a body, else GET)."
)
@click.option("--path", metavar="PATH", help="The path, relative to the target's url.")
@click.option("--query", metavar="TEXT", help="The query string, sent unchanged.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME: VALUE")
@click.option("--body", "-d", metavar="TEXT", help="The request's body; - means standard input.")
@click.option(
    "--body-file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read the request's body from a file.",
)
@click.option(
    "--kind",
    type=click.Choice(["offline", "online"]),
    help="offline: a worker makes the call; online: you make it.",
)
@click.option(
    "--class",
    "class_name",
    metavar="NAME",
    help="The job's class: that of --grant, or any class if the token has the scope classes.",
)
@click.option("--grant", metavar="TEXT", help="A grant for the class, printed by waitroom grant.")
@click.option(
    "--key",
    "idempotency_key",
    metavar="TEXT",
    help="An idempotency key: using it again does not create a second job.",
)
@click.option(
    "--callback",
    "callback_url",
    metavar="URL",
    help="Send a POST to this URL when the job ends.",
)
@click.option(
    "--run-at", metavar="TIME", help="Delay the call until TIME, such as 2026-12-01T10:00+01:00."
)
@click.option(
    "--delay",
    callback=read_duration,
    metavar="TIME",
    help="Delay the call by TIME, such as 90s, 10m or 2h.",
)
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until the job ends or is called.")
@EVERY
@click.option(
    "--file",
    type=click.File("rb"),
    metavar="FILE",
    help="Submit the jobs in a file, one JSON object per line; - reads standard input.",
)
@JSON
@pass_client
def submit(
    client: Client,
    /,
    target: str | None,
    is_waiting: bool,
    every: float,
    file: IO[bytes] | None,
    **request: Any,
) -> None:
    """Submit a job. The job's id goes to standard output, and its state to standard error. With
    --wait, the result's body or an online job's permit goes to standard output, and the rest to
    standard error; the exit code is 1 unless the job was completed or, if it is online, called.

    With --file, submit the jobs in a file, and print their ids. Each line is a JSON object, as in
    the API. Lines without a target use TARGET. Exit 1 if a job was refused. Give each job an
    idempotency_key, so that you can safely repeat the command."""
    if file is not None:
        if is_waiting or any(value for name, value in request.items() if name != "as_json"):
            raise click.UsageError("--file has the jobs: say only TARGET and --json beside it")
        _submit_lines(client, file, target, as_json=request["as_json"])
    if target is None:
        raise click.UsageError("say TARGET, or --file FILE")
    if (as_json := request.pop("as_json")) and is_waiting:
        raise click.UsageError("say either --json or --wait; waitroom jobs watch waits")
    headers = read_pairs(request["headers"], "NAME: VALUE, such as Content-Type: text/plain", ":")
    request["headers"] = {name: value.strip() for name, value in headers.items()} or None
    request["body"] = _read_body(request["body"], request.pop("body_file"))
    job = client.jobs.submit(target, **request)
    if as_json:
        print_json(job)
        return
    click.echo(job["id"], err=is_waiting)
    if not is_waiting:
        click.echo(format_job(job), err=True)
        return
    has_succeeded = wait_for_jobs(client, [job["id"]], every_s=every, until_called=True)
    _print_result(client, client.jobs.get(job["id"]))
    sys.exit(0 if has_succeeded else 1)


def _submit_lines(
    client: Client, file: IO[bytes], target: str | None, *, as_json: bool
) -> NoReturn:
    """Submit the jobs in a file, print their ids as soon as they are submitted, and exit."""
    from waitroom import WaitroomError  # noqa: PLC0415 - other commands start faster

    lines = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    ids, refused = list[str | None](), list[dict[str, Any]]()
    while part := list(islice(lines, MAX_BULK_IDS)):
        numbers = [number for number, _ in part]
        try:
            reply = client.jobs.submit_many(_parse_job(*line, target) for line in part)
        except WaitroomError:
            click.echo(f"of the jobs in lines {numbers[0]} to {numbers[-1]}:", err=True)
            raise
        ids += reply["ids"]
        for job in reply["refused"]:
            refused.append({"line": numbers[job["index"]], **job})
            reason = f"{job['code']}: {job['reason']}"
            click.echo(f"line {numbers[job['index']]}: {reason}", err=True)
        if not as_json:
            click.echo("".join(f"{id_}\n" for id_ in reply["ids"] if id_ is not None), nl=False)
    if as_json:
        print_json({"ids": ids, "refused": refused})
    sys.exit(1 if refused else 0)


def _parse_job(number: int, line: bytes, target: str | None) -> Any:
    """Parse a line of a file of jobs. Raises BadValue."""
    if (job := read_object(line)) is None:
        raise BadValue(f"line {number}: write a JSON object")
    if not (named := job.get("target") or target):
        raise BadValue(f"line {number}: needs a target, or give TARGET")
    return {**job, "target": named}


def _print_result(client: Client, job: Job) -> None:
    """Print the unchanged body of a job's result, or the permit of a called job. At a terminal,
    print only text."""
    if job["state"] == State.CALLED:
        click.echo(job["permit"])
    elif result := job["result"]:
        if not sys.stdout.isatty():
            _print_body(client, job["id"])
        elif (text := result.get("body")) is not None:
            click.echo(text)
        elif result["size"]:
            hint = f"waitroom jobs show {job['id']} --body > FILE"
            click.echo(f"its body is long or no text: {hint}", err=True)


def _print_body(client: Client, id_: str) -> None:
    for part in client.jobs.body(id_):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _read_body(text: str | None, file: IO[bytes] | None) -> str | bytes | None:
    """Return the body of the request, or None. It is bytes if the file is not UTF-8."""
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
@click.option("--body", "is_body", is_flag=True, help="Print only the raw body of the result.")
@JSON
@pass_client
def show(client: Client, id_: str, *, is_body: bool, as_json: bool) -> None:
    """Show a job and its result, as JSON."""
    if as_json and is_body:
        raise click.UsageError("say either --json or --body")
    if is_body:
        _print_body(client, id_)
    else:
        print_json(client.jobs.get(id_))


def _filter_options(*, ended: bool | None = None) -> Callable[[Any], Any]:
    """Return a decorator that adds the options that filter jobs. --state allows only final states
    if `ended` is True, only other states if it is False, and all states if it is None."""
    states = [s.value for s in State if ended is None or (s in ENDED_STATES) is ended]
    return combine(
        click.option("--target", metavar="NAME", help="Select only jobs of this target."),
        click.option("--state", type=click.Choice(states), help="Select only jobs in this state."),
        click.option(
            "--status",
            metavar="HTTP",
            help="Select only jobs whose last response had this HTTP status, such as 503 or 5xx.",
        ),
        click.option("--id", metavar="TEXT", help="Select only jobs whose id begins with TEXT."),
        click.option("--owner", metavar="TOKEN", help="Select only jobs submitted by this token."),
        click.option(
            "--from",
            "from",
            metavar="TIME",
            help="Select only jobs submitted since TIME, such as 2026-11-27T18:00Z or 24h "
            "(a day ago).",
        ),
        click.option("--to", metavar="TIME", help="Select only jobs submitted before TIME."),
    )


def _build_query(filters: dict[str, str | None]) -> dict[str, str]:
    """Convert the options that filter jobs to a query of the API."""
    return {name: value for name, value in filters.items() if value}


def _print_cancellation(job: dict[str, Any]) -> None:
    state = ": its call is being cut off" if job.get("aborting") else f" is {job['state']}"
    click.echo(f"{job['id']}{state}")


def _print_state(job: Job) -> None:
    click.echo(f"{job['id']} is {format_job(job)}")


def _bulk_command(*, ended: bool) -> Callable[[Any], Any]:
    """Return a decorator for a command that changes jobs, chosen by ids or by filter options. If
    `ended` is True, the jobs are in a final state; otherwise they are not."""
    return combine(
        jobs.command(),
        click.argument("ids", nargs=-1, metavar="[ID]…"),
        _filter_options(ended=ended),
        click.option("--dry-run", is_flag=True, help="Only print how many jobs match."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        JSON,
        pass_client,
    )


@_bulk_command(ended=False)
def cancel(client: Client, /, ids: tuple[str, ...], **options: Any) -> None:
    """Cancel waiting jobs, and abort calls in progress if the target allows it. Select jobs by
    their ids or by options."""
    _change_jobs(client, client.jobs.cancel, _print_cancellation, ids, options)


@_bulk_command(ended=True)
def retry(client: Client, /, ids: tuple[str, ...], **options: Any) -> None:
    """Retry jobs that have ended. Select jobs by their ids or by options. Without --state, options
    select only failed and expired jobs; jobs that you name by id may be in any final state. The
    jobs join the end of the queue, and their results are deleted."""
    _change_jobs(client, client.jobs.retry, _print_state, ids, options)


def _change_jobs(
    client: Client,
    change_job: Callable[[str], Any],
    show: Callable[[Any], None],
    ids: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    """Change one job with `change_job`, or several jobs with bulk requests. Print the result."""
    verb = str(click.get_current_context().info_name)
    if len(ids) == 1 and not any(options[name] for name in options if name != "as_json"):
        (print_json if options["as_json"] else show)(change_job(ids[0]))
        return
    dry_run, yes, as_json = (options.pop(name) for name in ("dry_run", "yes", "as_json"))
    query = _build_query(options)
    if bool(ids) == bool(query):
        raise click.UsageError("say either ids of jobs, or which jobs by --state, --target, …")
    if query and (dry_run or not yes):
        matching = _send_bulk(client, verb, [{**query, "dry_run": True}])
        count = _format_count(matching["changed"])
        if dry_run:
            print_json(matching) if as_json else click.echo(f"{count} match")
            return
        if matching["changed"]:
            click.confirm(f"{verb.capitalize()} {count}?", abort=True, err=True)
    elif dry_run:
        raise click.UsageError("--dry-run counts jobs that options describe; these are named")
    bodies = [{"ids": ids[n : n + MAX_BULK_IDS]} for n in range(0, len(ids), MAX_BULK_IDS)]
    result = _send_bulk(client, verb, bodies or [query])
    if as_json:
        print_json(result)
        return
    for job in result["skipped"]:
        click.echo(f"{job['id']}: {job['reason']}", err=True)
    outcome = {"retry": "wait again", "cancel": "are cancelled"}[verb]
    click.echo(f"{_format_count(result['changed'])} {outcome}, {len(result['skipped'])} skipped")


def _send_bulk(client: Client, verb: str, bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Repeat each bulk request until all its jobs are changed. Return the sum of the responses."""
    changed, skipped = 0, list[Any]()
    for body in bodies:
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = client.request("POST", f"/v1/jobs/bulk/{verb}", {**body, "after": page["next"]})
            changed += page["changed"]
            skipped += page["skipped"]
    return {"changed": changed, "skipped": skipped}


def _format_count(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


@jobs.reply_command(_print_state)
@click.argument("id_", metavar="ID")
def done(client: Client, id_: str) -> Any:
    """Report that the call of an online job has ended, so that the next job can be called."""
    return client.jobs.done(id_)


def _print_jobs(document: dict[str, Any]) -> None:
    rows = []
    for job in document["jobs"]:
        state, _, details = format_job(job).partition(", ")
        if state == State.COMPLETED and job["status"] and job["status"] // 100 != 2:
            state = OTHER_RESPONSE
        row = *(job[name] for name in ("id", "target", "owner")), job["created_at"][:19]
        rows.append((*row, job["status"], state, details))
    headings = "id", "target", "owner", "created", "http", "state", "about"
    print_table(headings, rows, styles=STYLES)


@jobs.reply_command(_print_jobs, name="list")
@_filter_options()
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
def list_jobs(client: Client, /, limit: int, **filters: str | None) -> Any:
    """List jobs, newest first. A service token sees only its own jobs."""
    return read_pages(client, "/v1/jobs", "jobs", limit=limit, **_build_query(filters))


def _print_reasons(document: dict[str, Any]) -> None:
    columns = "jobs", "status", "last_at", "error"
    print_table(columns, ([row[name] for name in columns] for row in document["reasons"]))


@jobs.reply_command(_print_reasons)
@_filter_options()
def reasons(client: Client, /, **filters: str | None) -> Any:
    """Group failed jobs (the newest 1,000 that match) by reason, most frequent first."""
    return client.request("GET", "/v1/jobs/bulk/reasons", query=_build_query(filters))


@jobs.command("watch")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--target", metavar="NAME", help="Wait for all unfinished jobs of this target.")
@EVERY
@pass_client
def watch_jobs(client: Client, ids: tuple[str, ...], target: str | None, every: float) -> None:
    """Wait until jobs end, and show their states. Exit 0 if all jobs were completed, or 1 if one
    failed, expired or was cancelled."""
    if bool(ids) == (target is not None):
        raise click.UsageError("say either ids of jobs, or --target NAME")
    if target is not None:
        # This request fails if the target is unknown.
        client.request("GET", build_api_path("/v1/targets", target))
        ids = tuple(_read_unfinished(client, target))
        if not ids:
            click.echo(f"{target}: all jobs have ended")
    has_succeeded = wait_for_jobs(client, dict.fromkeys(ids), every_s=every, target=target)
    sys.exit(0 if has_succeeded else 1)


# Waiting for jobs --------------------------------------------------------------------------------


def format_job(job: Job) -> str:
    """Format a job's state with details, such as its position or its HTTP status."""
    state, parts = job["state"], [job["state"]]
    if state == State.PENDING:
        parts += _describe_wait(job)
    elif state == State.CALLED:
        parts.append(f"the permit {job['permit']} is good until {job['permit_expires_at']}")
    elif state == State.PROCESSING and job["attempts"] > 1:
        parts.append(f"attempt {job['attempts']}")
    elif result := job["result"]:
        parts.append(f"{result['status']}, {result['size']:,} bytes")
    elif job["status"] and state == State.COMPLETED:
        parts.append(str(job["status"]))
    if state in ENDED_STATES | {State.PENDING} and job["error"]:
        parts.append(job["error"])
    return ", ".join(parts)


def _describe_wait(job: Job) -> Iterator[str]:
    if job["position"] is not None:
        yield f"position {job['position']:,}"
    if job["run_at"]:
        yield f"runs at {job['run_at']}"
    elif job["retry_at"]:
        yield f"tries again at {job['retry_at']}"
    elif job["wait_seconds"] is not None:
        yield f"about {_format_duration(job['wait_seconds'])}"


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def wait_for_jobs(
    client: Client,
    ids: Iterable[str],
    *,
    every_s: float,
    target: str | None = None,
    until_called: bool = False,
) -> bool:
    """Show jobs until all have ended. Return False if any failed, expired or was cancelled.

    Print a line for each change. At a terminal, print a line only when a job ends, above a progress
    bar. For more than MAX_JOB_LINES jobs, print only failures and counts. If all jobs have the same
    `target`, many jobs are polled with few requests. With `until_called`, wait for an online job
    only until it is called, and print to standard error, because the result is printed afterwards.
    """
    from rich import progress as rich  # noqa: PLC0415 - the other commands start faster
    from rich.console import Console  # noqa: PLC0415

    is_terminal, remaining = (sys.stderr if until_called else sys.stdout).isatty(), list(ids)
    is_many = len(remaining) > MAX_JOB_LINES
    final_states = ENDED_STATES | {State.CALLED} if until_called else ENDED_STATES
    jobs: dict[str, Job] = {}
    first_positions: dict[str, int] = {}
    last_shown: dict[str, object] = {}
    console = Console(
        highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=until_called
    )

    def show(id_: str, text: str, key: object) -> None:
        """Print a line about a job, or about all jobs (""), if `key` differs from the last line."""
        if last_shown.get(id_) != key:
            last_shown[id_] = key
            clock = "" if is_terminal else f"{datetime.now():%H:%M:%S} "  # noqa: DTZ005 - local
            console.print(f"{clock}{id_}{' ' if id_ else ''}{text}")

    columns = rich.BarColumn(20), rich.TextColumn("{task.description}", markup=False)
    with rich.Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not is_terminal
    ) as bar:
        task = bar.add_task("", total=1, visible=False)
        while remaining:
            for id_, job in _poll_jobs(client, remaining, target, is_first=not jobs).items():
                jobs[id_] = job
                first_positions.setdefault(id_, job["position"] or 1)
                is_final = job["state"] in final_states
                is_completed = job["state"] == State.COMPLETED
                if (is_final and not is_completed) if is_many else (is_final or not is_terminal):
                    key = job["state"], job["position"], job["attempts"], job["error"]
                    show(id_, format_job(job), key)
            ended = {id_ for id_, job in jobs.items() if job["state"] in final_states}
            remaining = [id_ for id_ in remaining if id_ not in ended]
            if is_terminal and remaining:
                share = _calculate_progress(jobs, first_positions)
                bar.update(task, description=_format_summary(jobs), completed=share, visible=True)
                bar.refresh()
            elif is_many:
                show("", _format_summary(jobs), Counter(job["state"] for job in jobs.values()))
            if remaining:
                time.sleep(every_s)
    return all(job["state"] not in ENDED_STATES - {State.COMPLETED} for job in jobs.values())


def _poll_jobs(
    client: Client, ids: list[str], target: str | None, *, is_first: bool
) -> dict[str, Job]:
    """Poll jobs, and return them by id. If a later poll fails, print the error and return {}.
    Raises WaitroomError if the first poll fails, or if the error is permanent (4xx)."""
    from waitroom import RejectedError, WaitroomError  # noqa: PLC0415 - other commands start faster

    try:
        unfinished = _read_unfinished(client, target) if target else {}
        return {id_: unfinished.get(id_) or client.jobs.get(id_) for id_ in ids}
    except WaitroomError as error:
        if is_first or (isinstance(error, RejectedError) and error.status < 500):
            raise
        click.echo(format_error(error), err=True)
        return {}


def _read_unfinished(client: Client, target: str) -> dict[str, Job]:
    """Return the jobs of a target that have not ended, by id."""
    return {
        job["id"]: job
        for state in State
        if state not in ENDED_STATES
        for job in client.jobs.iterate(target=target, state=state)
    }


def _format_summary(jobs: dict[str, Job]) -> str:
    if len(jobs) == 1:
        [job] = jobs.values()
        return f"{job['target']}: {format_job(job)}"
    counts = Counter(job["state"] for job in jobs.values())
    text = ", ".join(f"{counts[state]:,} {state}" for state in State if counts[state])
    waits = [job["wait_seconds"] for job in jobs.values() if job["wait_seconds"] is not None]
    return f"{text}; the last is called in about {_format_duration(max(waits))}" if waits else text


def _calculate_progress(jobs: dict[str, Job], first_positions: dict[str, int]) -> float:
    """Return the mean progress of jobs, from 0 to 1. A job that leaves the queue is at 0.5."""
    shares = []
    for id_, job in jobs.items():
        share = 1.0 if job["state"] in ENDED_STATES else 0.5
        if job["state"] == State.PENDING:
            first = first_positions[id_]
            share = 0.5 * max(0, 1 - (job["position"] or first) / max(2, first))
        shares.append(share)
    return sum(shares) / max(1, len(shares))
