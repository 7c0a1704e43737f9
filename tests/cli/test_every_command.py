"""What holds for every command: its options, its JSON, its exit code, help and completion."""

import json
import os
import platform
import re
import signal
import socket
import subprocess

import click
import pytest
from click.testing import CliRunner

from sidecar import __version__
from sidecar.cli import main
from tests.support.commands import COMMANDS
from tests.support.processes import CLEAN, WAITROOM, run_command
from tests.support.redis_servers import RedisServer
from tests.support.site import call

TOKEN = "0123456789abcdef"
#: Commands without --json, and why.
NO_JSON = {
    "serve": "runs on",
    "run-jobs": "runs on",
    "init": "writes files, and tells a person what is left to do",
    "update-files": "writes files, and tells a person what is left to do",
    "completion": "prints a shell's script",
    "page nginx": "prints what nginx includes",
    "page preview": "prints the files that it wrote",
    "hash-password": "prints a hash",
    "nginx-key": "prints or writes what nginx includes",
    "rooms export": "writes JSON Lines",
    "rooms import": "says how much is new",
    "jobs watch": "shows jobs until they have ended",
    "leases run": "runs a command, whose output it is",
    "leases release": "makes a request for each holder, and says how each went",
}


def leaves(*group: str):
    for path, command in COMMANDS.items():
        if path[: len(group)] == group and not isinstance(command, click.Group):
            yield " ".join(path), command


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def run(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_command(*words, env={**CLEAN, **environ})


def shape(document: object) -> object:
    """Return the names of a document, at any depth; a list has those of its first item."""
    if isinstance(document, dict):
        return {name: shape(value) for name, value in document.items()}
    return [shape(each) for each in document[:1]] if isinstance(document, list) else None


def test_every_command_that_prints_data_has_it_as_json():
    """Every command has --json, except those listed with a reason."""
    without = {name for name, each in leaves() if "--json" not in options(each)}
    assert without == set(NO_JSON)


def test_every_command_of_a_replica_takes_its_address_and_a_token():
    """--url and --token-file may stand before and after the command's name."""
    for group in ("rooms", "leases", "limits", "jobs", "targets", "operators", "webhooks"):
        assert {"--url", "--token-file", "--config"} <= options(COMMANDS[group,])
        for name, each in leaves(group):
            assert {"--url", "--token-file", "--config", "-c"} <= options(each), name
    assert {"--url", "--token-file"} <= options(COMMANDS["healthcheck",])


VISITOR = "v" * 22


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("healthcheck", "/readyz"), ("rooms list", "/admin/rooms"),
        ("rooms show shop", "/admin/rooms/shop"), ("rooms pause shop", "/admin/rooms/shop"),
        ("rooms resume shop", "/admin/rooms/shop"),
        ("rooms set shop message=null", "/admin/rooms/shop"),
        ("rooms events shop", "/admin/rooms/shop/events"),
        ("rooms log shop", "/admin/rooms/shop/log"),
        (f"rooms find shop {VISITOR}", f"/admin/rooms/shop/visitors/{VISITOR}"),
        ("leases list", "/v1/leases"), ("leases list seat", "/v1/leases/seat"),
        ("leases show seat 17", "/v1/leases/seat/17/queue"), ("limits list", "/v1/limits"),
        ("limits keys slots", "/v1/limits/slots/counts"),
        ("limits recent slots", "/v1/limits/slots/recent"),
        ("limits show slots", "/v1/limits/slots"), ("jobs list", "/v1/jobs"),
        ("jobs reasons", "/v1/jobs/bulk/reasons"), ("targets list", "/v1/targets"),
        ("targets show images", "/v1/targets/images"),
        ("targets pause images", "/v1/targets/images"),
        ("targets resume images", "/v1/targets/images"), ("webhooks list", "/admin/webhooks"),
        ("webhooks deliveries team", "/admin/webhooks/team/deliveries"),
        ("operators list", "/admin/operators"), ("report shop", "/admin/rooms/shop/report"),
        ("history changes shop", "/admin/rooms/shop/changes"),
    ],
)  # fmt: skip
def test_it_is_what_the_api_responds(config, url, words, path):
    """--json prints the API's response; a change of a room also has its number, to undo it."""
    done = run(*words.split(), "--json", "--config", config)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    if words.startswith(("rooms pause", "rooms resume", "rooms set")):
        assert said.pop("change") >= 1
    assert shape(said) == shape(call("GET", f"{url}{path}", TOKEN))


