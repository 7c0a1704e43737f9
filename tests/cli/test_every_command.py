"""What every command that has to do with a replica or with data takes, and how each ends."""

import json
import os
import signal
import socket
import subprocess
import tomllib
import urllib.request

import click
import pytest

from tests.support.commands import command, every_command
from tests.support.processes import CLEAN, WAITROOM, Process, free_port, run_command, wait_until

TOKEN = "0123456789abcdef"
CONFIG = """
edge_listen = "unix:{folder}/edge"
ops_listen = "127.0.0.1:{port}"
admin_token = "0123456789abcdef"
operators.ann.role = "viewer"
operators.ann.password = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG"
secret_keys = ["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"]
history = "sqlite:///{folder}/history.db"
rooms.shop.total_active_users = 1
rooms.shop.classes.vip.head_start = "5m"
leases.seat.term = "1h"
targets.images.url = "http://127.0.0.1:1/"
targets.images.private = true
webhooks.team.url = "http://127.0.0.1:1/"
limits.pay.algorithm = "fixed_window"
limits.pay.limit = 20
limits.pay.window = "1d"
"""
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
    "leases release": "makes a request for each holder, and says how each went",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder where databases may be made."""
    monkeypatch.chdir(tmp_path)


def leaves(*words: str):
    for path in every_command(*words):
        if not isinstance(command(*path), click.Group):
            yield " ".join(path), command(*path)


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The settings file of a replica that runs."""
    folder = tmp_path_factory.mktemp("waitroom")
    file = folder / "waitroom.toml"
    file.write_text(CONFIG.format(folder=folder, port=free_port()))
    with Process(
        [WAITROOM, "serve", "--config", str(file)], log=folder / "log", env=CLEAN, cwd=folder
    ) as replica:
        wait_until(lambda: run("healthcheck", "-c", file).returncode == 0, "it", of=replica)
        yield file


def run(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_command(*words, env={**CLEAN, **environ})


def shape(document: object) -> object:
    """Its names, however deep; lists have that of their first item."""
    if isinstance(document, dict):
        return {name: shape(value) for name, value in document.items()}
    return [shape(each) for each in document[:1]] if isinstance(document, list) else None


def ask(config, path: str) -> object:
    url = f"http://{tomllib.loads(config.read_text())['ops_listen']}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def test_every_command_that_prints_data_has_it_as_json():
    """But for those that are listed with their reasons; and these have it not."""
    without = {name for name, each in leaves() if "--json" not in options(each)}
    assert without == set(NO_JSON)


def test_every_command_of_a_replica_takes_its_address_and_a_token():
    """Before the command's name and after it."""
    for group in ("rooms", "leases", "limits", "jobs", "targets", "operators", "webhooks"):
        assert {"--url", "--token-file", "--config"} <= options(command(group))
        for name, each in leaves(group):
            assert {"--url", "--token-file", "--config"} <= options(each), name
    assert {"--url", "--token-file"} <= options(command("healthcheck"))


VISITOR = "v" * 22


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("healthcheck", "/readyz"),
        ("rooms list", "/admin/rooms"),
        ("rooms show shop", "/admin/rooms/shop"),
        ("rooms pause shop", "/admin/rooms/shop"),
        ("rooms resume shop", "/admin/rooms/shop"),
        ("rooms set shop message=null", "/admin/rooms/shop"),
        ("rooms events shop", "/admin/rooms/shop/events"),
        ("rooms log shop", "/admin/rooms/shop/log"),
        (f"rooms find shop {VISITOR}", f"/admin/rooms/shop/visitors/{VISITOR}"),
        ("leases list", "/v1/leases"),
        ("leases list seat", "/v1/leases/seat"),
        ("leases show seat 17", "/v1/leases/seat/17/queue"),
        ("limits list", "/v1/limits"),
        ("limits keys pay", "/v1/limits/pay/counts"),
        ("limits show pay", "/v1/limits/pay"),
        ("jobs list", "/v1/jobs"),
        ("targets list", "/v1/targets"),
        ("targets show images", "/v1/targets/images"),
        ("targets pause images", "/v1/targets/images"),
        ("targets resume images", "/v1/targets/images"),
        ("webhooks list", "/admin/webhooks"),
        ("webhooks deliveries team", "/admin/webhooks/team/deliveries"),
        ("operators list", "/admin/operators"),
        ("report shop", "/admin/rooms/shop/report"),
        ("history changes shop", "/admin/rooms/shop/changes"),
    ],
)
def test_it_is_what_the_api_responds(config, words, path):
    """Name by name; what changes a room also has the change's number, for its undoing."""
    done = run(*words.split(), "--json", "--config", config)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    if words.startswith(("rooms pause", "rooms resume", "rooms set")):
        assert said.pop("change") >= 1
    assert shape(said) == shape(ask(config, path))


def test_grants_are_as_the_api_has_them(config):
    found = json.loads(run("grant", "shop", "vip", "--json", "--config", config).stdout)
    assert set(found) == {"room", "class", "expires_at", "grants"}
    assert len(found["grants"]) == 1


def test_pages_are_put_together(config):
    """A list has all items, and says where to go on if it was cut short."""
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
        ("rooms set shop total_active_users=-1", {}, 2, "total_active_users: "),
        ("rooms set shop nothing", {}, 2, "write SETTING=VALUE"),
        ("webhooks deliveries nope", {}, 1, "no webhook is named 'nope'"),
        ("webhooks resend team --failed", {}, 0, ""),
        ("webhooks resend team", {}, 2, "or say --failed"),
        ("webhooks resend team n1", {}, 1, "There is none with the id n1"),
        ("operators log-out ann", {}, 0, ""),
        ("operators log-out eve", {}, 1, "No operator is named 'eve'"),
        ("rooms list --url ftp://x", {}, 2, "--url: write http://HOST:PORT"),
        ("rooms list --token-file none", {}, 2, "--token-file: none cannot be read"),
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
    """0 done, 1 a problem, 2 wrong use, 3 unreachable; and never a traceback."""
    takes_none = words.startswith("verify-draw")
    done = run(*words.split(), *([] if takes_none else ["--config", config]), **environ)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_says_nothing(config):
    """Exit 130, as a shell has it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [WAITROOM, "rooms", "list", "--url", url, "-c", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=CLEAN) as process:
            connection, _ = silent.accept()
            with connection:
                os.kill(process.pid, signal.SIGINT)
                _, said = process.communicate(timeout=30)
    assert (process.returncode, said.strip()) == (130, "")
