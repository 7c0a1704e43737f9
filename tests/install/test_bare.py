"""The README on a bare Debian 12 and a bare Ubuntu 24.04: what it says to type, typed as it stands.

A root of the distribution's packages and nothing else. It takes minutes, and root, so it runs where
BARE is set: make test-all BARE=1.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar import __version__
from tests.install.compose import ROOT

README = (ROOT / "README.md").read_text()
PACKAGES = "ca-certificates,curl,sudo,python3-venv,iproute2"
#: What stands for a user: an answer to apt, a site that is there, and the two edits of its file.
BEFORE = """
set -eu
export DEBIAN_FRONTEND=noninteractive PIP_FIND_LINKS=/wheel PIP_DISABLE_PIP_VERSION_CHECK=1
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
apt() { command apt-get -y -qq "$@" >/dev/null; }
sudo() { if [ "$1" = apt ]; then shift; apt "$@"; else command sudo --preserve-env "$@"; fi; }
echo '127.0.0.1 localhost shop.example' > /etc/hosts
"""
AFTER = """
redis-server --daemonize yes >/dev/null
site=/etc/nginx/sites-available/default
sed -i 's#^\\tlocation / {#\\tSERVER\\n&\\n\\t\\tset $waitroom_room shop;\\n\\t\\tLOCATION#' $site
sed -i 's#SERVER#include waitroom/server.conf;#; s#LOCATION#include waitroom/location.conf;#' $site
sed -i 's/total_active_users = 100/total_active_users = 1/' /etc/waitroom/waitroom.toml
waitroom serve > /serve.log 2>&1 &
timeout 120 sh -c 'until waitroom healthcheck >/dev/null 2>&1; do sleep 0.2; done'
nginx -t 2>&1; nginx
for visitor in 1 2; do curl -s -o /dev/null -w 'visitor %{http_code}\\n' http://shop.example/; done
waitroom doctor http://shop.example/
waitroom rooms list
"""


def block_after(heading: str) -> str:
    """The first lines of the README, to be typed, after these words."""
    found = re.search(r"```sh\n(.*?)```", README[README.index(heading) :], re.DOTALL)
    assert found
    return found[1]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("BARE"), reason="takes minutes: set BARE=1"),
]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("suite", ["bookworm", "noble"])
def test_run_and_test_from_nothing(suite, tmp_path):
    """Two visitors get in and the third one waits; every test of make test passes."""
    done = subprocess.run(
        [ROOT / "tests/install/bare.sh", suite, tmp_path / "root"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout[-5000:], done.stderr[-5000:])
    assert done.returncode == 0
    assert re.findall(r"^visitor \d: (\d+)", done.stdout, re.MULTILINE) == ["200", "200", "503"]


def test_a_server_by_the_readme(tmp_path):
    """One visitor is inside, the next one waits, the doctor finds nothing wrong."""
    root = tmp_path / "root"
    subprocess.run([ROOT / "scripts/install-packages", "bare"], check=True, timeout=300)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root],
        check=True, timeout=300,
    )  # fmt: skip
    (root / "wheel").mkdir()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", root / "wheel",
         ROOT, ROOT / "client"],
        env={**os.environ, "WAITROOM_CLIENT": f"=={__version__}"}, check=True, timeout=300,
    )  # fmt: skip
    for name in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        (root / name.lstrip("/")).write_bytes(Path(name).read_bytes())
    (root / "steps.sh").write_text(BEFORE + block_after("**On your server**"))
    (root / "after.sh").write_text("set -eu\n" + AFTER)
    # Its packages come over the machine's network; what it serves is in one of its own.
    steps = [["chroot", root, "bash", "/steps.sh"]]
    inside = f"ip link set lo up && mount -t proc proc {root}/proc && chroot {root} bash /after.sh"
    steps.append(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inside]
    )
    said = ""
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=400)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
    assert re.findall(r"^visitor (\d+)", said, re.MULTILINE) == ["200", "503"]
    assert "Everything is right." in said
