"""`waitroom leases run` and `waitroom limits acquire`, as scripts and cron jobs use them."""

import json
import signal
import subprocess
import time
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from sidecar.cli.replica_client import ReplicaOptions
from tests.support.processes import CLEAN, WAITROOM, run_command, wait_until
from tests.support.redis_servers import RedisServer

REFUSED = 4
CONFIG = """
leases.desk.term = "90s"
leases.full = {{ term = "90s", max_waiting = 0 }}
leases.brief = {{ term = "5s", renewable = true }}
limits.evenly = {{ algorithm = "leaky_bucket", limit = 1, window = "2s", on_exceed = "pace" }}
limits.briefly = {{ algorithm = "sliding_window", limit = 1, window = "2s" }}
limits.daily = {{ algorithm = "fixed_window", limit = 2, window = "1d", key = "{{a}}:{{b}}" }}
limits.together = {{ algorithm = "concurrency", limit = 1, lease = "10m" }}

[limits.slowly]
algorithm = "leaky_bucket"
limit = 1
window = "10m"
on_exceed = "pace"
max_wait = "1h"
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory, start_replica):
    with start_replica(tmp_path_factory.mktemp("waitroom"), CONFIG) as file:
        yield file


@pytest.fixture
def replica(config):
    """A function that sends a request to the replica."""

    def request(*words, **more):
        with ReplicaOptions(str(config)).client() as client:
            return client.request(*words, **more)

    return request


@pytest.fixture
def run(config):
    """A function that runs a command to its end."""
    return lambda *words: run_command(*words[:2], "-c", config, *words[2:], env=CLEAN)


@pytest.fixture
def start(config):
    """A context manager that starts a command, and kills it at the end."""

    @contextmanager
    def start(*words):
        command = [WAITROOM, *words[:2], "-c", str(config), *words[2:]]
        with subprocess.Popen(
            command, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return start


def queue(replica, resource: str) -> tuple[int, int]:
    """Return how many hold a resource, and how many wait for it."""
    document = replica("GET", f"/v1/leases/desk/{resource}/queue")
    return len(document["holders"]), len(document["queue"])


def test_the_command_runs_with_the_lease_and_its_status_is_passed_on(run, replica):
    """It finds its fencing number, and the lease is released at its end."""
    done = run(
        "leases", "run", "desk", "own", "--", "sh", "-c", 'echo "fence $LEASE_FENCE"; exit 7'
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert int(done.stdout.removeprefix("fence ")) > 0
    assert queue(replica, "own") == (0, 0)
    done = run("leases", "run", "desk", "own", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + signal.SIGKILL


def test_a_command_waits_for_the_one_before_it(start, replica):
    """Two commands never overlap."""
    with start("leases", "run", "desk", "two", "--", "sh", "-c", "echo a; exec sleep 600") as first:
        assert first.stdout.readline() == "a\n"
        script = "echo b"
        with start("leases", "run", "desk", "two", "--", "sh", "-c", script) as second:
            wait_until(lambda: queue(replica, "two") == (1, 1), "the second in the queue")
            assert second.poll() is None
            first.terminate()
            assert second.communicate(timeout=60)[0] == "b\n"
            assert (first.wait(60), second.returncode) == (128 + signal.SIGTERM, 0)


def test_a_lease_that_is_not_granted_in_time_is_an_exit_code(run, replica):
    """--wait limits the wait; 4, or the number after -E, says that it was too short."""
    replica("POST", "/v1/leases/desk/held", {"holder": "anna"})
    for words, code in ((("--wait", "0s"), REFUSED), (("--wait", "0.3s", "-E", "75"), 75)):
        done = run("leases", "run", "desk", "held", *words, "--", "touch", "/nonexistent/file")
        assert (done.returncode, done.stdout) == (code, "")
        assert "desk/held is held by somebody else" in done.stderr
    assert queue(replica, "held") == (1, 0)


def test_a_full_queue_is_the_same_exit_code(run, replica):
    """If as many wait as may, --wait waits for nothing."""
    replica("POST", "/v1/leases/full/a", {"holder": "anna"})
    done = run("leases", "run", "full", "a", "--wait", "1m", "-E", "75", "--", "true")
    assert (done.returncode, done.stdout) == (75, "")
    assert "the queue for full/a is full" in done.stderr


def test_an_ignored_signal_stays_ignored(config):
    """As `nohup` has it, also for the command."""
    command = f"trap '' HUP; exec {WAITROOM} leases run -c {config} desk hup -- "
    command += "sh -c 'kill -HUP $$ && kill -HUP $PPID && echo lives'"
    done = subprocess.run(
        ["sh", "-c", command], env=CLEAN, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_waiting_leaves_the_queue(start, replica, number):
    """The status is that of a shell's command that a signal has ended."""
    resource = f"wait-{number}"
    replica("POST", f"/v1/leases/desk/{resource}", {"holder": "anna"})
    with start("leases", "run", "desk", resource, "--", "true") as process:
        wait_until(lambda: queue(replica, resource) == (1, 1), "the command in the queue")
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert queue(replica, resource) == (1, 0)


def test_signals_are_for_the_command(start, replica):
    """SIGTERM reaches the command, which ends as it likes, and the lease is released."""
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    with start("leases", "run", "desk", "signal", "--", "sh", "-c", script) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(60) == 9
    assert queue(replica, "signal") == (0, 0)


