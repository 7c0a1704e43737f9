"""The containers: what their files say agrees with the code and with each other.

No container is started. What can run without one does: the services' own commands and
nginx's own configuration, with this machine's addresses in place of the containers'.
"""

import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecar import __version__
from sidecar.settings.file import DEFAULT_FILE
from sidecar.settings.load import load
from sidecar.settings.model import Settings
from tests.install.compose import (
    BIN,
    COMPOSE,
    ROOT,
    SERVICES,
    answers,
    build_environment,
    is_healthy,
    is_ignored,
    keeps_responses_out_of_memory,
    list_mounts,
    make_secrets,
    nginx_command,
    nginx_folder,
    port_of,
    read_dockerfile,
    read_image_env,
    read_last_stage,
    read_upstreams,
    request_status,
)
from tests.support.processes import Process, free_port, wait_until

INCLUDES = "/etc/nginx/waitroom"


# The services.


def test_the_services_are_those_of_a_site():
    """nginx, replicas, Redis and a site behind; images are pinned to a minor version."""
    assert set(SERVICES) == {"nginx", "sidecar", "redis", "origin"}
    for name, service in SERVICES.items():
        if name in {"nginx", "redis"}:
            assert re.fullmatch(rf"{name}:\d+\.\d+-alpine", service["image"])


def test_our_image_is_built_once():
    """Sidecar and origin have one image; two builds of one name at the same time collide, and
    nobody looks for it at a registry."""
    ours = [SERVICES["sidecar"], SERVICES["origin"]]
    assert {service["image"] for service in ours} == {"waitroom"}
    assert {service["pull_policy"] for service in ours} == {"never"}
    assert [name for name, service in SERVICES.items() if "build" in service] == ["sidecar"]
    assert (ROOT / SERVICES["sidecar"]["build"] / "Dockerfile").is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(name):
    """No root, nothing writable but /tmp and Redis' data, no capabilities, and it comes back."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["tmpfs"] == ["/tmp"]
    assert "privileged" not in service
    # Images of others start as root unless they are told not to; ours does not.
    assert service.get("user") == {"nginx": "nginx", "redis": "redis"}.get(name)
    writable = [(source, target) for source, target, mode in list_mounts(name) if mode != "ro"]
    assert writable == ([("redis", "/data")] if name == "redis" else [])


@pytest.mark.parametrize("name", SERVICES)
def test_every_mounted_file_is_in_the_repository(name):
    """Every host path that is mounted exists; a volume is one that is declared."""
    for source, target, _ in list_mounts(name):
        assert target.startswith("/")
        if source.startswith("./"):
            assert (ROOT / source).exists(), source
        else:
            assert source in COMPOSE["volumes"]


def test_a_file_is_mounted_over_one_that_is_there():
    """Docker can make no mount point in a folder that is read-only: each is there already."""
    for name in SERVICES:
        for source, target, mode in list_mounts(name):
            for outer, above, _ in list_mounts(name):
                if above != target and target.startswith(f"{above}/") and mode == "ro":
                    assert (ROOT / outer / target.removeprefix(f"{above}/")).exists(), source


def test_only_nginx_is_published():
    """One port of the host leads in, to the port that nginx listens on."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"nginx": ["8080:8080"]}
    assert re.findall(r"listen (\d+)", (ROOT / "deploy/docker/nginx.conf").read_text()) == ["8080"]
    assert not any("network_mode" in service for service in SERVICES.values())


def test_redis_is_reached_by_the_replicas_alone():
    """Redis shares a network with the sidecar only, and no way out leads from it."""
    networks = {name: service.get("networks", ["default"]) for name, service in SERVICES.items()}
    # podman-compose makes no network that is not declared, and stops.
    assert set().union(*networks.values()) == set(COMPOSE["networks"])
    assert networks["redis"] == ["store"]
    assert [name for name, joined in networks.items() if "store" in joined] == ["sidecar", "redis"]
    # The site behind and the replicas do not meet: the ops port is none of its business.
    assert not set(networks["origin"]) & set(networks["sidecar"])
    # But nginx meets both.
    assert set(networks["nginx"]) & set(networks["origin"])
    assert set(networks["nginx"]) & set(networks["sidecar"])
    assert all(COMPOSE["networks"][name]["internal"] for name in ("edge", "store"))


