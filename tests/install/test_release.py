"""What would be released: wheels and sdists are whole, and the wheels run by themselves.

In an empty environment of its own, with the lowest versions that its metadata allow, and with the
newest.
"""

import os
import re
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import venv
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from sidecar import __version__
from tests.install.compose import ROOT
from tests.support.processes import Process, free_port, wait_until
from tests.support.redis_servers import RedisServer

#: Megabytes beside Python that an installation may take, Python's caches left out.
MAX_MB = 60
CLIENT = f"waitroom-client=={__version__}"


def python(*words: object, **options: object) -> str:
    """Run a module, with the server's requirement of the client that `make wheel` sets."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        env={**os.environ, "WAITROOM_CLIENT": f"=={__version__}"},
        capture_output=True, text=True, check=False, timeout=300, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Build both sdists and the wheels from them. Return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    for source in (ROOT, ROOT / "client"):
        python("build", "--outdir", folder, source)
    return folder


@pytest.fixture(scope="module")
def requirements(released):
    """Return the version bounds of the other projects that the wheels need, by name."""
    lines = []
    for wheel in released.glob("*.whl"):
        with ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            lines += Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist")
    found = {}
    for line in lines:
        if "extra ==" in line and not re.search("memory|aiohttp", line):
            continue
        name, bounds = re.fullmatch(r"([\w.-]+(?:\[[\w,]+\])?)([^;]*).*", line).groups()
        found[name] = bounds
    # The server needs the client of its own version.
    (client,) = (name for name in found if name.startswith("waitroom-client"))
    assert client.partition("[")[0] + found.pop(client) == CLIENT
    return found


def test_all_are_whole(released):
    """twine and check-wheel-contents find nothing wrong, and the sdist has what both wheels are
    of."""
    python("twine", "check", "--strict", *released.iterdir())
    for wheel in released.glob("*.whl"):
        python("check_wheel_contents", "--config", ROOT / "pyproject.toml", wheel)
    with tarfile.open(next(released.glob("waitroom-*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "sidecar/app/replica.py",
        "client/pyproject.toml",
        "client/waitroom/py.typed",
        "static/waiting.html",
    } <= (names | {"LICENSE"})
    assert {name.partition("/")[0] for name in names} >= {"nginx", "deploy"}


def test_each_requirement_has_bounds(requirements):
    """A major version that does not exist yet may break us, so none is allowed in advance."""
    without = [name for name, bounds in requirements.items() if not re.search(r"<\d", bounds)]
    # Dated versions: they have no majors.
    assert set(without) <= {"tzdata"}
    assert all(">=" in bounds for bounds in requirements.values())


@pytest.fixture(scope="module", params=["lowest", "newest"])
def installed(request, released, requirements, tmp_path_factory):
    """Create an environment with the wheel and its requirements, and nothing else."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder, with_pip=False, symlinks=True)  # an interpreter is none of our size
    pins = [
        re.sub(r"^>=([\w.]+).*", rf"{name}==\1", ">=" + bounds.partition(">=")[2])
        for name, bounds in requirements.items()
    ]  # fmt: skip
    wanted = pins if request.param == "lowest" else []
    python(
        "pip", "--python", folder / "bin" / "python", "install", "--quiet",
        "--disable-pip-version-check", "--no-compile", "--find-links", released,
        f"waitroom[memory]=={__version__}", *wanted,
    )  # fmt: skip
    return folder


def size_mb(folder: Path) -> float:
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc") / 1e6


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("store", ["redis", "memory"])
def test_it_serves(installed, tmp_path, store):
    """With Redis, and with memory://: one visitor is let in, and the next one waits."""
    edge, ops = free_port(), free_port()
    with RedisServer() as redis:
        address = "memory://" if store == "memory" else f"redis://127.0.0.1:{redis.port}/0"
        environ = {
            "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1",
            "WAITROOM_STORE": address, "WAITROOM_SECRET_KEYS": "k" * 40,
            "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "1",
            "WAITROOM_EDGE_LISTEN": f"127.0.0.1:{edge}", "WAITROOM_OPS_LISTEN": f"127.0.0.1:{ops}",
        }  # fmt: skip
        command = [str(installed / "bin" / "waitroom"), "serve"]
        with Process(command, log=tmp_path / "log", cwd=tmp_path, env=environ) as replica:
            ready = f"http://127.0.0.1:{ops}/readyz"
            wait_until(lambda: status(ready) == 200, "the replica", of=replica)
            check = f"http://127.0.0.1:{edge}/check"
            answers = [status(check, **{"X-Waitroom-Room": "shop"}) for _ in range(2)]
            assert answers == [204, 401]


def test_it_is_small(installed):
    assert size_mb(installed) < MAX_MB