@pytest.mark.parametrize("on_loss", ["kill", "warn"])
def test_a_lost_lease_ends_the_command_or_warns(start, replica, on_loss, tmp_path):
    """Somebody else gets the resource while the command runs; the status is never 0."""
    resource, is_over = f"lost-{on_loss}", tmp_path / "over"
    script = (
        f"trap 'echo ended; exit 0' TERM; echo ready; until [ -e {is_over} ]; do sleep 0.1; done"
    )
    words = ("leases", "run", "brief", resource, "--on-loss", on_loss, "--holder", "job")
    with start(*words, "--", "sh", "-c", script) as process:
        assert process.stdout.readline() == "ready\n"
        replica("DELETE", f"/v1/leases/brief/{resource}", query={"holder": "job"})
        replica("POST", f"/v1/leases/brief/{resource}", {"holder": "anna"})
        outcome = "is ended" if on_loss == "kill" else "goes on"
        line = process.stderr.readline()
        while "is lost" not in line:
            assert line, "no warning"
            line = process.stderr.readline()
        assert (
            line
            == f"the lease brief/{resource} is lost: others may hold it; the command {outcome}\n"
        )
        if on_loss == "warn":
            assert process.poll() is None
            is_over.touch()
        assert process.wait(60) == 1
        assert process.stdout.read() == ("ended\n" if on_loss == "kill" else "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("desk", "x", "--", "no-such-command"), 127, "no-such-command: no such command"),
        (("desk", "x", "--", "/etc/passwd"), 126, "/etc/passwd: cannot be executed"),
        (("nope", "x", "--", "true"), 1, "no lease is named 'nope'"),
        (("desk", "x"), 2, "Missing argument"),
        (("desk", "x", "--wait", "soon", "--", "true"), 2, "--wait"),
        (("desk", "x", "--url", "http://127.0.0.1:1", "--", "true"), 3, "no replica answers"),
    ],
)
def test_errors_of_leases_run(run, words, code, said):
    """What is wrong is named, and nothing is run."""
    done = run("leases", "run", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


# Limits -------------------------------------------------------------------------------------------


def test_the_exit_code_says_whether_a_call_is_allowed(run):
    """0: allowed, with the decision as JSON if wanted. 4: refused, and when to ask again."""
    words = ("limits", "acquire", "daily", "a=refund", "b=wx")
    done = run(*words, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["outcome"] == "granted"
    done = run("limits", "acquire", "daily", "--key", "refund:wx")
    assert (done.returncode, done.stdout) == (0, "daily: a call of refund:wx is allowed\n")
    done = run(*words, "--wait", "1s")
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr.startswith("daily: refused; ask again after ")
    done = run("limits", "acquire", "daily", "--key", "other:wx", "--cost", "3", "--wait", "1h")
    assert done.returncode == REFUSED
    assert "the limit 2 never allows a cost of 3" in done.stderr


@pytest.mark.parametrize("name", ["evenly", "briefly"])
def test_a_command_can_wait_for_its_call(run, replica, name):
    """A paced call sleeps until its moment, a refused one asks again."""
    [first] = replica("POST", f"/v1/limits/{name}/acquire", [{}])
    done = run("limits", "acquire", name, "--wait", "1m", "--json")
    assert done.returncode == 0, done.stderr
    ends = [datetime.fromisoformat(decision["at"]) for decision in (first, json.loads(done.stdout))]
    assert ends[1] - ends[0] >= timedelta(seconds=2)


def test_a_command_can_wait_for_a_permit(run, start, replica):
    """A permit that is released before its lease ends is the next command's."""
    [first] = replica("POST", "/v1/limits/together/acquire", [{}])
    done = run("limits", "acquire", "together", "--wait", "1s")
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "ask again after" in done.stderr
    with start("limits", "acquire", "together", "--wait", "1h") as process:
        time.sleep(2)  # in which it is refused
        assert process.poll() is None
        replica("POST", "/v1/limits/together/release", {"permit": first["permit"]})
        assert process.wait(60) == 0


def test_a_moment_that_is_not_used_is_given_back(run, start, replica):
    """It is too late for the command, or the command is interrupted: the next call gets it."""
    replica("POST", "/v1/limits/slowly/acquire", [{}])
    wait_s = lambda: replica("GET", "/v1/limits/slowly")["wait_seconds"]  # noqa: E731
    for words in ((), ("--wait", "1s")):
        assert run("limits", "acquire", "slowly", *words).returncode == REFUSED
        assert wait_s() <= 600
    with start("limits", "acquire", "slowly", "--wait", "1h") as process:
        wait_until(lambda: wait_s() > 600, "the call's moment")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    assert wait_s() <= 600


def test_a_call_that_is_refused_without_redis_is_an_unavailable_replica(tmp_path, start_replica):
    """The limit did not decide on it. So the status is 3, as without a replica, and not 4."""
    text = CONFIG + 'on_store_failure = "refuse"\n'
    with RedisServer() as redis, start_replica(tmp_path, f'store = "{redis.url}"\n{text}') as file:
        redis.kill()
        for words in ((), ("--wait", "1m")):
            done = run_command("limits", "acquire", "-c", file, "slowly", *words, env=CLEAN)
            assert (done.returncode, done.stdout) == (3, "")
            assert done.stderr == (
                "Error: slowly: Redis is unavailable, and the limit refuses then "
                "(on_store_failure)\n"
            )