def test_services_wait_for_what_they_need():
    """A service starts when those it asks are healthy, and each of those can say so."""
    needed = {
        name: sorted(service["depends_on"])
        for name, service in SERVICES.items()
        if "depends_on" in service
    }
    assert needed == {"nginx": ["origin", "sidecar"], "sidecar": ["redis"]}
    for service in SERVICES.values():
        for name, rule in service.get("depends_on", {}).items():
            assert rule == {"condition": "service_healthy"}
            assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


def test_redis_keeps_its_data():
    """Redis appends every change to a file in a volume, and refuses rather than forgets."""
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert command[0] == "redis-server"
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


# The sidecar's settings.


def test_there_are_several_replicas():
    """Three replicas, none with a name or port of its own that the others could not have."""
    sidecar = SERVICES["sidecar"]
    # podman-compose counts replicas only where the mode is said.
    assert sidecar["deploy"] == {"mode": "replicated", "replicas": 3}
    assert not {"container_name", "hostname", "ports"} & set(sidecar)


def test_the_mounted_rooms_are_right(tmp_path):
    """deploy/docker/waitroom.toml and the service's environment are a configuration."""
    ((source, target, _),) = list_mounts("sidecar")
    settings = load(str(ROOT / source), build_environment(tmp_path))
    # It is where the commands look without being told.
    assert target == f"{read_last_stage()['WORKDIR']}/{DEFAULT_FILE}"
    assert not settings.demo
    assert settings.admin_token
    # nginx asks for a room that is there.
    asked = set(
        re.findall(r"set \$waitroom_room (\w+);", (ROOT / "deploy/docker/nginx.conf").read_text())
    )
    assert asked == set(settings.rooms) == {"shop"}


def test_ports_agree(tmp_path):
    """Image, nginx and Redis name the ports that the code listens on by default."""
    settings = load(str(ROOT / "deploy/docker/waitroom.toml"), build_environment(tmp_path))
    edge, ops = (Settings.model_fields[name].default for name in ("edge_listen", "ops_listen"))
    assert port_of(settings.edge_listen) == port_of(edge)
    assert port_of(settings.ops_listen) == port_of(ops)
    assert read_last_stage()["EXPOSE"].split() == [str(port_of(edge)), str(port_of(ops))]
    servers = read_upstreams()
    assert servers["waitroom"] == ("sidecar", port_of(edge))
    assert settings.store == "redis://redis:6379/0"
    command = SERVICES["origin"]["command"]
    assert servers["origin"] == ("origin", int(command[command.index("--port") + 1]))
    assert command[command.index("--host") + 1] == "0.0.0.0"


def test_secrets_are_files_that_no_commit_takes(tmp_path):
    """All secrets come from ./secrets, which git and the image's build pass over. nginx has the one
    that is made of another, and not that one."""
    secrets = COMPOSE["secrets"]
    assert {name: secret["file"] for name, secret in secrets.items()} == {
        "secret_keys": "./secrets/secret_keys",
        "admin_token": "./secrets/admin_token",
        "nginx_key": "./secrets/nginx_key",
    }
    of_nginx = [{"source": "nginx_key", "target": "/etc/nginx/waitroom-stamp.conf"}]
    assert SERVICES["nginx"]["secrets"] == of_nginx
    assert SERVICES["sidecar"]["secrets"] == ["secret_keys", "admin_token"]
    assert not {"redis", "origin"} & {n for n, service in SERVICES.items() if "secrets" in service}
    assert "waitroom nginx-key - > secrets/nginx_key" in (ROOT / "docs/docker.md").read_text()
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    assert is_ignored("secrets/secret_keys")
    # The page's command makes them: closed folder, files that the container's user reads.
    make_secrets(tmp_path)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    for name in SERVICES["sidecar"]["secrets"]:
        file = tmp_path / "secrets" / name
        assert file.stat().st_mode & 0o777 == 0o644
        assert re.fullmatch(r"[0-9a-f]{64}\n", file.read_text())


# The image.


