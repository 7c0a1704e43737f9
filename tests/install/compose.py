"""Reads docker-compose.yml, Dockerfile, .dockerignore and the nginx files of the containers.

Tests run the containers' commands on this machine, and so replace the addresses of containers.
"""

import fnmatch
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from sidecar.gate.nginx_key import build_key_file
from tests.support.site import nginx_binary

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
#: The folder with the executables of the virtual environment.
BIN = Path(sys.executable).parent


def read_dockerfile() -> list[tuple[str, str]]:
    """Return pairs of instruction and arguments of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def read_last_stage() -> dict[str, str]:
    """Return the arguments of the last instruction of each kind in the final stage."""
    found = read_dockerfile()
    start = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[start:])


def read_image_env() -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(read_last_stage()["ENV"]))


def list_mounts(service: str) -> list[tuple[str, str, str]]:
    """Return source, target and mode of each volume of a service."""
    found = [[*volume.split(":"), "rw"][:3] for volume in SERVICES[service].get("volumes", [])]
    return [(source, target, mode) for source, target, mode in found]


def build_environment(folder: Path) -> dict[str, str]:
    """Create the secrets in `folder` with the command from docs/docker.md, and return the sidecar's
    environment variables."""
    make_secrets(folder)
    environ = {**read_image_env(), **SERVICES["sidecar"]["environment"]}
    for name, secret in COMPOSE["secrets"].items():
        mounted, file = f"/run/secrets/{name}", str(folder / secret["file"])
        environ = {key: file if value == mounted else value for key, value in environ.items()}
    return environ


def make_secrets(folder: Path) -> None:
    page = (ROOT / "docs" / "docker.md").read_text()
    command = next(line for line in page.splitlines() if "openssl" in line)
    subprocess.run(["sh", "-c", command], cwd=folder, check=True)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def copy_image_files(folder: Path) -> None:
    """Copy the files that the Dockerfile copies into the image."""
    folder.mkdir()
    stray = shutil.ignore_patterns("__pycache__")
    for name, argument in read_dockerfile():
        if name != "COPY" or "--from" in argument:
            continue
        *sources, target = argument.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, folder / target, ignore=stray)
            else:
                shutil.copy(ROOT / source, folder / target)


def is_ignored(path: str) -> bool:
    """Return True if .dockerignore excludes a path. The last matching line decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and matches_pattern(path, pattern):
            ignored = not line.startswith("!")
    return ignored


def matches_pattern(path: str, pattern: str) -> bool:
    return any(
        fnmatch.fnmatchcase("/".join(path.split("/")[:depth]), pattern)
        for depth in range(1, path.count("/") + 2)
    )


def read_upstreams() -> dict[str, tuple[str, int]]:
    """Return host and port of the server of each nginx upstream, by the upstream's name."""
    folder = ROOT / "deploy/docker"
    text = (folder / "nginx.conf").read_text() + (folder / "settings.conf").read_text()
    found = re.findall(r"upstream (\w+) \{[^}]*?server (\w+):(\d+) resolve", text)
    return {name: (host, int(port)) for name, host, port in found}


def keeps_responses_out_of_memory(text: str) -> bool:
    """Return True if nginx stores no response of any kind of upstream in /tmp, which is in memory.
    `text` is nginx.conf."""
    stored = set(re.findall(r"(\w+)_temp_path /tmp/", text)) - {"client_body"}
    return stored == set(re.findall(r"(\w+)_max_temp_file_size 0;", text))


def nginx_folder(folder: Path, ports: dict[str, list[int]], listen: int) -> Path:
    """Write the nginx files of the containers into `folder`, changed for this machine. Return it.

    The servers of a container are those on `ports`, in place of a host name with `resolve`, which
    older versions of nginx do not support. nginx listens on the port `listen`.
    """
    folder.mkdir(exist_ok=True)
    for source, target, _ in list_mounts("nginx"):
        if target.startswith("/etc/nginx/"):
            place = folder / target.removeprefix("/etc/nginx/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place)
            else:
                shutil.copy(ROOT / source, place)
    (key,) = SERVICES["nginx"]["secrets"]
    key_place = folder / key["target"].removeprefix("/etc/nginx/")
    key_place.write_text(build_key_file(["a secret of the replicas"]))
    static = next(target for source, target, _ in list_mounts("nginx") if source == "./static")
    (folder / "tmp").mkdir(mode=0o777)
    for file in [folder / "nginx.conf", *folder.glob("waitroom/*.conf")]:
        text = file.read_text().replace("/tmp/", f"{folder}/tmp/")
        text = text.replace("/dev/stdout", f"{folder}/access.log")
        text = text.replace(f"default {static};", f"default {ROOT / 'static'};")
        text = text.replace("listen 8080", f"listen 127.0.0.1:{listen}")
        for host, numbers in ports.items():
            servers = " ".join(f"server 127.0.0.1:{number} max_fails=0;" for number in numbers)
            text = re.sub(rf"server {host}:\d+ resolve[^;]*;", servers, text)
        file.write_text(text)
    return folder


def nginx_command(folder: Path, *more: str) -> list[str]:
    # As root, nginx would run its workers as a user who may not read the folder.
    lines = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
    return [nginx_binary(), "-p", f"{folder}/", "-c", f"{folder}/nginx.conf", "-g", lines, *more]


def is_healthy(service: str, *options: str, port: tuple[int, int] = (0, 0), **how: Any) -> bool:
    """Run the health check of a service. Return True if it succeeds. `port` is a port of the
    container, and the port on this machine that replaces it."""
    program, *words = SERVICES[service]["healthcheck"]["test"][1:]
    inside, here = port
    words = [word.replace(f":{inside}", f":{here}") for word in words]
    own = BIN / program
    command = [str(own) if own.exists() else program, *options, *words]
    return not subprocess.run(
        command, capture_output=True, check=False, timeout=20, **how
    ).returncode


def answers(port: int) -> bool:
    """Return True if a server accepts connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def request_status(url: str) -> int:
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
