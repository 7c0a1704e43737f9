"""`waitroom jobs`, `waitroom targets`, and `waitroom migrate` of both families of tables."""

import contextlib
import json
import os
import pty
import re
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner, Result

from sidecar.cli import jobs as commands
from sidecar.cli import main
from sidecar.history.store.tables import HISTORY
from sidecar.jobs.store.tables import JOBS
from tests.cli.terminal import CONTROLS
from tests.support.processes import CLEAN, WAITROOM, forget_settings, wait_until
from tests.support.site import SECRET
from tests.support.works import JobSystem
from waitroom import Jobs, UnavailableError

ID = r"[A-Za-z0-9_-]{22}"
BAR = b"held: pending, position 1"
#: Targets beside the settings that JobSystem gives all of them.
TARGETS = {
    "images": {"concurrency": 2, "headers": {"X-Key": "nobody-sees"}},
    "held": {"paused": True, "classes": {"vip": {"priority": 1}}},
    "once": {"retries": 0},
    "lax": {"fail_on": []},
    "door": {"kinds": ["online"]},
    "nowhere": {"url": "http://127.0.0.1:1/", "retries": 0},
}


@pytest.fixture(scope="module")
def works():
    """Start a redis-server, a replica, a worker and a target. Return the settings file and the
    target."""
    with JobSystem(TARGETS, runners=1) as system:
        operator = system.caller("operator")

        def are_ready() -> bool:
            targets = operator.call("GET", "/targets").json["targets"]
            return all(target["is_ready"] for target in targets)

        wait_until(are_ready, "the targets")
        yield system.config, system.target


@pytest.fixture
def run(works, monkeypatch):
    """Runs a command in this process, which takes a fiftieth of the time."""
    forget_settings(monkeypatch)

    def run(group: str, *words: str, **more) -> Result:
        return CliRunner().invoke(main, [group, "--config", str(works[0]), *words], **more)

    return run


def said(done: Result) -> list[str]:
    """The lines of a command that worked."""
    assert (done.exit_code, done.exception) == (0, None), done.output
    return done.stdout.splitlines()


@pytest.fixture
def submit(run):
    def submit(*words: str, **more) -> str:
        (id_,) = said(run("jobs", "submit", *words, **more))
        return id_

    return submit


@pytest.fixture
def shown(run):
    def shown(id_: str) -> dict:
        return json.loads("\n".join(said(run("jobs", "show", id_))))

    return shown


# Jobs ---------------------------------------------------------------------------------------------


def test_a_job_is_submitted_and_waited_for(run, shown):
    """--wait prints the result's body alone, and to standard error the id, then the states, until
    the job is completed."""
    words = ["--path", "ok/a", "--query", "b=c", "-H", "X-One: 1", "-H", "X-Two:2"]
    done = run("jobs", "submit", "images", *words, "--wait", "--every", "0.2")
    body = said(done)
    id_, *lines = done.stderr.splitlines()
    assert re.fullmatch(ID, id_)
    assert re.fullmatch(rf"\d\d:\d\d:\d\d {id_} completed, 200, [\d,]+ bytes", lines[-1])
    job = shown(id_)
    assert (job["state"], job["attempts"], job["owner"]) == ("completed", 1, "operator")
    told = json.loads(said(run("jobs", "show", id_, "--body"))[0])
    assert [json.loads(line) for line in body] == [told]
    assert (told["method"], told["path"]) == ("GET", "/ok/a?b=c")
    headers = {name.lower(): value for name, value in dict(told["headers"]).items()}
    assert (headers["x-one"], headers["x-two"], headers["x-key"]) == ("1", "2", "nobody-sees")


@pytest.mark.parametrize("way", ["--body", "-", "--body-file"])
def test_a_body_comes_from_where_it_is(run, submit, tmp_path, way):
    """A body comes from an option, standard input or a file, and need not be text."""
    data = "büro".encode() if way == "--body" else b"\xff\x00\xfe"
    (tmp_path / "body").write_bytes(data)
    words = {
        "--body": ("--body", "büro"), "-": ("--body", "-"),
        "--body-file": ("--body-file", str(tmp_path / "body")),
    }[way]  # fmt: skip
    id_ = submit("images", "--path", "ok", *words, input=data if way == "-" else None)
    said(run("jobs", "watch", id_, "--every", "0.2"))
    told = json.loads(said(run("jobs", "show", id_, "--body"))[0])
    assert (told["method"], told["size"]) == ("POST", len(data))


