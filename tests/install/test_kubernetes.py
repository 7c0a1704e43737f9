"""The manifests: Kubernetes takes them, and what they say agrees with the code and each other.

No cluster is there; the schemas come with a package, and nginx reads its own configuration.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sidecar import __version__
from sidecar.app.endpoints import OPS
from sidecar.gate.nginx_key import build_key_file
from sidecar.http.listeners import DRAIN_S
from sidecar.settings.file import DEFAULT_FILE
from sidecar.settings.load import load
from sidecar.settings.values import ENV_PREFIX
from tests.install.compose import (
    BIN,
    ROOT,
    SERVICES,
    keeps_responses_out_of_memory,
    nginx_command,
    port_of,
    read_image_env,
    read_last_stage,
)
from tests.support.processes import free_port

FOLDER = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
#: The oldest that the page names, and the three newest of those that the package knows.
VERSIONS = ("1.29", "1.35", "1.36", "1.37")
FOLDERS = {"": FOLDER, "nginx": FOLDER / "nginx"}
#: Kinds that the cluster has to learn first; no schema of Kubernetes knows them.
LEARNED = {"PodMonitor"}


@cache
def kustomization(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDERS[name] / "kustomization.yaml").read_text())


@cache
def manifests(name: str) -> list[dict[str, Any]]:
    """What a folder's kustomization names, and lies beside it."""
    files = [FOLDERS[name] / file for file in kustomization(name)["resources"]]
    files += [FOLDER / "podmonitor.yaml"] if not name else []
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


EVERY = [(f"{m['kind']}/{m['metadata']['name']}", m) for name in FOLDERS for m in manifests(name)]
PODS = {
    name: next(m for m in manifests(name) if m["kind"] == "Deployment")["spec"]["template"]
    for name in FOLDERS
}


def find(kind: str, name: str) -> dict[str, Any]:
    return next(m for title, m in EVERY if title == f"{kind}/{name}")


def containers(name: str) -> list[dict[str, Any]]:
    spec = PODS[name]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


SIDECAR = PODS[""]["spec"]["containers"][0]
NGINX = PODS["nginx"]["spec"]["containers"][0]


def port(container: dict[str, Any], name: str) -> int:
    (number,) = [p["containerPort"] for p in container["ports"] if p["name"] == name]
    return number


def selected(selector: dict[str, str]) -> list[str]:
    """The folders whose pods have these labels."""
    return [
        name for name, pod in PODS.items()
        if selector.items() <= pod["metadata"]["labels"].items()
    ]  # fmt: skip


@pytest.fixture
def settings(tmp_path):
    """What a replica in the cluster would load."""
    environ = read_image_env() | {e["name"]: e["value"] for e in SIDECAR["env"]}
    mounted = {m["name"]: m["mountPath"] for m in SIDECAR["volumeMounts"]}
    for file in kustomization("")["secretGenerator"][0]["files"]:
        (tmp_path / Path(file).name).write_text("0123456789abcdef" * 4)
    environ = {k: v.replace(mounted["secrets"], str(tmp_path)) for k, v in environ.items()}
    return load(str(FOLDER / "waitroom.toml"), environ)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "manifest", [m for _, m in EVERY if m["kind"] not in LEARNED],
    ids=[title for title, m in EVERY if m["kind"] not in LEARNED],
)  # fmt: skip
def test_kubernetes_takes_a_manifest(manifest, version):
    """It fits the schema of the oldest version that is promised and of the newest known."""
    kubernetes_validate.validate(manifest, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifest, "speck": {}}, version, strict=True)
    assert VERSIONS[0] in PAGE


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_complete(name):
    """All that a kustomization names is there, and all that is there is named."""
    folder, kust = FOLDERS[name], kustomization(name)
    generators = [*kust.get("configMapGenerator", []), *kust.get("secretGenerator", [])]
    named = {file for generator in generators for file in generator["files"]}
    named |= set(kust["resources"])
    secret = {file for file in named if file.startswith("secrets/")}
    # Secrets are made as the page says, and no commit takes them.
    assert all(f"kubernetes/{file}" in PAGE or Path(file).name in PAGE for file in secret)
    assert not secret or (folder / ".gitignore").read_text() == "secrets/\n"
    beside = {file.name for file in folder.iterdir() if file.is_file()} - {".gitignore"}
    assert named - secret == beside - {"kustomization.yaml", "podmonitor.yaml"}
    assert kust["namespace"] == find("Namespace", "waitroom")["metadata"]["name"]


