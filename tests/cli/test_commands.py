"""What holds for every command: help, completion, versions, and where mistakes are."""

import json
import platform
import subprocess

import click
import pytest
from click.testing import CliRunner

from sidecar import __version__
from sidecar.cli import main
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.server
WRONG = 'store = "memory://"\n\n[rooms.shop]\ntotal_active_user = 3\n'


def paths(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    for name, each in getattr(command, "commands", {}).items():
        found += paths(each, (*path, name))
    return found


def run(*words: str, **environ: str):
    return CliRunner(env=environ).invoke(main, list(words))


@pytest.mark.parametrize("path", paths(main), ids=" ".join)
def test_help_needs_no_configuration(path, tmp_path, monkeypatch):
    """-h and --help of every command, in a folder with nothing."""
    monkeypatch.chdir(tmp_path)
    short, long = run(*path, "-h"), run(*path, "--help")
    assert (short.exit_code, short.output) == (0, long.output)
    assert short.output.startswith("Usage: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    """For each shell; without one it is that of $SHELL, and an unknown one is refused."""
    said = run("completion", shell)
    assert said.exit_code == 0
    assert "_WAITROOM_COMPLETE" in said.output
    assert run("completion", SHELL=f"/usr/bin/{shell}").output == said.output
    assert run("completion", SHELL="/bin/sh").exit_code == 2


def test_bash_reads_it(tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(run("completion", "bash").output)
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=10)


def test_versions(tmp_path, monkeypatch):
    """This program's and Python's; and Redis', where the settings name one that answers."""
    monkeypatch.chdir(tmp_path)
    first = f"waitroom {__version__}, Python {platform.python_version()}\n"
    assert run("--version").output == first
    with RedisServer() as redis:
        environ = {
            "WAITROOM_STORE": f"redis://127.0.0.1:{redis.port}/0",
            "WAITROOM_SECRET_KEYS": "k" * 40,
            "WAITROOM_ROOMS__A__TOTAL_ACTIVE_USERS": "1",
        }
        said = run("--version", **environ).output
        assert said.startswith(f"{first}Redis ")
    assert run("--version", **environ).output.startswith(f"{first}Redis does not answer")


def test_mistakes_have_their_lines(tmp_path):
    """The setting's own, or that of the table that should have it."""
    file = tmp_path / "waitroom.toml"
    file.write_text(WRONG)
    done = run("check-config", "-c", str(file), "--no-secrets")
    assert done.exit_code == 1
    assert f"{file}:3: rooms.shop.total_active_users: is needed" in done.output
    assert f"{file}:4: rooms.shop.total_active_user: unknown setting" in done.output
    assert "secret_keys" not in done.output
    document = json.loads(run("check-config", "-c", str(file), "--json").stdout)
    assert {problem["line"] for problem in document["problems"]} == {None, 3, 4}


def test_a_right_one_without_its_secrets(tmp_path):
    """As where a change is tested: the files with the secrets are elsewhere."""
    file = tmp_path / "waitroom.toml"
    file.write_text(
        'secret_keys_file = "nowhere"\nadmin_token_file = "nowhere"\n'
        + WRONG.replace("_user ", "_users ")
    )
    done = run("check-config", "-c", str(file), "--no-secrets")
    assert (done.exit_code, done.stdout[:27]) == (0, "The configuration is right:")
    assert "nowhere cannot be read" in run("check-config", "-c", str(file)).output


def test_secrets_are_read_from_files(tmp_path):
    """Beside the settings file; a variable goes before them."""
    (tmp_path / "key").write_text("k" * 40 + "\n")
    file = tmp_path / "waitroom.toml"
    file.write_text('secret_keys_file = "key"\n' + WRONG.replace("_user ", "_users "))
    assert run("check-config", "-c", str(file)).exit_code == 0
    (tmp_path / "key").unlink()
    assert run("check-config", "-c", str(file)).exit_code == 1
    assert run("check-config", "-c", str(file), WAITROOM_SECRET_KEYS="k" * 40).exit_code == 0