def test_the_image_is_small_and_unprivileged():
    """A slim Python of one minor version that the code runs on; a user by number, no root."""
    bases = [argument for name, argument in read_dockerfile() if name == "FROM"]
    assert [base.split()[0] for base in bases] == ["${PYTHON}"] * 2
    # The first argument, which both stages see, is also what a build by digest replaces.
    assert read_dockerfile()[0] == ("ARG", "PYTHON=python:3.13-slim-trixie")
    page = (ROOT / "docs" / "docker.md").read_text()
    assert "--build-arg PYTHON=python:3.13-slim-trixie@sha256:" in page
    stage = read_last_stage()
    user, group = stage["USER"].split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f"--uid {user} --gid {group}" in stage["RUN"]
    # Nothing is installed in the last stage, and Python writes nothing at run time.
    assert not re.search(r"apt|pip |gcc|build-essential", stage["RUN"])
    assert read_image_env()["PYTHONDONTWRITEBYTECODE"] == "1"


def test_the_image_says_what_it_is():
    """The labels name the version, and the revision that the documented build gives."""
    labels = dict(part.split("=", 1) for part in shlex.split(read_last_stage()["LABEL"]))
    names = {name.removeprefix("org.opencontainers.image.") for name in labels}
    assert names == {"title", "description", "version", "revision"}
    assert labels["org.opencontainers.image.version"] == __version__
    assert "--build-arg REVISION=" in (ROOT / "docs" / "docker.md").read_text()


def test_the_image_has_every_database_driver():
    """Each extra that a setting of the product needs is in it; `demo` is not for servers."""
    (install,) = [argument for name, argument in read_dockerfile() if "pip --" in argument]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = ",".join(sorted(set(extras["optional-dependencies"]) - {"demo"}))
    assert f"'.[{wanted}]'" in install