def test_grants_are_as_the_api_has_them(config):
    found = json.loads(run("grant", "shop", "vip", "--json", "--config", config).stdout)
    assert set(found) == {"room", "class", "expires_at", "grants"}
    assert len(found["grants"]) == 1


def test_pages_are_put_together(config):
    """A list has all items, or says where to go on."""
    given = {"WAITROOM_TOKEN": TOKEN}
    submit = "jobs", "submit", "images", "--json", "--config", config
    ids = [json.loads(run(*submit, **given).stdout)["id"] for _ in range(3)]
    found = json.loads(run("jobs", "list", "--limit", "2", "--json", "--config", config).stdout)
    assert [job["id"] for job in found["jobs"]] == ids[:0:-1]
    assert found["next"]
    for id_ in ids:
        run("jobs", "cancel", id_, "--config", config)


DEAD = "http://127.0.0.1:1"
SQL = "postgresql://a:b@127.0.0.1:1/c"


@pytest.mark.parametrize(
    ("words", "environ", "code", "said"),
    [
        ("rooms list", {}, 0, ""),
        ("rooms show nope", {}, 1, "no room is named 'nope'"),
        ("rooms list", {"WAITROOM_TOKEN": "wrong"}, 1, "The token came from WAITROOM_TOKEN"),
        ("webhooks deliveries nope", {}, 1, "no webhook is named 'nope'"),
        ("webhooks resend team --failed", {}, 0, ""),
        ("webhooks resend team", {}, 2, "or say --failed"),
        ("webhooks resend team n1", {}, 1, "There is none with the id n1"),
        ("operators log-out ann", {}, 0, ""),
        ("operators log-out eve", {}, 1, "No operator is named 'eve'"),
        ("rooms lits", {}, 2, "No such command"),
        ("report shop --from yesterday", {}, 2, "--from"),
        ("rooms list", {"WAITROOM_URL": DEAD}, 3, f"no replica answers at {DEAD}"),
        ("healthcheck", {"WAITROOM_URL": DEAD}, 3, "not ready: no replica answers"),
        ("report shop", {"WAITROOM_HISTORY": SQL}, 3, "the history's database: "),
        ("migrate", {"WAITROOM_HISTORY": SQL}, 3, "the history's database: "),
        (f"verify-draw {DEAD}/draw", {}, 3, "127.0.0.1"),
    ],
)
def test_exit_codes(config, words, environ, code, said):
    """Exit codes: 0 success, 1 failure, 2 incorrect usage, 3 unreachable; never a traceback."""
    takes_none = words.startswith("verify-draw")
    done = run(*words.split(), *([] if takes_none else ["--config", config]), **environ)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_says_nothing(config):
    """Ctrl-C exits with 130 and prints nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [WAITROOM, "rooms", "list", "--url", url, "-c", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=CLEAN) as process:
            connection, _ = silent.accept()
            with connection:
                os.kill(process.pid, signal.SIGINT)
                _, said = process.communicate(timeout=30)
    assert (process.returncode, said.strip()) == (130, "")


def test_an_interrupt_while_an_error_is_handled_is_one(monkeypatch):
    """Ctrl-C exits with 130 also while the command handles an exception."""

    @click.command
    def interrupted():
        try:
            int("x")
        except ValueError:
            raise KeyboardInterrupt  # noqa: B904 - as at any moment

    monkeypatch.setattr(type(main), "get_command", lambda *_: interrupted)
    result = invoke("interrupted")
    assert (result.exit_code, result.output) == (130, "")


# Help, completion, versions, check-config ---------------------------------------------------------

RIGHT = 'store = "memory://"\n\n[rooms.shop]\ntotal_active_users = 3\n'


def invoke(*words: str, **environ: str):
    return CliRunner(env=environ).invoke(main, list(words))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_needs_no_configuration(path, tmp_path, monkeypatch):
    """-h and --help of every command, in a folder with nothing."""
    monkeypatch.chdir(tmp_path)
    short, long = invoke(*path, "-h"), invoke(*path, "--help")
    assert (short.exit_code, short.output) == (0, long.output)
    assert short.output.startswith("Usage: ")


@pytest.mark.parametrize(
    "path",
    [path for path, command in COMMANDS.items() if isinstance(command, click.Group)],
    ids=" ".join,
)
def test_the_help_of_a_group_cuts_no_summary(path):
    """Each command stands under one heading of the help, with the whole first sentence of its
    own help."""
    group = COMMANDS[path]
    assert isinstance(group, click.Group)
    _usage, _, rest = invoke(*path, "--help").output.partition("Options:")
    text = " ".join(rest.split())
    assert "..." not in text
    for name in group.list_commands(click.Context(group)):
        summary = COMMANDS[*path, name].get_short_help_str(limit=1000)
        assert text.count(f" {name} {summary}") == 1


def test_the_help_is_in_groups():
    """The headings name what people want to do, and every command is under one of them."""
    said = invoke("--help").output
    assert re.findall(r"^(\w.*):$", said, re.MULTILINE) == [
        *("Options", "Set up", "Run", "Manage a running service"),
        *("Look back", "Other commands"),
    ]


@pytest.mark.server
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    """Completion is printed for each shell, by default that of $SHELL; others are refused."""
    said = invoke("completion", shell)
    assert said.exit_code == 0
    assert "_WAITROOM_COMPLETE" in said.output
    assert invoke("completion", SHELL=f"/usr/bin/{shell}").output == said.output
    assert invoke("completion", SHELL="/bin/sh").exit_code == 2


@pytest.mark.server
def test_bash_reads_it(tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(invoke("completion", "bash").output)
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=10)


@pytest.mark.server
def test_versions(tmp_path, monkeypatch):
    """--version names this program, Python, and the Redis of the settings."""
    monkeypatch.chdir(tmp_path)
    first = f"waitroom {__version__}, Python {platform.python_version()}\n"
    assert invoke("--version").output == first
    with RedisServer() as redis:
        environ = {
            "WAITROOM_STORE": f"redis://127.0.0.1:{redis.port}/0",
            "WAITROOM_SECRET_KEYS": "k" * 40,
            "WAITROOM_ROOMS__A__TOTAL_ACTIVE_USERS": "1",
        }
        said = invoke("--version", **environ).output
        assert said.startswith(f"{first}Redis ")
    assert invoke("--version", **environ).output.startswith(f"{first}Redis does not answer")


def test_mistakes_come_in_the_order_of_the_file(tmp_path):
    """What has no line comes first, and then line by line, whatever the order of the checks."""
    file = tmp_path / "waitroom.toml"
    file.write_text(
        '[rooms.shop]\ntotal_active_users = "many"\nmesage = 1\nsession_duration = 1\n'
        '[limits.pay]\nlimit = -2\nalgorithm = "fixed_window"\nwindow = "1d"\n[rooms.a]\n'
    )
    said = invoke("check-config", "-c", str(file), WAITROOM_STROE="memory://").stderr.splitlines()
    places = [line.partition(": ")[0] for line in said]
    assert places == ["WAITROOM_STROE", "secret_keys", *(f"{file}:{n}" for n in (2, 3, 4, 6, 9))]
    document = json.loads(invoke("check-config", "-c", str(file), "--json").stdout)
    assert [problem["line"] for problem in document["problems"]] == [None, 2, 3, 4, 6, 9]


def test_a_right_one_without_its_secrets(tmp_path):
    """--no-secrets checks settings without the files of their secrets."""
    file = tmp_path / "waitroom.toml"
    file.write_text(f'secret_keys_file = "nowhere"\nadmin_token_file = "nowhere"\n{RIGHT}')
    done = invoke("check-config", "-c", str(file), "--no-secrets")
    assert (done.exit_code, done.stdout[:27]) == (0, "The configuration is right:")
    assert "nowhere cannot be read" in invoke("check-config", "-c", str(file)).output


def test_secrets_are_read_from_files(tmp_path):
    """Secrets are read from files beside the settings; a variable overrides them."""
    (tmp_path / "key").write_text("k" * 40 + "\n")
    file = tmp_path / "waitroom.toml"
    file.write_text(f'secret_keys_file = "key"\n{RIGHT}')
    assert invoke("check-config", "-c", str(file)).exit_code == 0
    (tmp_path / "key").unlink()
    assert invoke("check-config", "-c", str(file)).exit_code == 1
    assert invoke("check-config", "-c", str(file), WAITROOM_SECRET_KEYS="k" * 40).exit_code == 0
