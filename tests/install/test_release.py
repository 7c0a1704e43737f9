"""What would be released: wheel and sdist are whole, and the wheel runs by itself.

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
from tests.support.compose import ROOT
from tests.support.processes import Process, free_port, wait_until
from tests.support.redis_servers import RedisServer

#: Megabytes beside Python that an installation may take, Python's caches left out.
MAX_MB = 60


def python(*words: object, **options: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=300, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The wheel, made from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    python("build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def requirements(released):
    """The distributions that the wheel needs, with the lower bound of each."""
    with ZipFile(released[0]) as archive:
        text = archive.read(f"waitroom-{__version__}.dist-info/METADATA").decode()
    found = {}
    for line in Parser().parsestr(text).get_all("Requires-Dist"):
        if "extra ==" in line and "memory" not in line:
            continue
        name, bounds = re.fullmatch(r"([\w.-]+(?:\[[\w,]+\])?)([^;]*).*", line).groups()
        found[name] = bounds
    return found


def test_both_are_whole(released):
    """twine and check-wheel-contents find nothing wrong, and the sdist has what a wheel is of."""
    wheel, sdist = released
    python("twine", "check", "--strict", wheel, sdist)
    python("check_wheel_contents", wheel)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "sidecar/app/replica.py",
        "waitroom/py.typed",
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
    """An environment with the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder, with_pip=False, symlinks=True)  # an interpreter is none of our size
    pins = [
        re.sub(r"^>=([\w.]+).*", rf"{name}==\1", ">=" + bounds.partition(">=")[2])
        for name, bounds in requirements.items()
    ]  # fmt: skip
    wanted = pins if request.param == "lowest" else []
    python(
        "pip", "--python", folder / "bin" / "python", "install", "--quiet",
        "--disable-pip-version-check", "--no-compile", f"{released[0]}[memory]", *wanted,
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
