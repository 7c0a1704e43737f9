"""What is not installed: the command and a replica do without, and say what a setting needs."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.install.compose import ROOT

#: What the extras bring.
EXTRAS = ("sqlalchemy", "aiosqlite", "alembic", "asyncmy", "asyncpg", "fakeredis", "lupa")
KEYS = f'secret_keys = ["{"k" * 40}"]\n'
ROOM = "rooms.shop.total_active_users = 1\n"
TARGET = 'targets.images.url = "https://images.example/"\n'
REDIS = 'store = "redis://127.0.0.1:1/0"\n'
HISTORY = 'history = "sqlite:///h.db"\n'
PORTS = 'edge_listen = "unix:edge"\nops_listen = "unix:ops"\n'
#: Words and settings.
FINE = [
    (("--help",), ""),
    (("check-config",), ROOM + HISTORY),
    (("grant", "shop", "vip"), ROOM + "rooms.shop.classes = { vip = { priority = 1 } }\n"),
    (("nginx-key", "-"), ROOM),
]
#: And the setting and the extra that are named.
NEEDED = [
    (("serve",), ROOM, "store", "memory"),
    (("serve",), ROOM + REDIS + HISTORY, "history", "sql"),
    (("serve",), TARGET + REDIS, "jobs", "sql"),
    (("run-jobs",), TARGET + REDIS, "jobs", "sql"),
    (("migrate",), TARGET + REDIS, "jobs", "sql"),
    (("report", "shop"), ROOM + HISTORY, "history", "sql"),
]
#: Runs commands, each in a folder and a fork of this process. Prints their exit codes.
FORKS = f"""
import json, os, sys
sys.modules.update(dict.fromkeys({EXTRAS}))
import sidecar.app.replica, waitroom
from sidecar.cli import main
for folder, words in json.load(sys.stdin):
    if (pid := os.fork()) == 0:
        os.chdir(folder)
        os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(2, 1)
        sys.argv[1:] = words
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the commands where nothing of the extras can be imported. Return a function that returns
    the exit code and the output of one of them."""
    cases, folders = [*FINE, *((words, PORTS + more) for words, more, *_ in NEEDED)], []
    for _, settings in cases:
        folders.append(tmp_path_factory.mktemp("extras"))
        (folders[-1] / "waitroom.toml").write_text(KEYS + settings)
    orders = [(str(folder), words) for folder, (words, _) in zip(folders, cases, strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", FORKS], input=json.dumps(orders), capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended = zip(map(int, done.stdout.split()), folders, strict=True)
    by_case = dict(zip(cases, ended, strict=True))
    return lambda *case: (by_case[case][0], (by_case[case][1] / "stderr").read_text())


@pytest.mark.parametrize(("words", "settings"), FINE)
def test_the_command_does_without(run, words, settings):
    """No extra is imported by what needs none."""
    code, output = run(words, settings)
    assert (code, "rror" in output) == (0, False), output


@pytest.mark.parametrize(("words", "settings", "setting", "extra"), NEEDED)
def test_what_is_needed_is_named(run, words, settings, setting, extra):
    """The setting, and the extra that it needs; no traceback."""
    code, output = run(words, PORTS + settings)
    assert code == 1
    named = re.search(rf"{setting}: \w+ is not installed; install it: (.*)", output)
    assert named
    # I expect the command to install from the clone that this installation came from.
    python, *pip, source = shlex.split(named[1])
    assert (python, pip) == (sys.executable, ["-m", "pip", "install", "-e"])
    assert source == f"{ROOT}[{extra}]"
    assert "Traceback" not in output
