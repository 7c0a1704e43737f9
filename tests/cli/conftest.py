"""Fixtures for tests of commands: a replica to call, with rooms, leases, limits and targets."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from tests.support.processes import (
    CLEAN,
    WAITROOM,
    Process,
    forget_settings,
    free_port,
    run_command,
    wait_until,
)

#: The first lines of each replica's settings file.
HEAD = """
edge_listen = "unix:{folder}/edge"
ops_listen = "127.0.0.1:{port}"
admin_token = "0123456789abcdef"
secret_keys = ["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"]
"""
CONFIG = """
operators.ann.role = "viewer"
operators.ann.password = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG"
history = "sqlite:///{folder}/history.db"
rooms.shop.total_active_users = 1
rooms.shop.classes.vip.head_start = "5m"
leases.seat = {{ term = "1h", capacity = 2 }}
leases.desk.term = "90s"
targets.images.url = "http://127.0.0.1:1/"
targets.images.private = true
webhooks.team.url = "http://127.0.0.1:1/"

[limits.pay]
algorithm = "fixed_window"
key = "{{biz}}:{{channel}}"
limit = 20
window = "1d"
values = {{ "refund:wx" = 1 }}

[limits.slots]
algorithm = "concurrency"
limit = 3
lease = "30s"
"""


@contextmanager
def _start_replica(folder: Path, text: str) -> Iterator[Path]:
    """Start a replica with HEAD and these settings. Yield the path of its settings file."""
    file = folder / "waitroom.toml"
    file.write_text((HEAD + text).format(folder=folder, port=free_port()))
    command = [WAITROOM, "serve", "--config", str(file)]
    with Process(command, log=folder / "log", env=CLEAN, cwd=folder) as replica:
        is_ready = lambda: run_command("healthcheck", "-c", file, env=CLEAN).returncode == 0  # noqa: E731
        wait_until(is_ready, "the replica", of=replica)
        yield file


@pytest.fixture(scope="session")
def start_replica():
    """Return a context manager that starts a replica of a folder and a settings file's text."""
    return _start_replica


@pytest.fixture(scope="session")
def config(tmp_path_factory, start_replica):
    """Start a replica with its store in memory. Return the path of its settings file."""
    with start_replica(tmp_path_factory.mktemp("waitroom"), CONFIG) as file:
        yield file


@pytest.fixture(scope="session")
def url(config):
    """Return the URL of the replica's ops listener."""
    return f"http://{tomllib.loads(config.read_text())['ops_listen']}"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Change to an empty folder, so that no settings are found, and unset their variables."""
    monkeypatch.chdir(tmp_path)
    forget_settings(monkeypatch)
    return tmp_path


@pytest.fixture
def run(config, monkeypatch):
    """Return a function that runs a command for the replica. The command runs in this process,
    which is fifty times as fast as a new one."""
    forget_settings(monkeypatch)
    return lambda group, *words: CliRunner().invoke(main, [group, "--config", str(config), *words])
