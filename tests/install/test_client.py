"""What an application installs for `from waitroom import Client`: the client's wheel in an empty
environment, on the oldest and the newest Python of this machine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.installation import installation
from tests.support.site import ADMIN_TOKEN, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.server]

#: How many packages there may be, and megabytes without Python's caches.
MAX_PACKAGES, MAX_MB = 8, 6
RULES = """
[limits.pay]
algorithm = "leaky_bucket"
limit = 10
window = "1s"
on_exceed = "pace"
key = "{biz}:{channel}"
"""
#: Follows the blocks of docs/client.md. Prints which library AsyncClient uses.
ASYNC = """
import asyncio, sys
from waitroom import AsyncClient

async def main():
    async with AsyncClient(client_addresses, token=token) as client:
        await asyncio.gather(*(client.jobs.get(job["id"]) for _ in range(20)))
        print(type(client._core._transport).__name__)

asyncio.run(main())
"""


def find_pythons() -> dict[str, str]:
    """Return the oldest and the newest Python from 3.11 on, by version. They may be the same."""
    found = {sys.version_info[:2]: sys.executable}
    folders = [
        *Path.home().glob(".pyenv/versions/3.*/bin"),
        Path("/usr/bin"),
        Path("/usr/local/bin"),
    ]
    for minor in range(11, 20):
        for folder in folders:
            if (program := shutil.which(f"python3.{minor}", path=folder)) is not None:
                found.setdefault((3, minor), program)
    ends = min(found), max(found)
    return {".".join(map(str, version)): found[version] for version in ends}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT / "client"])
    (file,) = folder.glob("waitroom_client-*.whl")
    return file


@pytest.fixture(scope="module")
def service():
    with installation(RULES) as service:
        yield service


def run(command: list[object], **options: object) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=200, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def size_mb(folder: Path) -> float:
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return sum(file.stat().st_size for file in files) / 1e6


@pytest.mark.parametrize("version", (PYTHONS := find_pythons()))
def test_it_is_all_that_a_program_needs(wheel, service, tmp_path, version):
    """Few packages and megabytes, and the lines of docs/client.md do what they say; with aiohttp,
    which is installed then, AsyncClient uses that."""
    run([PYTHONS[version], "-m", "venv", "--without-pip", tmp_path / "env"])
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    install = [*pip, "install", "-q", "--no-compile"]
    run([*install, f"waitroom-client @ {wheel.as_uri()}"])
    listed = run([*pip, "list", "--format=freeze"]).split()
    (packages,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    print(*listed, f"{size_mb(packages):.1f} MB")
    assert len(listed) <= MAX_PACKAGES
    assert size_mb(packages) <= MAX_MB
    follow_page(python, service, "AsyncHttpxTransport")
    run([*install, f"waitroom-client[aiohttp] @ {wheel.as_uri()}"])
    follow_page(python, service, "AiohttpTransport")


def follow_page(python, service, transport):
    """Run the Python blocks of docs/client.md, and AsyncClient."""
    text = (ROOT / "docs/client.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    lines = re.sub(
        r'Client\(.*, token="…"', "Client(client_addresses, token=token", "".join(blocks)
    )
    names = f"client_addresses, token = {service.urls!r}, {ADMIN_TOKEN!r}\n"
    said = run([python, "-I", "-X", "dev", "-c", names + lines + ASYNC])
    fence, done, second_fence, *others, used = said.splitlines()
    assert 0 < int(fence.split()[-1]) < int(second_fence.split()[-1])
    assert [done, *others] == 3 * ["completed 200 None"]
    assert used == transport