@pytest.mark.parametrize("option", ["--delay", "--run-at"])
def test_a_job_is_submitted_for_later(run, shown, option):
    """And the state says when it runs."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    when = "24h" if option == "--delay" else tomorrow.isoformat()
    done = run("jobs", "submit", "images", "--path", "ok", option, when)
    id_ = done.stdout.strip()
    run_at = shown(id_)["run_at"]
    assert abs(datetime.fromisoformat(run_at) - tomorrow) < timedelta(minutes=1)
    assert f"pending, runs at {run_at}" in done.stderr
    assert f"runs at {run_at}" in run("jobs", "list", "--id", id_).stdout
    assert said(run("jobs", "cancel", id_)) == [f"{id_} is cancelled"]


def test_the_jobs_of_a_file_are_submitted(run, shown, tmp_path):
    """One a line: the ids in their order, and the lines of what was refused."""
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"path": "ok/1"}\n\n{"target": "held", "grant": "a.b", "path": "a"}\n')
    done = run("jobs", "submit", "images", "--file", str(file))
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("line 3: grant_needed: The grant is ")
    [id_] = done.stdout.splitlines()
    assert shown(id_)["path"] == "ok/1"

    lines = "".join(f'{{"target": "images", "path": "ok/{n}"}}\n' for n in range(101))
    document = json.loads(run("jobs", "submit", "--file", "-", "--json", input=lines).stdout)
    assert len(set(document["ids"])) == 101
    assert document["refused"] == []


def test_a_file_with_an_invalid_job_says_in_which_line(run, tmp_path):
    """The ids of those before are printed, because they were submitted."""
    line, file = '{"target": "images", "path": "%s"}\n', tmp_path / "jobs.jsonl"
    file.write_text(line % "ok" * 100 + line % "../a")
    done = run("jobs", "submit", "--file", str(file))
    assert (done.exit_code, len(done.stdout.splitlines())) == (2, 100)
    assert "of the jobs in lines 101 to 101:" in done.stderr
    assert "jobs.0.path: may not have" in done.stderr


def test_a_result_that_is_no_text_comes_as_it_came(run, submit):
    """A binary result is printed byte for byte."""
    huge = "images", "--path", "huge", "--query", "bytes=300"
    id_ = submit(*huge)
    said(run("jobs", "watch", id_, "--every", "0.2"))
    done = run("jobs", "show", id_, "--body")
    assert done.stdout_bytes == bytes(n % 256 for n in range(300))
    waited = run("jobs", "submit", *huge, "--wait", "--every", "0.2")
    assert (waited.exit_code, waited.stdout_bytes) == (0, done.stdout_bytes)


def test_a_job_that_fails_says_why(run):
    """A failed job says why, and the command exits 1."""
    done = run("jobs", "submit", "nowhere", "--wait", "--every", "0.2")
    assert done.exit_code == 1
    assert re.search(
        r"failed, the target is not reached: Connection refused$", done.stderr, re.MULTILINE
    )
    assert done.stdout == ""


def test_an_answer_that_fails_a_job_is_printed(run):
    """It may say why. The command exits 1."""
    done = run("jobs", "submit", "images", "--path", "status/404", "--wait", "--every", "0.2")
    assert (done.exit_code, done.stdout) == (1, "the target's own 404")
    assert "the target says 404" in done.stderr


def test_a_list_says_by_which_status_jobs_ended(run, submit):
    """The list shows each job's HTTP status: a 502 and a 404 failed. Where the target takes a 404
    for a result, the job was completed, but is not shown as one with a 2xx."""
    ids = {
        submit(target, "--path", f"status/{status}"): (status, state)
        for target, status, state in (
            ("once", 502, "failed"),
            ("once", 404, "failed"),
            ("once", 201, "completed"),
            ("lax", 404, "completed, no 2xx"),
            ("lax", 302, "completed, no 2xx"),
        )
    }
    run("jobs", "watch", *ids, "--every", "0.2")
    listed = {line.split()[0]: line for line in said(run("jobs", "list"))}
    for id_, (status, state) in ids.items():
        assert re.search(rf"\t{status}\t{state}\t", listed[id_])


def test_an_online_job_is_waited_for_until_it_is_called(run, shown):
    """An online job shows its permit when it is called, and ends with `done`."""
    done = run("jobs", "submit", "door", "--wait", "--every", "0.2")
    id_, *lines = done.stderr.splitlines()
    permit = shown(id_)["permit"]
    assert said(done) == [permit]
    assert f"called, the permit {permit} is good until " in lines[-1]
    assert said(run("jobs", "done", id_)) == [f"{id_} is completed"]
    assert said(run("jobs", "watch", id_))[0].endswith(f"{id_} completed")


def test_a_job_that_waits_can_be_cancelled_and_tried_again(run, submit):
    """A waiting job shows its position; watching a cancelled one exits 1."""
    first, second = submit("held"), submit("held", "--key", "once", "--body", "a")
    assert submit("held", "--key", "once", "--body", "a") == second
    done = run("jobs", "submit", "held", "--key", "once", "--body", "b")
    assert "This idempotency_key names another job" in done.stderr
    listed = said(run("jobs", "list", "--target", "held", "--state", "pending"))
    assert [line.split()[0] for line in listed] == ["id", second, first]
    assert re.search(r"\theld\toperator\t\S+\t\tpending\tposition 2$", listed[1])
    assert said(run("jobs", "list", "--target", "held", "--limit", "1")) == listed[:2]
    assert said(run("jobs", "cancel", first)) == [f"{first} is cancelled"]
    done = run("jobs", "watch", first)
    assert (done.exit_code, done.stdout[9:]) == (1, f"{first} cancelled\n")
    assert said(run("jobs", "retry", first)) == [f"{first} is pending, position 2"]
    for id_ in (first, second):
        said(run("jobs", "cancel", id_))
    assert len(said(run("jobs", "list", "--target", "held", "--state", "pending"))) == 1


def test_many_are_cancelled_and_tried_again(run, submit):
    """Jobs are changed by options, after a question with their number, or by ids."""
    ids = [submit("held") for _ in range(3)]
    which = "--target", "held", "--state", "pending"
    assert said(run("jobs", "cancel", *which, "--dry-run")) == ["3 jobs match"]
    refused = run("jobs", "cancel", *which, input="n\n")
    assert (refused.exit_code, "Cancel 3 jobs?" in refused.stderr) == (1, True)
    done = said(run("jobs", "cancel", *which, input="y\n"))
    assert done == ["3 jobs are cancelled, 0 skipped"]
    assert said(run("jobs", "cancel", *which)) == ["0 jobs are cancelled, 0 skipped"]
    assert said(run("jobs", "retry", *ids[:2])) == ["2 jobs wait again, 0 skipped"]
    done = run("jobs", "retry", *ids, "--json")
    assert json.loads(done.stdout)["changed"] == 1
    assert {each["id"] for each in json.loads(done.stdout)["skipped"]} == set(ids[:2])
    found = json.loads(run("jobs", "list", "--id", ids[0], "--from", "1h", "--json").stdout)
    assert [each["id"] for each in found["jobs"]] == ids[:1]
    assert said(run("jobs", "list", "--target", "held", "--status", "5xx"))[1:] == []
    assert said(run("jobs", "cancel", *which, "--yes")) == ["3 jobs are cancelled, 0 skipped"]


def test_many_jobs_are_counted(run, submit):
    """Many jobs are counted; only those that were not completed are named."""
    ids = [submit("images", "--path", "ok") for _ in range(9)]
    cancelled = submit("held")
    said(run("jobs", "cancel", cancelled))
    done = run("jobs", "watch", *ids, cancelled, "--every", "0.2")
    assert done.exit_code == 1
    lines = [line[9:] for line in done.stdout.splitlines()]
    assert (lines[0], lines[-1]) == (f"{cancelled} cancelled", "9 completed, 1 cancelled")
    assert not any(id_ in line for id_ in ids for line in lines)


def test_all_jobs_of_a_target_are_waited_for(run, submit, monkeypatch):
    """--target waits for the jobs that have not ended at the start."""
    ids = [submit("held") for _ in range(10)]

    def cancel(_: float) -> None:
        for id_ in ids:
            said(run("jobs", "cancel", id_))

    with monkeypatch.context() as when:
        when.setattr(commands.time, "sleep", cancel)  # it was looked once
        done = run("jobs", "watch", "--target", "held")
    assert done.exit_code == 1
    first, *each, last = (line[9:] for line in done.stdout.splitlines())
    assert first == "10 pending"
    assert {line.split()[0] for line in each} == set(ids)
    assert last == "10 cancelled"
    assert said(run("jobs", "watch", "--target", "held")) == ["held: all jobs have ended"]


def test_a_terminal_has_one_line_that_is_written_over(works, run, submit):
    """A terminal shows a bar, and keeps the line of the result."""
    id_ = submit("held")
    ours, theirs = pty.openpty()
    command = [WAITROOM, "jobs", "-c", str(works[0]), "watch", id_, "--every", "0.2"]
    shown = b""
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=CLEAN) as watch:
        os.close(theirs)
        with contextlib.suppress(OSError):  # Linux says so when the other side is gone
            while part := os.read(ours, 65_536):
                was_drawn, shown = BAR in shown, shown + part
                if BAR in shown and not was_drawn:  # the first bytes only hide the cursor
                    said(run("jobs", "cancel", id_))
    os.close(ours)
    lines = [line.strip() for line in re.split(r"[\r\n]+", CONTROLS.sub("", shown.decode()))]
    bar = f"{'━' * 5}╺{'━' * 14} {BAR.decode()}"
    assert (set(lines), watch.returncode) == ({bar, f"{id_} cancelled", ""}, 1)
    assert lines.count(f"{id_} cancelled") == 1


def test_a_watch_goes_on_when_nobody_answers_for_a_moment(run, submit, monkeypatch):
    """A watch goes on while no replica answers, unless that is so from the first."""
    id_ = submit("held")
    asked = []

    def call(*words, **more):
        asked.append(words)
        if len(asked) == 2:
            raise UnavailableError("no replica answers")
        if len(asked) == 3:
            said(run("jobs", "cancel", id_))
        return real(*words, **more)

    real = Jobs.get
    monkeypatch.setattr(Jobs, "get", call)
    done = run("jobs", "watch", id_, "--every", "0.2")
    assert done.exit_code == 1
    assert done.stderr == "no replica answers\n"
    assert [line.split()[2].strip(",") for line in done.stdout.splitlines()] == [
        "pending", "cancelled",
    ]  # fmt: skip
    asked[:] = [()]
    assert run("jobs", "watch", id_).stderr == "Error: no replica answers\n"


# Targets ------------------------------------------------------------------------------------------


def test_targets_are_listed_and_shown(run):
    """Each target has a line, and is shown as JSON without secrets."""
    lines = {line.split()[0]: line for line in said(run("targets", "list"))}
    assert set(lines) == {"target", "images", "held", "once", "lax", "door", "nowhere"}
    assert re.search(r"\t\d+ of 2\tnone\t.*\tfile$", lines["images"])
    assert lines["held"].startswith("held\tpaused\t")
    document = "\n".join(said(run("targets", "show", "images")))
    assert json.loads(document)["settings"]["headers"] == {"X-Key": "***"}
    assert "nobody-sees" not in document


def test_a_target_is_changed_and_restored(run, works, tmp_path):
    """A target is made, changed and reset; a secret comes from a file and is not shown."""
    (tmp_path / "secret").write_text("Bearer nobody-sees\n")
    (tmp_path / "headers").write_text('{"Authorization": "nobody-sees"}')
    lines = said(run("targets", "set", "extra", f"url={works[1].url}", "rate=5", "window=500ms",
                     "methods=get,put", "private=true", f"headers=@{tmp_path / 'headers'}",
                     f"callback_secret=@{tmp_path / 'secret'}"))  # fmt: skip
    assert lines == [
        f'url = "{works[1].url}"', "rate = 5", "window = 0.5", 'methods = ["GET", "PUT"]',
        "private = true", 'headers = {"Authorization": "***"}', 'callback_secret = "***"',
    ]  # fmt: skip

    def is_taken_up() -> bool:
        listed = "\n".join(said(run("targets", "list")))
        found = re.search(
            r"^extra\t(coming back|running|no worker)\t.*\t5 / 0.5 s\t.*\trun time$",
            listed,
            re.MULTILINE,
        )
        assert found, listed
        return found[1] == "running"

    wait_until(is_taken_up, "a runner that asks for its jobs")
    assert said(run("targets", "set", "extra", "rate=null")) == ["rate = null"]
    assert said(run("targets", "pause", "extra")) == ["extra is paused: 0 waiting, 0 under way"]
    assert said(run("targets", "resume", "extra")) == ["extra is running: 0 waiting, 0 under way"]
    assert said(run("targets", "unset", "extra")) == ["extra is removed"]
    said(run("targets", "set", "images", "concurrency=3"))
    assert said(run("targets", "unset", "images")) == ["images is as configured"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("jobs submit nix", "no target is named 'nix'"),
        ("jobs submit", "say TARGET, or --file FILE"),
        ("jobs submit images --file /nowhere", "'--file': '/nowhere': No such file or directory"),
        ("jobs submit images --file /etc/hostname", "line 1: write a JSON object"),
        ("jobs submit images --file /etc/hostname --path a", "--file has the jobs: say only"),
        ("jobs submit images -H X-One", "X-One: write NAME: VALUE, such as Content-Type: "),
        ("jobs submit images --callback https://a/b", "callback_url: not one that images allows"),
        ("jobs submit images --kind later", "'later' is not one of 'offline', 'online'"),
        ("jobs submit images --run-at 2026-12-01", "run_at: write a date, a time and its zone"),
        ("jobs submit images --delay soon", 'write a number of seconds, or text such as "30s"'),
        ("jobs submit door --body a", "body: not of an online job, whose call its caller makes"),
        ("jobs submit held --class gold", "class: held has none of this name; it has vip"),
        ("jobs submit held --grant a.b", "The grant is "),
        ("jobs submit images --body a --body-file /dev/null", "say either --body or --body-file"),
        ("jobs show nothing --body", "no job is named 'nothing'"),
        ("jobs cancel nothing", "no job is named 'nothing'"),
        ("jobs cancel", "say either ids of jobs, or which jobs"),
        ("jobs retry a --state failed", "say either ids of jobs, or which jobs"),
        ("jobs retry --state pending", "'pending' is not one of"),
        ("jobs retry a b --dry-run", "--dry-run counts jobs that options describe"),
        ("jobs cancel --from soon --yes", "from: write a time such as"),
        ("jobs watch nothing", "no job is named 'nothing'"),
        ("jobs watch --target nix", "no target is named 'nix'"),
        ("jobs watch", "say either ids of jobs, or --target NAME"),
        ("jobs watch a --target images", "say either ids of jobs, or --target NAME"),
        ("jobs list --state gone", "'gone' is not one of 'pending', 'called'"),
        ("targets show nix", "no target is named 'nix'"),
        ("targets show image", "no target is named 'image'; did you mean images?"),
        ("targets pause nix", "no target is named 'nix'"),
        ("targets unset nix", "no target is named 'nix'"),
        ("targets set images rate", "rate: write SETTING=VALUE, such as concurrency=20"),
        ("targets set images rate=@/nowhere/at/all", "rate: /nowhere/at/all cannot be read"),
        ("targets set A_b rate=1", "a name has lower-case letters"),
    ],
)
def test_what_is_refused(run, words, why):
    """A refusal says why and prints nothing else."""
    done = run(*words.split())
    assert done.exit_code in {1, 2}
    assert isinstance(done.exception, SystemExit)
    assert why in done.stderr
    assert done.stdout == ""


# The database -------------------------------------------------------------------------------------


@pytest.fixture
def migrate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def migrate(**settings: str) -> Result:
        lines = [f'{name} = "{value}"\n' for name, value in settings.items()]
        text = f'secret_keys = ["{SECRET}"]\n{"".join(lines)}[limits.x]\nalgorithm = "concurrency"'
        (tmp_path / "waitroom.toml").write_text(text)
        return CliRunner().invoke(main, ["migrate"])

    return migrate


def test_both_families_of_tables_are_made(migrate):
    """Both families of tables are made, in one database or two; a second run says so."""
    made = [f"The {whose} tables were made (revision {tables.revision})."
            for whose, tables in (("history's", HISTORY), ("jobs'", JOBS))]  # fmt: skip
    there = [line.replace("were made", "are up to date") for line in made]
    both = {"history": "sqlite:///one.db", "jobs": "sqlite:///one.db"}
    assert said(migrate(**both)) == made
    assert said(migrate(**both)) == there
    assert said(migrate(history="sqlite:///two.db")) == made[:1]
    assert said(migrate(history="sqlite:///two.db", jobs="sqlite:///three.db")) == [
        there[0], made[1],
    ]  # fmt: skip
    assert said(migrate(jobs="sqlite:///three.db")) == there[1:]


def test_one_database_that_is_away_does_not_keep_the_other(migrate):
    """A database that fails is named without its password, and the other is migrated."""
    away = "postgresql://root:hidden@127.0.0.1:1/x"
    done = migrate(history="sqlite:///here.db", jobs=away)
    assert (done.exit_code, done.stdout.count("were made")) == (3, 1)
    assert done.stderr.startswith("the jobs' database: ConnectionRefusedError")
    done = migrate(history=away, jobs="sqlite:////nowhere/at/all.db")
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first.startswith("the history's database: ConnectionRefusedError")
    assert second == "jobs: /nowhere/at is no folder; make it first"
    assert "hidden" not in done.stderr
    done = migrate()
    assert (done.exit_code, done.stdout) == (1, "")
    assert "history: names no database; set it" in done.stderr
