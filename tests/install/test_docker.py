"""What README, docker.md and upgrade.md say to type for Docker Compose, typed as it stands, by the
Docker of Debian 13; and history and jobs on PostgreSQL in the image.

No registry is asked. In place of each base image is a root of Debian's packages that has the same
program in the same version. It takes minutes, and root, so it runs where BARE is set: make test-all
BARE=1.
"""

import json
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.install.compose import COMPOSE, ROOT, SERVICES, read_dockerfile
from tests.install.pages import block_after

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("BARE"), reason="takes minutes: set BARE=1"),
    pytest.mark.timeout(2400),
]
ENGINE = "docker.io,docker-cli,docker-compose,docker-buildx,iptables,iproute2,ca-certificates"
#: By root: Debian's suite and packages.
ROOTS = {
    "engine": ("trixie", f"{ENGINE},git,openssl,curl,procps"),
    "python": ("trixie", "python3,python3-venv,python3-pip,ca-certificates"),
    "servers": ("forky", "nginx,redis-server,postgresql,wget,ca-certificates"),
}
#: What the base images have and the packages do not: names, users and folders.
LIKE_IMAGES = {
    "python": "cd /usr/local/bin; ln -s /usr/bin/python3 python; ln -s /usr/bin/pip3 pip",
    "servers": "useradd --system nginx; mkdir /data; chown redis /data",
}
#: Runs in the engine's root, in namespaces of its own, and ends with all containers.
BEGIN = """
set -eu
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; umount -l /.old; ip link set lo up
mkdir -p /var/lib/docker
mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /var/lib/docker
dockerd >/dockerd.log 2>&1 &
until docker version >/dev/null 2>&1; do kill -0 $!; sleep 0.5; done
"""
IMPORTS = """
docker import - {python} </python.tar
docker import --change 'WORKDIR /data' --change 'CMD ["nginx", "-g", "daemon off;"]' - {nginx} \
    </servers.tar
docker tag {nginx} {redis}
cd /waitroom
visit() {{ curl -s -o /dev/null -w 'visitor %{{http_code}}\\n' "$1"; }}
"""
POSTGRESQL = """
docker network create own
docker run --detach --name target --network own --workdir /tmp {python} \
    sh -c 'echo fine >ok; exec python -m http.server 9000'
docker run --detach --name database --network own --user postgres {nginx} sh -euc '
    bin=$(echo /usr/lib/postgresql/*/bin); $bin/initdb -A trust -D /tmp/data >/tmp/log
    echo "host all all all trust" >>/tmp/data/pg_hba.conf
    exec $bin/postgres -D /tmp/data -k /tmp -c listen_addresses=*'
docker run --detach --name redis --network own {redis} redis-server --protected-mode no
cat >waitroom.toml <<'SETTINGS'
store = "redis://redis"
history = "postgresql://postgres@database/postgres"
jobs = "postgresql://postgres@database/postgres"
admin_token = "0123456789abcdef"
secret_keys = ["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"]
[rooms.shop]
total_active_users = 1
[targets.images]
url = "http://target:9000/"
private = true
SETTINGS
run="docker run --network own --volume $PWD/waitroom.toml:/etc/waitroom/waitroom.toml:ro"
$run --rm waitroom python -c 'import aiosqlite, asyncmy, fakeredis'
until $run --rm waitroom waitroom migrate; do sleep 1; done
$run --detach --name worker waitroom waitroom run-jobs
$run --detach --name replica --publish 127.0.0.1:8500:8400 waitroom
health() {{ docker inspect --format '{{{{.State.Health.Status}}}}' replica; }}
until [ "$(health)" = healthy ]; do sleep 1; done
visit http://localhost:8500/gate/shop/
echo "job: $(docker exec replica waitroom jobs submit images --path ok --wait)"
for second in $(seq 60); do
    report=$(docker exec replica waitroom report shop --json)
    case $report in *'"admitted_at_once":1'*|*'"admitted_at_once": 1'*) break ;; esac; sleep 1
done
echo "report: $(echo "$report" | tr -d '\\n')"
"""
NETWORK = """
unshare --mount --pid --net --fork --kill-child sh -euc '
    mount --make-rprivate /; mount --bind "$0" "$0"; cd "$0"
    mount --rbind /dev dev; mount --rbind /sys sys; mount -t tmpfs tmpfs run; mkdir .old
    until [ -e online ]; do sleep 0.1; done
    pivot_root . .old; exec chroot . sh /steps.sh' "$1" &
sleep 1
slirp4netns --configure --mtu=65520 --disable-host-loopback $! tap0 >"$1/slirp.log" 2>&1 &
sleep 1; touch "$1/online"
wait %1 && ended=0 || ended=$?
kill %2; exit $ended
"""


