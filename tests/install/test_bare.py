"""README, install.md, upgrade.md and loadtest.md on a bare Debian 12 and a bare Ubuntu 24.04: what
they say to type, typed as it stands. systemd boots the servers. test_docker.py types the rest.

A root of the distribution's packages and nothing else. It takes minutes, and root, so it runs where
BARE is set: make test-all BARE=1.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.install.compose import ROOT
from tests.install.pages import block_after, blocks_of

PACKAGES = "ca-certificates,curl,git,sudo,python3-venv,iproute2,procps,systemd-sysv,dbus"
#: What stands for a user: an answer to apt, a site that is there, and the edits of its files.
BEFORE = """
set -eu
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
apt() { command apt-get -y -qq "$@" >/dev/null; }
sudo() { if [ "$1" = apt ]; then shift; apt "$@"; else command sudo --preserve-env "$@"; fi; }
echo "127.0.0.1 localhost shop.example $(cat /etc/hostname)" > /etc/hosts
mkdir -p /run/systemd/system
cd /waitroom
"""
EDITS = """
set -eu
cd /waitroom
sed -i 's/^appendonly no/appendonly yes/' /etc/redis/redis.conf
sudo systemctl restart redis-server
site=/etc/nginx/sites-available/default
sed -i 's#^\\tlocation / {#\\tSERVER\\n&\\n\\t\\tset $waitroom_room shop;\\n\\t\\tLOCATION#' $site
sed -i 's#SERVER#include waitroom/server.conf;#; s#LOCATION#include waitroom/location.conf;#' $site
visit() { sleep 1; curl -s -o /dev/null -w 'visitor %{http_code}\\n' http://shop.example/; }
users() { sed -i "s/total_active_users = .*/total_active_users = $1/" /etc/waitroom/waitroom.toml; }
"""
#: What a user does to settings.conf.
EDITOR = r"""#!/bin/sh
first='server unix:/run/waitroom/edge-1.sock max_fails=0;'
sed -i "s#server 127.*#$first\n    $(echo "$first" | sed s/edge-1/edge-2/)#" "$1"
"""
#: What a user writes for the sections on jobs and on a history.
DATABASES = """
sed -i '1i jobs = "sqlite:////var/lib/waitroom/jobs.db"' /etc/waitroom/waitroom.toml
sed -i '1i history = "sqlite:////var/lib/waitroom/history.db"' /etc/waitroom/waitroom.toml
printf '\\n[targets.images]\\nurl = "http://127.0.0.1:9/"\\n' >>/etc/waitroom/waitroom.toml
"""
#: Types the steps in a system that has booted, and ends it.
UNIT = """
[Unit]
After=redis-server.service nginx.service
SuccessAction=exit
FailureAction=exit
FailureActionExitStatus=1
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=bash /after.sh
StandardOutput=file:/after.log
StandardError=inherit
"""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("BARE"), reason="takes minutes: set BARE=1"),
]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("suite", ["bookworm", "noble"])
def test_run_and_test_from_nothing(suite, tmp_path):
    """Two visitors get in and the third one waits; loadtest.md loads them; every test of make test
    passes."""
    done = subprocess.run(
        [ROOT / "tests/install/bare.sh", suite, tmp_path / "root"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout[-5000:], done.stderr[-5000:])
    assert done.returncode == 0
    assert re.findall(r"^visitor \d: (\d+)", done.stdout, re.MULTILINE) == ["200", "200", "503"]
    assert "runs from /waitroom/sidecar/" in done.stdout


def make_root(suite: str, root: Path) -> None:
    """Create a root of the distribution with a clone at /waitroom."""
    subprocess.run([ROOT / "scripts/install-packages", "bare"], check=True, timeout=300)
    keys = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    of_ubuntu = ["--components=main,universe", *([] if keys.exists() else ["--no-check-gpg"])]
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}",
         *(of_ubuntu if suite == "noble" else []), suite, root, "",
         f"/usr/share/debootstrap/scripts/{'gutsy' if suite == 'noble' else suite}"],
        check=True, timeout=500, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(["git", "clone", "--quiet", ROOT, root / "waitroom"], check=True, timeout=60)
    for name in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        (root / name.lstrip("/")).write_bytes(Path(name).read_bytes())


def run_pages(root: Path, network: str, steps: str) -> str:
    """Run commands that need the network, then boot the root, by systemd and without a network, and
    type the steps. Return what they said."""
    (root / "before.sh").write_text(f"{BEFORE}\n{network}\nrm /usr/sbin/policy-rc.d")
    (root / "after.sh").write_text(f"{EDITS}\n{steps}")
    units = root / "etc/systemd/system"
    (units / "steps.service").write_text(UNIT)
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "steps.service").symlink_to("../steps.service")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    gone = ("PIP_FIND_LINKS", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in gone}
    inside = f"mount -t proc proc {root}/proc && exec chroot {root} bash /before.sh"
    boot = ["systemd-nspawn", "--quiet", "--boot", "--keep-unit", "--register=no",
            "--private-network", f"--machine=bare-{os.getpid()}", f"-D{root}"]  # fmt: skip
    for command in (
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inside], boot
    ):  # fmt: skip
        done = subprocess.run(
            command, env={**env, "HOME": "/root", "PATH": path},
            capture_output=True, text=True, check=False, timeout=800,
        )  # fmt: skip
        log = root / "after.log"
        said = done.stdout + done.stderr + (log.read_text() if log.exists() else "")
        print(said)
        assert done.returncode == 0, said
    return log.read_text()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suite", ["bookworm", "noble"])
def test_a_server_by_the_pages(suite, tmp_path):
    """README's way on a server, the steps of install.md that start and check it, and upgrade.md:
    one visitor is inside, the next one waits, the doctor finds nothing wrong, before and after."""
    root = tmp_path / "root"
    make_root(suite, root)
    first, *rest = block_after("## With pipx", "docs/upgrade.md").splitlines(keepends=True)
    assert "pipx reinstall" in first
    start = block_after("4. **Start the replicas", "docs/install.md")
    check = block_after("5. **Check.**", "docs/install.md")
    upgrade = "".join(rest)
    said = run_pages(
        root, block_after("**On your server**") + first,
        f"users 1\n{start}\nvisit; visit\n{check}\n{upgrade}\nvisit\n{check}",
    )  # fmt: skip
    assert re.findall(r"^visitor (\d+)", said, re.MULTILINE) == ["200", "503", "503"]
    assert said.count("Everything is right.") == 2


@pytest.mark.timeout(1800)
def test_a_server_by_hand(tmp_path):
    """install.md's "With systemd" and upgrade.md's, block after block: the same as above, and a
    reload lets one more visitor in; what is removed is gone."""
    root = tmp_path / "root"
    make_root("bookworm", root)
    packages, program, *steps = blocks_of("docs/install.md", "## With systemd")
    user, secrets, start, includes, key, jobs, daily, history, remove = steps
    *before_restart, restart = (line for line in daily.splitlines() if "--follow" not in line)
    assert ("editor" in includes, "reload" in before_restart[-1]) == (True, True)
    (root / "usr/local/bin/editor").write_text(EDITOR)
    (root / "usr/local/bin/editor").chmod(0o755)
    (upgrade,) = blocks_of("docs/upgrade.md", "## With systemd")
    lines = upgrade.splitlines()
    network = [line for line in lines if line.startswith("version=") or "/opt/waitroom/$" in line]
    assert len(network) == 3
    # diff finds the two replicas.
    rest = [line.replace("diff ", "! diff ") for line in lines if line not in network[1:]]
    doctor = "sudo waitroom doctor http://shop.example/"
    said = run_pages(root, "\n".join([packages, program, *network]), "\n".join([
        user, secrets, "users 1", start, includes,
        "echo 'include waitroom/http.conf;' >/etc/nginx/conf.d/waitroom.conf", key,
        "visit; visit", doctor, DATABASES, history, jobs, "users 100", *before_restart,
        "sleep 3; visit", "users 1", restart, *rest, "visit", doctor,
        "sed -i /waitroom/d $site; sudo nginx -t && sudo systemctl reload nginx",
        "sudo systemctl disable --now waitroom-jobs", remove, "visit",
    ]))  # fmt: skip
    visits = re.findall(r"^visitor (\d+)", said, re.MULTILINE)
    assert visits == ["200", "503", "200", "503", "200"]
    assert said.count("Everything is right.") == 2
    for gone in ("opt/waitroom", "etc/waitroom", "etc/nginx/waitroom", "usr/local/sbin/waitroom"):
        assert not (root / gone).exists()
