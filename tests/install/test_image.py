"""The image, built by hand from the Dockerfile's steps, with history and jobs on PostgreSQL.

No container engine is there. In place of the base image is a root of Debian 13's packages, which
has the same Python and is what the base is made from. It takes minutes, and root, so it runs where
BARE is set: make test-all BARE=1.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.install.compose import ROOT, copy_image_files, read_dockerfile, read_last_stage
from tests.support.databases import Postgresql
from tests.support.processes import Process, free_port, wait_until
from tests.support.redis_servers import RedisServer
from tests.support.target import run_target

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("BARE"), reason="takes minutes: set BARE=1"),
]
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
#: What the base image calls its programs.
NAMES = "ln -sf /usr/bin/python3 /usr/local/bin/python; ln -sf /usr/bin/pip3 /usr/local/bin/pip"
CONFIG = """
store = "{redis}"
history = "postgresql://postgres@/history?host=/database"
jobs = "postgresql://postgres@/history?host=/database"
edge_listen = "127.0.0.1:{edge}"
ops_listen = "127.0.0.1:{ops}"
admin_token = "0123456789abcdef"
service_token = "fedcba9876543210"
secret_keys = ["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"]

[rooms.shop]
total_active_users = 1

[targets.images]
url = "{target}"
private = true
"""


def run_in(root: Path, command: str, folder: str = "/") -> None:
    done = subprocess.run(
        ["chroot", root, "sh", "-euc", f"cd {folder}; {command}"],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def image():
    """The root of the last stage. Its path is short, since PostgreSQL's socket is in it."""
    folder = Path(tempfile.mkdtemp(prefix="wr-image-"))
    folder.chmod(0o755)
    base, build = folder / "base", folder / "build"
    subprocess.run([ROOT / "scripts/install-packages", "bare"], check=True, timeout=300)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", base],
        check=True, timeout=900, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    for name in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(name).exists():
            (base / name.lstrip("/")).write_bytes(Path(name).read_bytes())
    run_in(base, NAMES)
    subprocess.run(["cp", "-a", base, build], check=True)
    stages = [index for index, (name, _) in enumerate(read_dockerfile()) if name == "FROM"]
    first, last = read_dockerfile()[stages[0] : stages[1]], read_dockerfile()[stages[1] :]
    copy_image_files(build / "build")
    for name, argument in first:
        if name == "RUN":
            run_in(build, argument, "/build")
    for name, argument in last:
        if name == "RUN":
            run_in(base, argument)
        elif name == "COPY":
            _, source, target = argument.split()
            shutil.copytree(build / source.lstrip("/"), base / target.lstrip("/"), symlinks=True)
    yield base
    shutil.rmtree(folder)


def test_history_and_jobs_on_postgresql(image):
    """As the image's user: the tables are made, a visit is in the report, a job is done."""
    stage = read_last_stage()
    edge, ops = free_port(), free_port()
    settings = image / stage["WORKDIR"].lstrip("/")
    settings.mkdir(parents=True)
    (image / "database").mkdir()
    user = ["chroot", f"--userspec={stage['USER']}", image, "env", "-i",
            "PATH=/opt/waitroom/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1",
            "sh", "-c", f'cd {stage["WORKDIR"]} && exec "$@"', "sh"]  # fmt: skip
    with ExitStack() as stack:
        database = Postgresql(image / "database")
        stack.callback(database.close)
        database.start()
        redis = stack.enter_context(RedisServer())
        target = stack.enter_context(run_target(image.parent))
        (settings / "waitroom.toml").write_text(
            CONFIG.format(redis=redis.url, edge=edge, ops=ops, target=target.url)
        )

        def run(*words: str) -> str:
            done = subprocess.run(
                [*user, *words], capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        version = "import sys, asyncpg, asyncmy, aiosqlite; print(*sys.version_info[:2], sep='.')"
        base = dict(argument.split("=") for name, argument in read_dockerfile()[:1])["PYTHON"]
        assert f"python:{run('python', '-c', version).strip()}-slim-trixie" == base
        run("waitroom", "migrate")
        command = json.loads(stage["CMD"])
        replica = stack.enter_context(Process([*user, *command], log=image.parent / "serve.log"))
        stack.enter_context(Process([*user, "waitroom", "run-jobs"], log=image.parent / "jobs.log"))
        check = json.loads(stage["HEALTHCHECK"].partition("CMD ")[2])

        def is_healthy() -> bool:
            done = subprocess.run([*user, *check], check=False, capture_output=True)
            return not done.returncode

        wait_until(is_healthy, "the replica", 60, of=replica)
        ask = urllib.request.Request(f"http://127.0.0.1:{edge}/gate/shop/")
        assert urllib.request.urlopen(ask, timeout=10).status == 200
        # I expect the worker to make the call, and the visit to be in the history.
        result = run("waitroom", "jobs", "submit", "images", "--path", "ok", "--wait")
        assert json.loads(result)["path"].endswith("/ok")
        report = ["waitroom", "report", "shop", "--json"]
        wait_until(lambda: re.search(r'"admitted_at_once": ?1\b', run(*report)), "a row")