def test_the_image_takes_the_tested_versions():
    """Installing is bound to constraints.txt, which names every direct dependency."""
    (install,) = [argument for name, argument in read_dockerfile() if "pip --" in argument]
    assert "install --constraint constraints.txt" in install
    # By the pip of the stage that is left behind.
    (made,) = [argument for name, argument in read_dockerfile() if " venv " in argument]
    assert made == "python -m venv --without-pip /opt/waitroom"
    assert install.startswith("pip --python /opt/waitroom/bin/python ")
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    needed = set()
    for folder in (ROOT, ROOT / "client"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        needed |= {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert needed - {"waitroom-client"} <= pinned


def test_what_the_build_copies_is_there_and_not_ignored():
    """Every COPY finds its source, and together they are all that the wheel is made of."""
    copied = set()
    for name, argument in read_dockerfile():
        if name == "COPY" and "--from" not in argument:
            copied |= set(argument.split()[:-1])
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source
    project = (ROOT / "pyproject.toml").read_text()
    shared = re.findall(r'^"([\w/]+)" = "sidecar/share/', project, re.MULTILINE)
    files = {"pyproject.toml", "hatch_build.py", "README.md", "constraints.txt"}
    assert copied == files | {"sidecar", "client", *shared}
    # And nothing else of the repository goes to the builder.
    sent = [path.name for path in ROOT.iterdir() if not is_ignored(path.name)]
    assert set(sent) <= copied


# nginx.


def test_nginx_takes_its_configuration(tmp_path):
    """`nginx -t` says that the containers' configuration is right, without a warning."""
    folder = nginx_folder(tmp_path, {"sidecar": [8400], "origin": [9000]}, free_port())
    done = subprocess.run(
        nginx_command(folder, "-t"), capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr


def test_names_are_asked_again():
    """Each server is a service's name that is looked up again, with what that takes."""
    assert {host for host, _ in read_upstreams().values()} <= set(SERVICES)
    text = (ROOT / "deploy/docker/nginx.conf").read_text() + (
        ROOT / "deploy/docker/settings.conf"
    ).read_text()
    blocks = re.findall(r"upstream \w+ \{(.*?)\n *\}", text, re.DOTALL)
    assert len(blocks) == len(read_upstreams()) == 2
    assert all(re.search(r"zone \w+ \d+k;", block) for block in blocks)
    assert re.search(r"resolver 127\.0\.0\.11 valid=\d+s", text)
    # Open-source nginx knows `resolve` since 1.27.3.
    version = re.fullmatch(r"nginx:(\d+)\.(\d+)-alpine", SERVICES["nginx"]["image"])
    assert version
    assert tuple(map(int, version.groups())) >= (1, 28)


def test_the_settings_stand_in_for_all_of_the_usual_ones():
    """deploy/docker/settings.conf defines whatever nginx/waitroom/settings.conf does."""
    defines = r"^(upstream \w+|map .* \$\w+|proxy_cache_path .*?keys_zone=\w+|variables_\w+ \d+)"

    def names(file: Path) -> list[str]:
        found = re.findall(defines, file.read_text(), re.MULTILINE)
        return sorted(re.sub(r" /\S+", "", name) for name in found)

    usual = names(ROOT / "nginx/waitroom/settings.conf")
    assert len(usual) >= 4
    assert names(ROOT / "deploy/docker/settings.conf") == usual
    assert (f"{INCLUDES}/settings.conf", "./deploy/docker/settings.conf") in [
        (target, source) for source, target, _ in list_mounts("nginx")
    ]


def test_nginx_writes_where_it_may(tmp_path):
    """Every path that nginx writes is in /tmp, which is a tmpfs, or an open stream."""
    text = (ROOT / "deploy/docker/nginx.conf").read_text() + (
        ROOT / "deploy/docker/settings.conf"
    ).read_text()
    written = re.findall(
        r"^\s*(?:pid|\w+_temp_path|proxy_cache_path) ([^\s;]+)", text, re.MULTILINE
    )
    assert len(written) == 7
    assert all(path.startswith("/tmp/") for path in written)
    assert re.findall(r"error_log (\S+)", text) == ["stderr"]
    assert re.findall(r"access_log (\S+)", text) == ["/dev/stdout"]
    assert "proxy_max_temp_file_size 0;" in text
    assert keeps_responses_out_of_memory(text)
    # The image's own command says it; said twice, nginx does not start.
    assert "daemon" not in text


# All of it together, without the containers.


def test_the_site_works_as_composed(tmp_path):
    """The services' commands, settings and health checks make a site with a waiting room."""
    ports = {name: free_port() for name in ("redis", "origin", "nginx")}
    edges, ops = [free_port(), free_port()], [free_port(), free_port()]
    environ = build_environment(tmp_path) | {
        "WAITROOM_STORE": f"redis://127.0.0.1:{ports['redis']}/0"
    }
    replicas = [
        environ | {"WAITROOM_EDGE_LISTEN": f"0.0.0.0:{e}", "WAITROOM_OPS_LISTEN": f"0.0.0.0:{o}"}
        for e, o in zip(edges, ops, strict=True)
    ]
    # The commands find waitroom.toml where they are started, as in the image.
    shutil.copy(ROOT / "deploy/docker/waitroom.toml", tmp_path)
    addresses = {"sidecar": edges, "origin": [ports["origin"]]}
    folder = nginx_folder(tmp_path / "site", addresses, ports["nginx"])
    redis = [*SERVICES["redis"]["command"], "--port", str(ports["redis"]), "--dir", str(tmp_path)]
    shop = [str(BIN / "python"), *SERVICES["origin"]["command"][1:-1], str(ports["origin"])]
    with ExitStack() as stack:

        def run(name: str, command: list[str], **options: object) -> Process:
            process = Process(command, log=tmp_path / f"{name}.log", **options)
            return stack.enter_context(process)

        run("redis", redis)
        wait_until(lambda: is_healthy("redis", "-p", str(ports["redis"])), "Redis")
        run("origin", shop, cwd=ROOT)
        for number, one in enumerate(replicas):
            run(f"sidecar-{number}", [str(BIN / "waitroom"), "serve"], env=one, cwd=tmp_path)
        nginx = run("nginx", nginx_command(folder))
        wait_until(lambda: answers(ports["nginx"]), f"nginx: {nginx.output}")
        wait_until(lambda: is_healthy("origin", port=(9000, ports["origin"])), "the shop")
        for one in replicas:
            wait_until(lambda one=one: is_healthy("sidecar", env=one, cwd=tmp_path), "a replica")
        page = SERVICES["nginx"]["healthcheck"]["test"][-1].replace(":8080", f":{ports['nginx']}")
        with urllib.request.urlopen(page, timeout=5) as answer:
            assert b"waitroom" in answer.read()
        # I expect two to be in the shop, and the third to wait.
        url = f"http://127.0.0.1:{ports['nginx']}/"
        assert [request_status(url) for _ in range(3)] == [200, 200, 503]
        # And an operator to see them, from a container's shell.
        done = subprocess.run(
            [BIN / "waitroom", "rooms", "list"], env=replicas[1], cwd=tmp_path,
            capture_output=True, text=True, check=True, timeout=20,
        )  # fmt: skip
        assert done.stdout.splitlines()[1].split("\t")[2:5] == ["1", "2", "2"]
