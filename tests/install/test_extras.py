"""What is not installed: the command and a replica do without, and say what a setting needs."""

import re
import subprocess
import sys

import pytest

#: What the extras bring.
EXTRAS = ("sqlalchemy", "aiosqlite", "alembic", "asyncmy", "asyncpg", "fakeredis", "lupa")
KEYS = f'secret_keys = ["{"k" * 40}"]\n'
ROOM = "rooms.shop.total_active_users = 1\n"
TARGET = 'targets.images.url = "https://images.example/"\n'
REDIS = 'store = "redis://127.0.0.1:1/0"\n'


@pytest.fixture
def run(tmp_path):
    """Runs the command where nothing of the extras can be imported."""

    def run(*words: str, settings: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "waitroom.toml").write_text(KEYS + settings)
        code = (
            f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))\n"
            "import sidecar.app.replica, waitroom\n"
            "from sidecar.cli import main; main()"
        )
        return subprocess.run(
            [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (("--help",), ""),
        (("check-config",), ROOM + 'history = "sqlite:///h.db"\n'),
        (("grant", "shop", "vip"), ROOM + "rooms.shop.classes = { vip = { priority = 1 } }\n"),
        (("nginx-key", "-"), ROOM),
    ],
)
def test_the_command_does_without(run, words, settings):
    """No extra is imported by what needs none."""
    done = run(*words, settings=settings)
    assert (done.returncode, "rror" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("words", "settings", "setting", "extra"),
    [
        (("serve",), ROOM, "store", "memory"),
        (("serve",), ROOM + REDIS + 'history = "sqlite:///h.db"\n', "history", "sql"),
        (("serve",), TARGET + REDIS, "jobs", "sql"),
        (("run-jobs",), TARGET + REDIS, "jobs", "sql"),
        (("migrate",), TARGET + REDIS, "jobs", "sql"),
        (("report", "shop"), ROOM + 'history = "sqlite:///h.db"\n', "history", "sql"),
    ],
)
def test_what_is_needed_is_named(run, words, settings, setting, extra):
    """The setting, and the extra that it needs; no traceback."""
    ports = 'edge_listen = "unix:edge"\nops_listen = "unix:ops"\n'
    done = run(*words, settings=ports + settings)
    assert done.returncode == 1
    assert re.search(
        rf'{setting}: \w+ is not installed; install it: pip install "waitroom\[{extra}\]"',
        done.stderr,
    )
    assert "Traceback" not in done.stderr