def without_terminal(block: str) -> str:
    """A block for a script: `exec` asks for no terminal, and the logs end."""
    return block.replace("compose exec", "compose exec -T").replace(" --follow", "")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A bare Debian 13 with Docker, a clone at /waitroom and the base images as archives."""
    folder = tmp_path_factory.mktemp("docker")
    subprocess.run([ROOT / "scripts/install-packages", "bare"], check=True, timeout=300)
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    for name, (suite, packages) in ROOTS.items():
        root = folder / name
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={packages}", suite, root, "",
             "/usr/share/debootstrap/scripts/sid"],
            check=True, timeout=900, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        (root / str(certificates).lstrip("/")).write_bytes(certificates.read_bytes())
        if name in LIKE_IMAGES:
            subprocess.run(["chroot", root, "sh", "-euc", LIKE_IMAGES[name]], check=True)
            archive = folder / "engine" / f"{name}.tar"
            subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True, timeout=300)
    root = folder / "engine"
    (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    subprocess.run(["git", "clone", "--quiet", ROOT, root / "waitroom"], check=True, timeout=60)
    yield root
    shutil.rmtree(folder)


def test_the_pages_of_docker(engine):
    """Two visitors get in and the third waits; more get in after a change, and after an upgrade. In
    the image a visit is in the history, and a job is done."""
    base = dict(argument.split("=") for name, argument in read_dockerfile()[:1])["PYTHON"]
    names = {"python": base, **{name: SERVICES[name]["image"] for name in ("nginx", "redis")}}
    alone = block_after("## The image alone", "docs/docker.md")
    alone = alone.replace("redis://redis.internal:6379/0", "memory://")
    alone = alone.replace("docker run ", "docker run --detach --name alone ")
    assert alone.count("alone") == 1
    site = "http://localhost:8080/"
    steps = "\n".join([
        BEGIN, IMPORTS.format(**names), block_after("**With Docker Compose**"),
        *[f"visit {site}"] * 3,
        without_terminal(block_after("3. Look at the room", "docs/docker.md")), f"visit {site}",
        without_terminal(block_after("## With Docker Compose", "docs/upgrade.md")),
        f"visit {site}", "docker compose ps --format '{{.Name}} {{.Status}}'",
        "docker compose down --volumes", POSTGRESQL.format(**names),
        "printf '[rooms.shop]\\ntotal_active_users = 1\\n' >waitroom.toml",
        "export WAITROOM_SECRET_KEYS=$(openssl rand -hex 32)", alone,
        "until visit http://localhost:8400/gate/shop/ | grep 200; do sleep 1; done",
    ])  # fmt: skip
    (engine / "steps.sh").write_text(steps)
    done = subprocess.run(
        ["bash", "-c", NETWORK, "bash", engine],
        capture_output=True, text=True, check=False, timeout=1200,
    )  # fmt: skip
    print(done.stdout[-9000:], done.stderr[-9000:])
    assert done.returncode == 0
    visits = re.findall(r"^visitor (\d+)", done.stdout, re.MULTILINE)
    assert visits == ["200", "200", "503", "200", "200", "200", "200"]
    services = COMPOSE["services"]
    healthy = re.findall(r"^waitroom-(\w+)-\d+ Up .*\(healthy\)", done.stdout, re.MULTILINE)
    assert set(healthy) == set(services), textwrap.shorten(done.stdout, 500)
    assert re.search(r"^job: fine$", done.stdout, re.MULTILINE)
    report = re.search(r"^report: (.*)$", done.stdout, re.MULTILINE)
    assert report
    assert json.loads(report[1])["admitted_at_once"] == 1
