"""A command starts quickly, and Ctrl-C ends it at any moment."""

import json
import subprocess
import sys

import pytest

from tests.support.processes import CLEAN

#: What takes long to import, and is needed by a few commands.
HEAVY = {
    "aiohttp", "alembic", "argon2", "asyncio", "httpx2", "prometheus_client", "pydantic", "redis",
    "rich", "sidecar.settings.model", "sqlalchemy", "structlog", "uvloop", "yarl",
}  # fmt: skip
#: The client's.
CLIENT = {"asyncio", "httpx2"}
#: Prints what a command has imported when it is done.
PROGRAM = """
import json, sys
from sidecar.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "needed", "most"),
    [
        ("--version", set(), 160),
        ("rooms --help", set(), 200),
        ("--help", {"asyncio"}, 300),
        ("rooms list --url http://127.0.0.1:1 --token-file TOKEN", CLIENT, 400),
    ],
)
def test_a_command_imports_what_it_needs(words, needed, most, tmp_path):
    """A command imports only the heavy modules that it needs, and few in all."""
    (tmp_path / "TOKEN").write_text("t" * 20)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()], cwd=tmp_path, env=CLEAN,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    imported = json.loads(done.stderr.splitlines()[-1])
    assert HEAVY & set(imported) == needed
    assert len(imported) <= most


#: Runs the command, and presses Ctrl-C at its Nth import.
INTERRUPTED = """
import os, signal, sys
at = [int(sys.argv.pop(1))]
def look(event, _):
    if event == "import":
        at[0] -= 1
        if at[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
from sidecar.__main__ import main
sys.addaudithook(look)
main()
"""


@pytest.mark.parametrize("at", [1, 2, 10, 40, 80, 160, 240])
def test_ctrl_c_ends_it_at_any_moment(at):
    """Ctrl-C at any import exits with 130 and no traceback."""
    words = ["rooms", "list", "--url", "http://127.0.0.1:1", "--token-file", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(at), *words], env=CLEAN,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_who_ignores_ctrl_c_from_the_start_goes_on():
    """A process that was started to ignore Ctrl-C, as in the background, goes on."""
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", INTERRUPTED, "40"]
    done = subprocess.run(
        [*command, "--version"], env=CLEAN, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0
