"""The chart: its templates render, Kubernetes takes the result, and it agrees with the manifests.

No helm is there: tests/install/chart/render.go renders with the engine and the functions that
helm has.
"""

import json
import os
import shutil
import subprocess
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from sidecar import __version__
from sidecar.settings.load import load
from tests.install.compose import ROOT

CHART = ROOT / "deploy" / "kubernetes" / "chart"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
#: The oldest that Chart.yaml names; the newest is what the package knows.
VERSIONS = ("1.29", kubernetes_validate.latest_version())
#: Kinds that the cluster has to learn first; no schema of Kubernetes knows them.
LEARNED = {"ServiceMonitor"}
EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "store": "",
    "rooms": {
        "shop": {"total_active_users": 2_000_000, "message": 'A "sale" & more', "classes": ["a"]},
        "tickets": {"total_active_users": 0},
    },
    "extraSettings": '[limits.api]\nalgorithm = "fixed_window"\nlimit = 5\nwindow = "1m"\n',
    "secret": {"existing": "own"},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a/b": "c"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "ingress": {"enabled": True, "open": ["/assets"], "tlsSecret": "cert"},
}  # fmt: skip


def merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As helm merges: tables by their keys, all else is replaced."""
    result = deepcopy(values)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else value
    return result


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    go = shutil.which("go")
    if go is None:
        pytest.fail("go is not installed; run make test, or install golang-go")
    folder = tmp_path_factory.mktemp("render")
    environ = {
        **os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode",
        "GOCACHE": str(folder / "cache"), "GOFLAGS": "",
    }  # fmt: skip
    source = Path(__file__).with_name("chart") / "render.go"
    command = [go, "build", "-o", folder / "render", source]
    subprocess.run(command, check=True, env=environ, timeout=300)
    return folder / "render"


@pytest.fixture(scope="module")
def render(renderer):
    """The documents of the chart with these values over its own."""

    def render(over: dict[str, Any], release: str = "waitroom") -> list[dict[str, Any]]:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        data = {
            "Values": merged(VALUES, over),
            "Release": {"Name": release, "Namespace": "shop", "Service": "Helm"},
            "Chart": {"Name": chart["name"], "Version": chart["version"],
                      "AppVersion": chart["appVersion"]},
        }  # fmt: skip
        done = subprocess.run(
            [renderer, CHART], input=json.dumps(data), capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip
        if done.returncode:
            raise ValueError(done.stderr)
        texts = json.loads(done.stdout)
        assert "kubectl -n shop" in texts.pop("NOTES.txt")
        return [doc for text in texts.values() for doc in yaml.safe_load_all(text) if doc]

    return render


def find(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def settings_in(documents: list[dict[str, Any]]) -> str:
    """The file waitroom.toml of the ConfigMap that has it."""
    datas = [document["data"] for document in documents if document["kind"] == "ConfigMap"]
    (toml,) = [data["waitroom.toml"] for data in datas if "waitroom.toml" in data]
    return str(toml)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("over", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_kubernetes_takes_it(render, over, version):
    """Each document is valid for the oldest and the newest version, with no unknown field."""
    documents = render(over)
    for document in documents:
        if document["kind"] not in LEARNED:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_settings_load(render, tmp_path):
    """What the ConfigMap has is what a replica reads: whole numbers, texts with their marks."""
    rooms = tomllib.loads(settings_in(render(EVERYTHING)))["rooms"]
    assert rooms["shop"]["total_active_users"] == 2_000_000
    assert rooms["shop"]["message"] == 'A "sale" & more'
    file = tmp_path / "waitroom.toml"
    file.write_text(settings_in(render({})))
    settings = load(str(file), {"WAITROOM_SECRET_KEYS": "k" * 32})
    assert settings.store == VALUES["store"]
    assert settings.shutdown_delay == 10
    assert settings.rooms["shop"].total_active_users == 100


def test_the_replica_is_the_manifests(render):
    """The chart's container is the one of deploy/kubernetes/deployment.yaml, but for its image."""
    (manifest,) = yaml.safe_load_all(
        (ROOT / "deploy" / "kubernetes" / "deployment.yaml").read_text()
    )
    ours, theirs = (
        document["spec"]["template"]["spec"]
        for document in (find(render({}), "Deployment"), manifest)
    )
    (own,), (other,) = ours.pop("containers"), theirs.pop("containers")
    assert own.pop("image") == f"waitroom:{__version__}"
    assert own.pop("imagePullPolicy") == "IfNotPresent"
    assert other.pop("image") == "waitroom"
    assert own == other
    for spec in (ours, theirs):
        spec.pop("topologySpreadConstraints")
        spec.pop("volumes")
    assert ours == theirs


def test_keys_are_made_once_and_kept(render):
    """Two long random values; an existing secret is taken instead, and none is made."""
    secret = find(render({}), "Secret")
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert len({*secret["data"].values()}) == 2
    documents = render({"secret": {"existing": "own"}})
    assert [document for document in documents if document["kind"] == "Secret"] == []
    volumes = find(documents, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["secret"]["secretName"] == "own"


def test_the_ingress_names_a_room_that_there_is(render):
    """And its annotations are those that the page about ingress-nginx documents."""
    with pytest.raises(ValueError, match='there is no room "stage" in rooms'):
        render({"ingress": {"enabled": True, "room": "stage"}})
    documents = render({"ingress": {"enabled": True}}, release="sale")
    site, open_paths = [document for document in documents if document["kind"] == "Ingress"]
    page = (ROOT / "docs" / "ingress-nginx.md").read_text()
    names = site["metadata"]["annotations"]
    assert all(name in page for name in names)
    url = names["nginx.ingress.kubernetes.io/auth-url"]
    edge = next(
        document for document in documents
        if document["kind"] == "Service" and document["metadata"]["name"] in url
    )  # fmt: skip
    assert url.split("/")[2] == f"{edge['metadata']['name']}.shop.svc.cluster.local:8400"
    paths = open_paths["spec"]["rules"][0]["http"]["paths"]
    assert [path["path"] for path in paths] == ["/_waitroom"]


def test_an_empty_list_lets_nobody_in(render):
    """A rule without `from` would let everybody in."""
    policy = find(render({"networkPolicy": {"edgeFrom": [], "opsFrom": []}}), "NetworkPolicy")
    assert policy["spec"]["ingress"] is None


@pytest.mark.parametrize("over", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_the_schema_takes_the_values(over):
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(merged(VALUES, over), SCHEMA)


@pytest.mark.parametrize(
    "over",
    [
        {"replica": 3}, {"replicas": 0}, {"store": "mysql://x"},
        {"rooms": {"Shop": {"total_active_users": 1}}}, {"rooms": {"other": {}}},
        {"ingress": {"service": {"name": "shop", "port": "http"}}},
    ],
)  # fmt: skip
def test_the_schema_refuses_mistakes(over):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, over), SCHEMA)


def test_it_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
