"""The chart: its templates render, Kubernetes takes the result, and it agrees with the manifests.

No helm is there: tests/install/chart/render.go renders with the engine and the functions that
helm has.
"""

import json
import os
import re
import shutil
import subprocess
import sys
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
from tests.support.commands import COMMANDS
from tests.support.site import Site

CHART = ROOT / "deploy" / "kubernetes" / "chart"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
#: The oldest that Chart.yaml names, and the three newest of those that the package knows.
VERSIONS = ("1.29", "1.35", "1.36", "1.37")
#: Kinds that the cluster has to learn first; no schema of Kubernetes knows them.
LEARNED = {"ServiceMonitor", "PrometheusRule", "HTTPRoute", "SecurityPolicy"}
EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "store": "",
    "rooms": {
        "shop": {"total_active_users": 2_000_000, "message": 'A "sale" & more', "classes": ["a"]},
        "tickets": {"total_active_users": 0, "queueing_status_code": 429},
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
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "datasource": "main"},
    "image": {"digest": f"sha256:{'0a' * 32}"},
    "labels": {"team": "shop"},
    "serviceAccount": "waitroom",
    "extraEnv": [{"name": "WAITROOM_JOBS_FILE", "value": "/run/secrets/waitroom/jobs"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/own", "readOnly": True}],
    "jobs": {"enabled": True},
    "migrate": {"enabled": True},
    "ingress": {"enabled": True, "open": ["/assets"], "tlsSecret": "cert"},
    "gateway": {"enabled": True, "room": "tickets", "open": ["/assets"]},
}  # fmt: skip


def merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge values as helm does: tables by their keys. All other values are replaced."""
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
    """Return a function that renders the chart with values over its own. It returns documents."""

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


def find(documents: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    """Return the one document of a kind whose name is the release's with this ending."""
    (found,) = [
        document for document in documents
        if (document["kind"], document["metadata"]["name"]) == (kind, f"waitroom{ending}")
    ]  # fmt: skip
    return found


def settings_in(documents: list[dict[str, Any]]) -> str:
    """Return the file waitroom.toml in the ConfigMaps, which must be the same in all."""
    datas = [document["data"] for document in documents if document["kind"] == "ConfigMap"]
    (toml,) = {data["waitroom.toml"] for data in datas if "waitroom.toml" in data}
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


def test_every_pod_has_what_was_asked_for(render):
    """Replicas, workers and migration: image by digest, labels, account, variables, mounts."""
    documents = render(EVERYTHING)
    everything = {
        "sidecar": find(documents, "Deployment")["spec"]["template"],
        "worker": find(documents, "Deployment", "-jobs")["spec"]["template"],
        "migrate": find(documents, "Job", "-migrate")["spec"]["template"],
    }
    for component, pod in everything.items():
        labels, spec = pod["metadata"]["labels"], pod["spec"]
        assert (labels["app.kubernetes.io/component"], labels["team"]) == (component, "shop")
        assert spec["serviceAccountName"] == "waitroom"
        (container,) = spec["containers"]
        assert container["image"] == f"waitroom@{EVERYTHING['image']['digest']}"
        assert EVERYTHING["extraEnv"][0] in container["env"]
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        assert (
            mounted
            == [volume["name"] for volume in spec["volumes"]]
            == (["settings", "secrets", "ca"])
        )
        assert container["args"][0] == "waitroom"
        assert tuple(container["args"][1:2]) in COMMANDS
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        ending = "-edge" if kind == "Service" else ""
        spec = find(documents, kind, ending)["spec"]
        selector = spec.get("selector", spec.get("podSelector"))
        # No worker is asked for a verdict, nor counted as a replica.
        assert selector.get("matchLabels", selector)["app.kubernetes.io/component"] == "sidecar"


def test_the_migration_has_all_it_needs_before_the_rest_is_there(render):
    """A hook's ConfigMap comes before it; a secret of the chart's own would come too late."""
    with pytest.raises(ValueError, match=r"migrate\.enabled needs secret\.existing"):
        render({"migrate": {"enabled": True}})
    documents = render(EVERYTHING)
    job, settings = find(documents, "Job", "-migrate"), find(documents, "ConfigMap", "-migrate")
    hooks = [document["metadata"]["annotations"]["helm.sh/hook"] for document in (job, settings)]
    assert hooks == ["pre-install,pre-upgrade"] * 2
    assert settings["metadata"]["annotations"]["helm.sh/hook-weight"] == "-1"
    volume = job["spec"]["template"]["spec"]["volumes"][0]
    assert volume["configMap"]["name"] == settings["metadata"]["name"]


def test_rules_and_dashboard_are_those_of_the_repository(render):
    """The dashboard names its data source, for nobody is asked as at an import."""
    documents = render(EVERYTHING)
    folder = ROOT / "deploy" / "monitoring"
    rules = yaml.safe_load((folder / "prometheus" / "waitroom.rules.yml").read_text())
    assert find(documents, "PrometheusRule")["spec"] == rules
    dashboard = find(documents, "ConfigMap", "-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    text = dashboard["data"]["waitroom.json"]
    assert "DS_PROMETHEUS}" not in text
    assert (
        json.loads(text)["panels"]
        == json.loads(
            (folder / "grafana" / "waitroom.json").read_text().replace("${DS_PROMETHEUS}", "main")
        )["panels"]
    )


def test_helm_test_asks_each_room_and_may(render):
    """Its pod has the label that the network policy lets in, and a room that is not there fails."""
    documents = render({"rooms": {"tickets": {"total_active_users": 1}}})
    pod = find(documents, "Pod", "-test")
    labels = pod["metadata"]["labels"].items()
    rules = find(documents, "NetworkPolicy")["spec"]["ingress"]
    (allowed,) = [
        rule for rule in rules
        if rule["from"][0].get("podSelector", {}).get("matchLabels", {"": ""}).items() <= labels
    ]  # fmt: skip
    assert allowed["ports"] == [{"port": "edge"}]
    _, option, code, _, *rooms = pod["spec"]["containers"][0]["args"]
    assert rooms == ["shop", "tickets"]
    with Site(
        rooms={"shop": {"total_active_users": 1}, "tickets": {"total_active_users": 1}}
    ) as site:
        edge = site.edges[0]
        command = [sys.executable, option, code, edge]
        assert subprocess.run([*command, *rooms], check=False, timeout=30).returncode == 0
        assert subprocess.run([*command, "other"], check=False, timeout=30).returncode != 0


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


def validate(documents: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Validate documents of a Gateway, by npm's packages of their schemas."""
    script = Path(__file__).with_name("chart") / "validate.mjs"
    return subprocess.run(
        ["node", script], input=json.dumps(documents), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


@pytest.mark.full
def test_a_gateway_takes_the_routes_and_the_policy(render):
    """By the schemas of the Gateway API and of Envoy Gateway, which refuse what is wrong."""
    kinds = ("HTTPRoute", "SecurityPolicy")
    documents = [document for document in render(EVERYTHING) if document["kind"] in kinds]
    assert [document["kind"] for document in documents] == [
        "HTTPRoute",
        "SecurityPolicy",
        "HTTPRoute",
    ]
    done = validate(documents)
    assert done.returncode == 0, done.stderr
    for index, part, wrong in (
        (0, "hostnames", "shop.example"), (1, "extAuth", {"http": {"path": 5}}), (2, "rules", [5]),
    ):  # fmt: skip
        spoilt = deepcopy(documents)
        spoilt[index]["spec"][part] = wrong
        assert validate(spoilt).returncode, part


def test_the_policy_is_that_of_the_page(render):
    """Envoy asks the room that there is, with the headers of docs/envoy.md, and without those that
    only a proxy may set; the open paths are the page's."""
    for room, problem in (("stage", 'there is no room "stage"'), ("shop", "queueing_status_code")):
        with pytest.raises(ValueError, match=problem):
            render({"gateway": {"enabled": True, "room": room}})
    documents = render(EVERYTHING, release="sale")
    named = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    policy = named["SecurityPolicy", "sale-waitroom-site"]["spec"]
    (target,) = policy["targetRefs"]
    assert (target["kind"], target["name"]) in named
    asked = policy["extAuth"]["http"]
    assert asked["path"] == "/gate/tickets"
    assert ("Service", asked["backendRefs"][0]["name"]) in named
    page = (ROOT / "docs" / "envoy.md").read_text()
    allowed = re.search(r"allowed_headers:(.*?)http_service:", page, re.DOTALL)
    names = re.findall(r"(exact|prefix): ([\w-]+)", allowed[1])
    headers = policy["extAuth"]["headersToExtAuth"]
    for kind, name in names:
        assert any(each.startswith(name) if kind == "prefix" else each == name for each in headers)
    prefixes = tuple(name for _, name in names)
    assert [each for each in headers if not each.startswith(prefixes)] == ["x-forwarded-proto"]
    endpoints, assets = named["HTTPRoute", "sale-waitroom-open"]["spec"]["rules"]
    removed = endpoints["filters"][0]["requestHeaderModifier"]["remove"]
    listed = re.search(r"request_headers_to_remove: \[(.*?)\]", page)
    assert removed == ["x-real-ip", *listed[1].split(", ")]
    assert f"regex: '{assets['matches'][0]['path']['value']}'" in page


def test_an_empty_list_lets_nobody_in(render):
    """A rule without `from` would let everybody in."""
    policy = find(render({"networkPolicy": {"edgeFrom": [], "opsFrom": []}}), "NetworkPolicy")
    (only,) = policy["spec"]["ingress"]
    (pod,) = only["from"]
    assert pod["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "test"


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
        {"gateway": {"parentRefs": []}}, {"gateway": {"open": ["/a.css"]}},
    ],
)  # fmt: skip
def test_the_schema_refuses_mistakes(over):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, over), SCHEMA)


def test_it_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
