"""README, install.md, upgrade.md and loadtest.md on a bare Debian 12 and a bare Ubuntu 24.04: what
they say to type, typed as it stands. No systemd and no container engine run there.

A root of the distribution's packages and nothing else. It takes minutes, and root, so it runs where
BARE is set: make test-all BARE=1.
"""

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.install.compose import ROOT

PACKAGES = "ca-certificates,curl,git,sudo,python3-venv,iproute2,procps,systemd"
#: What stands for a user: an answer to apt, a site that is there, and the two edits of its file.
BEFORE = """
set -eu
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
apt() { command apt-get -y -qq "$@" >/dev/null; }
sudo() { if [ "$1" = apt ]; then shift; apt "$@"; else command sudo --preserve-env "$@"; fi; }
echo '127.0.0.1 localhost shop.example' > /etc/hosts
mkdir -p /run/systemd/system
cd /waitroom
"""
EDITS = """
cd /waitroom
redis-server --daemonize yes >/dev/null
site=/etc/nginx/sites-available/default
sed -i 's#^\\tlocation / {#\\tSERVER\\n&\\n\\t\\tset $waitroom_room shop;\\n\\t\\tLOCATION#' $site
sed -i 's#SERVER#include waitroom/server.conf;#; s#LOCATION#include waitroom/location.conf;#' $site
sed -i 's/total_active_users = 100/total_active_users = 1/' /etc/waitroom/waitroom.toml
visit() { curl -s -o /dev/null -w 'visitor %{http_code}\\n' http://shop.example/; }
"""
#: No systemd runs in a chroot. This starts what a unit names, as its user, with its variables and
#: credentials, and returns when it serves.
SYSTEMCTL = """#!/bin/sh
set -eu
verb=$1; shift
[ "${1:-}" != --now ] || shift
for unit; do
    case $verb/$unit in
    reload/nginx) nginx -s reload 2>/dev/null || nginx ;;
    */waitroom@*)
        n=${unit#waitroom@}; pid=/run/waitroom-$n.pid; file=/etc/systemd/system/waitroom@.service
        install -d -m 750 -o waitroom -g waitroom /run/waitroom
        install -d -m 700 -o waitroom /run/secrets
        get() { sed -n "s/^$1=//p" $file | sed "s/%i/$n/g; s#%d#/run/secrets#g"; }
        get LoadCredential | while IFS=: read -r name secret; do
            install -m 400 -o waitroom "$secret" "/run/secrets/$name"
        done
        if [ -s $pid ]; then kill "$(cat $pid)"; tail --pid="$(cat $pid)" -f /etc/hostname; fi
        umask 007
        # shellcheck disable=SC2046 # words
        env $(get Environment) setpriv --reuid waitroom --regid waitroom --clear-groups \\
            $(get ExecStart) >>"/run/replica-$n.log" 2>&1 &
        echo $! >$pid
        timeout 120 sh -c "until WAITROOM_OPS_LISTEN=127.0.0.1:840$n waitroom healthcheck \\
            >/dev/null 2>&1; do sleep 0.2; done" || { cat "/run/replica-$n.log"; exit 1; } ;;
    esac
done
"""


def block_after(words: str, page: str = "README.md") -> str:
    """The first lines of a page, to be typed, after these words."""
    text = (ROOT / page).read_text()
    found = re.search(r"```sh\n(.*?) *```", text[text.index(words) :], re.DOTALL)
    assert found
    return textwrap.dedent(found[1])


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
    """A root of the distribution with a clone at /waitroom."""
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


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suite", ["bookworm", "noble"])
def test_a_server_by_the_pages(suite, tmp_path):
    """README's way on a server, the steps of install.md that start and check it, and upgrade.md:
    one visitor is inside, the next one waits, the doctor finds nothing wrong, before and after."""
    root = tmp_path / "root"
    make_root(suite, root)
    first, *rest = block_after("## With pipx", "docs/upgrade.md").splitlines(keepends=True)
    assert "pipx reinstall" in first
    # Packages come over the machine's network, before anything is served.
    (root / "steps.sh").write_text(BEFORE + block_after("**On your server**") + first)
    start = block_after("4. **Start the replicas", "docs/install.md")
    check = block_after("5. **Check.**", "docs/install.md")
    upgrade = "".join(rest)
    (root / "after.sh").write_text(
        f"set -eu\n{EDITS}\n{start}\nvisit; visit\n{check}\n{upgrade}\nvisit\n{check}"
    )
    systemctl = root / "usr/local/bin/systemctl"
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    inside = "mount -t proc proc {0}/proc && exec chroot {0} bash {1}"
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    gone = ("PIP_FIND_LINKS", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in gone}
    said = ""
    for network, script in (("", "/steps.sh"), ("ip link set lo up && ", "/after.sh")):
        done = subprocess.run(
            [*apart, *(["--net"] if network else []), "sh", "-c",
             network + inside.format(root, script)],
            env={**env, "HOME": "/root", "PATH": path},
            capture_output=True, text=True, check=False, timeout=800,
        )  # fmt: skip
        said = done.stdout + done.stderr
        print(said)
        assert done.returncode == 0, said
    assert re.findall(r"^visitor (\d+)", said, re.MULTILINE) == ["200", "503", "503"]
    assert said.count("Everything is right.") == 2