@pytest.mark.parametrize("name", FOLDERS)
def test_images_are_of_this_version(name):
    """The sidecar's image is named once, with this version; nginx is that of compose."""
    assert kustomization(name)["images"] == [{"name": "waitroom", "newTag": __version__}]
    assert SIDECAR["image"] == containers("nginx")[0]["image"] == "waitroom"
    assert NGINX["image"] == SERVICES["nginx"]["image"]


def test_selectors_find_their_pods():
    """Services, budgets, rules and monitors select the pods that they are meant for."""
    for name in FOLDERS:
        for m in manifests(name):
            spec = m.get("spec", {})
            want = ["nginx"] if m["metadata"]["name"] == "waitroom-nginx" else [""]
            found = spec.get("podSelector", spec.get("selector"))
            if found is not None:
                assert selected(found.get("matchLabels", found)) == want, m["metadata"]["name"]
    for name, pod in PODS.items():
        (spread,) = pod["spec"]["topologySpreadConstraints"]
        assert selected(spread["labelSelector"]["matchLabels"]) == [name]
        assert find("PodDisruptionBudget", f"waitroom-{name}".rstrip("-"))["spec"]["maxUnavailable"]
    nginx_only = find("NetworkPolicy", "waitroom")["spec"]["ingress"][0]["from"][0]
    assert selected(nginx_only["podSelector"]["matchLabels"]) == ["nginx"]


def test_ports_agree(settings):
    """Containers, services, rules, annotations and nginx name the ports that are listened on."""
    edge, ops = port(SIDECAR, "edge"), port(SIDECAR, "ops")
    assert (edge, ops) == (port_of(settings.edge_listen), port_of(settings.ops_listen))
    assert read_last_stage()["EXPOSE"].split() == [str(edge), str(ops)]
    for name in ("waitroom-edge", "waitroom-replicas"):
        (only,) = find("Service", name)["spec"]["ports"]
        assert (only["port"], only["targetPort"]) == (edge, "edge")
    rules = find("NetworkPolicy", "waitroom")["spec"]["ingress"]
    assert [[p["port"] for p in rule["ports"]] for rule in rules] == [["edge"], ["ops"]]
    assert PODS[""]["metadata"]["annotations"]["prometheus.io/port"] == str(ops)
    assert find("PodMonitor", "waitroom")["spec"]["podMetricsEndpoints"][0]["port"] == "ops"
    server = f"waitroom-replicas.{kustomization('nginx')['namespace']}.svc.cluster.local:{edge}"
    assert f"server {server} resolve" in (FOLDER / "nginx/settings.conf").read_text()
    assert f"listen {port(NGINX, 'http')} " in (FOLDER / "nginx/nginx.conf").read_text()


def test_probes_ask_endpoints_that_are_there():
    """Liveness and readiness need no store; a start does."""
    endpoints = {endpoint.path for endpoint in OPS}
    asked = {
        name: SIDECAR[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")
    }
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startup": "/readyz", "readiness": "/healthz", "liveness": "/healthz",
    }  # fmt: skip
    assert {probe["port"] for probe in asked.values()} == {"ops"}
    paths = {probe["path"] for probe in asked.values()}
    paths.add(PODS[""]["metadata"]["annotations"]["prometheus.io/path"])
    assert paths <= endpoints
    for probe in ("readinessProbe", "livenessProbe"):
        path = NGINX[probe]["httpGet"]["path"]
        assert (ROOT / "static" / path.removeprefix("/_waitroom/static/")).is_file()


def test_the_settings_are_right(settings):
    """waitroom.toml lies where the command looks, and its secrets come from files."""
    mounts = {m["name"]: m["mountPath"] for m in SIDECAR["volumeMounts"]}
    assert mounts["settings"] == read_last_stage()["WORKDIR"]
    assert kustomization("")["configMapGenerator"][0]["files"] == [DEFAULT_FILE]
    keys = {Path(f).name for f in kustomization("")["secretGenerator"][0]["files"]}
    assert {e["value"] for e in SIDECAR["env"]} == {f"{mounts['secrets']}/{key}" for key in keys}
    assert settings.admin_token
    assert not settings.demo
    asked = re.findall(r"set \$waitroom_room (\w+);", (FOLDER / "nginx/nginx.conf").read_text())
    assert set(asked) == set(settings.rooms)


def test_a_stop_has_the_time_it_takes(settings):
    """A replica outlives its place in the service, answers what it has, and is not cut off."""
    # The cluster's DNS may cache its address for 30 s, and nginx for 5 s.
    assert settings.shutdown_delay >= 30 + 5
    grace = PODS[""]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.shutdown_delay + 2 * DRAIN_S - 1


