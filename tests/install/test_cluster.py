"""What kubernetes.md and upgrade.md say to type with kubectl, typed in a cluster of one node.

KUBERNETES names a folder with Kubernetes' five servers, which no package of Debian 13 has. The
cluster has no network policies. It takes minutes, and root, so it runs where BARE is set too.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.install.engine import IMAGE_NAMES, make_engine, run_steps, start_docker
from tests.install.pages import block_after, blocks_of

SERVERS = os.environ.get("KUBERNETES", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(
        not (os.environ.get("BARE") and SERVERS),
        reason="takes minutes: set BARE=1, and KUBERNETES to the folder of kube-apiserver",
    ),
    pytest.mark.timeout(3000),
]
PACKAGES = (
    "git,openssl,curl,procps,etcd-server,containernetworking-plugins,kubernetes-client,"
    "dnsmasq-base,conntrack,jq"
)
SAVE_IMAGES = """
docker build --quiet --tag waitroom:0.1.0 .; docker tag waitroom:0.1.0 waitroom:0.1.1
printf 'FROM {nginx}\\nCMD ["sleep", "infinity"]\\n' | docker build --quiet --tag pause:1 -
docker save --output /images.tar waitroom:0.1.0 waitroom:0.1.1 pause:1 {nginx} {redis}
"""
#: What Kubernetes 1.20 does not know.
FOR_OLD_SERVERS = """
cd /waitroom/deploy/kubernetes
case $(/kubernetes/kube-apiserver --version) in *v1.20.*)
    sed -i '/matchLabelKeys/d' deployment.yaml nginx/nginx.yaml
    sed -i 's,policy/v1$,policy/v1beta1,' disruption.yaml nginx/nginx.yaml ;;
esac
"""
TWO_INSIDE = """
sed -i 's/^total_active_users = .*/total_active_users = 2/' waitroom.toml
cd /waitroom
"""
NEXT_TAG = (
    "sed -i 's/newTag: 0.1.0/newTag: 0.1.1/' deploy/kubernetes/kustomization.yaml "
    "deploy/kubernetes/nginx/kustomization.yaml"
)
READY = "kubectl -n waitroom rollout status deployment/waitroom"


@pytest.fixture
def engine(tmp_path):
    engine = make_engine(tmp_path, PACKAGES)
    shutil.copytree(SERVERS, engine / "kubernetes")
    yield engine
    shutil.rmtree(tmp_path)


def test_the_pages_of_kubernetes(engine):
    """Two visitors get in and the third waits. While nginx and the replicas are upgraded and then
    go back, each request of those inside is let in, and the one who waits keeps the place."""
    run_steps(engine, start_docker(), SAVE_IMAGES.format(**IMAGE_NAMES))
    secrets, replicas, key = blocks_of("docs/kubernetes.md", "## With kubectl")[:3]
    back = re.findall(r"`(kubectl .* rollout undo (\S+))`", Path("docs/upgrade.md").read_text())
    (undo, deployment) = back[0]
    output = run_steps(
        engine, f"REDIS={IMAGE_NAMES['redis']}", Path(__file__).with_name("cluster.sh").read_text(),
        FOR_OLD_SERVERS, TWO_INSIDE, secrets, replicas, key,
        "kubectl apply -k deploy/kubernetes/nginx", f"{READY}-nginx",
        "visit 1; visit 2; visit 3; echo during",
        "keep_visiting 1 & one=$!; keep_visiting 2 & two=$!; keep_visiting 3 & three=$!",
        NEXT_TAG, block_after("## With Kubernetes", "docs/upgrade.md"), READY,
        "kubectl -n waitroom get pods -o 'jsonpath={..image}'; echo",
        undo, undo.replace(deployment, f"{deployment}-nginx"), READY, f"{READY}-nginx",
        "touch /tmp/stop; wait $one $two $three", "echo after",
        "kubectl -n waitroom exec deployment/waitroom -- waitroom rooms list",
    )  # fmt: skip
    before, during, after = re.split(r"^(?:during|after)$", output, flags=re.MULTILINE)
    assert re.findall(r"^visitor \d: (\d+)", before, re.MULTILINE) == ["200", "200", "503"]
    assert "waitroom:0.1.1" in during
    answers = [re.findall(rf"^visitor {n}: (\d+)", during, re.MULTILINE) for n in (1, 2, 3)]
    assert min(map(len, answers)) > 50
    assert [set(codes) for codes in answers] == [{"200"}, {"200"}, {"503"}]
    assert re.search(r"^shop\s+at cap\s+1\s+2\s+2\b", after, re.MULTILINE)
