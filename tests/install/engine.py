"""Makes roots of Debian's packages, one of them with Docker, and runs steps in it.

No registry is asked. In place of each base image is a root that has the same program in the same
version.
"""

import subprocess
from pathlib import Path

from tests.install.compose import ROOT, SERVICES, read_dockerfile

DOCKER = "docker.io,docker-cli,docker-buildx,iptables,iproute2,ca-certificates"
#: By root: Debian's suite and packages.
IMAGES = {
    "python": ("trixie", "python3,python3-venv,python3-pip,ca-certificates"),
    "servers": ("forky", "nginx,redis-server,wget,ca-certificates"),
}
#: What the base images have and the packages do not: names, users and folders.
LIKE_IMAGES = {
    "python": "cd /usr/local/bin; ln -s /usr/bin/python3 python; ln -s /usr/bin/pip3 pip",
    "servers": "useradd --system nginx; mkdir /data; chown redis /data",
}
#: By what it is for: the name of the base image.
IMAGE_NAMES = {
    "python": dict(argument.split("=") for name, argument in read_dockerfile()[:1])["PYTHON"],
    **{name: SERVICES[name]["image"] for name in ("nginx", "redis")},
}
#: In namespaces that end with all that runs in them.
BEGIN = """
set -eu
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; umount -l /.old; ip link set lo up
mount -t tmpfs tmpfs /tmp
visit() { curl -s -o /dev/null -w 'visitor %{http_code}\\n' "$@"; }
"""
START_DOCKER = """
mkdir -p /var/lib/docker; mount -t tmpfs tmpfs /var/lib/docker
dockerd >/dockerd.log 2>&1 &
until docker version >/dev/null 2>&1; do kill -0 $!; sleep 0.5; done
docker import - {python} </python.tar
docker import --change 'WORKDIR /data' --change 'STOPSIGNAL SIGQUIT' \\
    --change 'CMD ["nginx", "-g", "daemon off;"]' - {nginx} </servers.tar
docker tag {nginx} {redis}
cd /waitroom
"""
NETWORK = """
rm -f "$1/online"
unshare --mount --pid --net --fork --kill-child sh -euc '
    mount --make-rprivate /; mount --bind "$0" "$0"; cd "$0"
    mount --rbind /dev dev; mount --rbind /sys sys; mount -t tmpfs tmpfs run; mkdir -p .old
    until [ -e online ]; do sleep 0.1; done
    pivot_root . .old; exec chroot . sh /steps.sh' "$1" &
sleep 1
slirp4netns --configure --mtu=65520 --disable-host-loopback $! tap0 >"$1/slirp.log" 2>&1 &
sleep 1; touch "$1/online"
wait %1 && ended=0 || ended=$?
kill %2; exit $ended
"""


def make_root(root: Path, suite: str, packages: str) -> None:
    """Install a suite's packages in a new folder, with this machine's certificates and DNS."""
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", suite, root, "",
         "/usr/share/debootstrap/scripts/sid"],
        check=True, timeout=900, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    for name in ("etc/ssl/certs/ca-certificates.crt", "etc/resolv.conf"):
        (root / name).write_bytes(Path("/", name).read_bytes())


def make_engine(folder: Path, packages: str, servers: str = "") -> Path:
    """Return a Debian 13 with Docker and `packages`, a clone at /waitroom and the base images as
    archives. `servers` are more packages for the image of nginx and Redis."""
    subprocess.run([ROOT / "scripts/install-packages", "bare"], check=True, timeout=300)
    engine = folder / "engine"
    make_root(engine, "trixie", f"{DOCKER},{packages}")
    for name, (suite, has) in IMAGES.items():
        root = folder / name
        make_root(root, suite, f"{has},{servers}" if name == "servers" and servers else has)
        subprocess.run(["chroot", root, "sh", "-euc", LIKE_IMAGES[name]], check=True)
        archive = engine / f"{name}.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True, timeout=300)
    subprocess.run(["git", "clone", "--quiet", ROOT, engine / "waitroom"], check=True, timeout=60)
    return engine


def start_docker() -> str:
    """Return the steps that start Docker, import the base images and enter the clone."""
    return START_DOCKER.format(**IMAGE_NAMES)


def run_steps(engine: Path, *steps: str) -> str:
    """Run steps in the engine's root, in namespaces of its own, and return what they print."""
    (engine / "steps.sh").write_text("\n".join([BEGIN, *steps]))
    done = subprocess.run(
        ["bash", "-c", NETWORK, "bash", engine],
        capture_output=True, text=True, check=False, timeout=1200,
    )  # fmt: skip
    print(done.stdout[-9000:], done.stderr[-9000:])
    assert done.returncode == 0
    return done.stdout