@pytest.mark.parametrize("name", FOLDERS)
def test_a_pod_has_no_more_rights_than_it_needs(name):
    """What the namespace's `restricted` level asks for, and a root filesystem that is read-only."""
    spec = PODS[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    pod = spec["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    if not name:
        assert f"{pod['runAsUser']}:{pod['runAsGroup']}" == read_last_stage()["USER"]
    for container in containers(name):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]) == {"requests", "limits"}


@pytest.mark.parametrize("name", FOLDERS)
def test_volumes_are_there(name):
    """A mount names a volume, and a volume what the kustomization makes."""
    volumes = {volume["name"]: volume for volume in PODS[name]["spec"]["volumes"]}
    mounted = {m["name"] for c in containers(name) for m in c["volumeMounts"]}
    assert mounted == set(volumes)
    for kind, generator, key in (
        ("configMap", "configMapGenerator", "name"), ("secret", "secretGenerator", "secretName"),
    ):  # fmt: skip
        used = {volume[kind][key] for volume in volumes.values() if kind in volume}
        assert used == {made["name"] for made in kustomization(name).get(generator, [])}


def test_no_variable_of_kubernetes_own_is_taken_for_a_setting():
    """Each service would make WAITROOM_… variables, which are refused: no pod asks for them."""
    services = [m["metadata"]["name"] for title, m in EVERY if title.startswith("Service/")]
    assert any(name.upper().replace("-", "_").startswith(ENV_PREFIX) for name in services)
    assert [pod["spec"]["enableServiceLinks"] for pod in PODS.values()] == [False, False]


def test_nginx_takes_its_configuration(tmp_path):
    """`nginx -t`, with the includes as the pod's first container copies them."""
    share = tmp_path / "image" / "sidecar" / "share"
    shutil.copytree(ROOT / "nginx" / "waitroom", share / "nginx")
    shutil.copytree(ROOT / "static", share / "static")
    (share.parent / "__init__.py").touch()
    includes, main = containers("nginx")
    *shell, code = includes["command"]
    site = tmp_path / "site"
    (site / "waitroom").mkdir(parents=True, mode=0o700)
    path = {"PYTHONPATH": str(share.parent.parent), "PATH": f"{BIN}:{os.environ['PATH']}"}
    for _ in range(2):  # it may be started again
        subprocess.run(
            [*shell, code.replace(" /waitroom", f" {site}/waitroom")],
            env=os.environ | path, cwd=tmp_path, check=True, timeout=20,
        )  # fmt: skip
    # The volume's folder is root's, and the container's user may not change its mode.
    assert (site / "waitroom").stat().st_mode & 0o777 == 0o700
    at = {m.get("subPath", m["name"]): m["mountPath"] for m in main["volumeMounts"]}
    (site / at["waitroom-stamp.conf"].removeprefix("/etc/nginx/")).write_text(
        build_key_file(["a secret"])
    )
    for name in kustomization("nginx")["configMapGenerator"][0]["files"]:
        text = (FOLDER / "nginx" / name).read_text()
        # `resolve` is newer than many an installed nginx, and there is no such resolver.
        text = re.sub(r"server \S+ resolve( max_fails=0)?;", "server 127.0.0.1:9;", text)
        text = re.sub(r"resolver \S+", "resolver 127.0.0.1", text)
        text = text.replace("/tmp/", f"{tmp_path}/tmp/").replace("/dev/stdout", f"{tmp_path}/log")
        text = text.replace("listen 8080", f"listen 127.0.0.1:{free_port()}")
        place = site / at[name].removeprefix("/etc/nginx/")
        place.write_text(text)
    (tmp_path / "tmp").mkdir()
    static = re.search(r"default (\S+/static);", (FOLDER / "nginx/settings.conf").read_text())
    assert static
    assert (site / static[1].removeprefix("/etc/nginx/") / "waiting.html").is_file()
    done = subprocess.run(
        nginx_command(site, "-t"), capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, "[warn]" in done.stderr) == (0, False), done.stderr
    text = (FOLDER / "nginx/nginx.conf").read_text()
    assert "proxy_max_temp_file_size 0;" in text
    assert keeps_responses_out_of_memory(text)
    defines = r"^(upstream \w+|map .*? \$\w+|keys_zone=\w+|variables_\w+ \d+)"
    defined = [
        set(re.findall(defines, text, re.MULTILINE))
        for text in (
            (FOLDER / "nginx/settings.conf").read_text(),
            (ROOT / "nginx/waitroom/settings.conf").read_text(),
        )
    ]
    assert defined[0] == defined[1]
