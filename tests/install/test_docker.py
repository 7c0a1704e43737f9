"""What README, docker.md and upgrade.md say to type for Docker Compose, typed as it stands, by the
Docker of Debian 13; and history and jobs on PostgreSQL in the image.

It takes minutes, and root, so it runs where BARE is set: make test-all
BARE=1.
"""

import json
import os
import re
import shutil
import textwrap

import pytest

from tests.install.compose import COMPOSE
from tests.install.engine import IMAGE_NAMES, make_engine, run_steps, start_docker
from tests.install.pages import block_after

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(not os.environ.get("BARE"), reason="takes minutes: set BARE=1"),
    pytest.mark.timeout(2400),
]
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


def without_terminal(block: str) -> str:
    """A block for a script: `exec` asks for no terminal, and the logs end."""
    return block.replace("compose exec", "compose exec -T").replace(" --follow", "")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A bare Debian 13 with Docker, a clone at /waitroom and the base images as archives."""
    folder = tmp_path_factory.mktemp("docker")
    yield make_engine(folder, "docker-compose,git,openssl,curl,procps", servers="postgresql")
    shutil.rmtree(folder)


def test_the_pages_of_docker(engine):
    """Two visitors get in and the third waits; more get in after a change, and after an upgrade. In
    the image a visit is in the history, and a job is done."""
    alone = block_after("## The image alone", "docs/docker.md")
    alone = alone.replace("redis://redis.internal:6379/0", "memory://")
    alone = alone.replace("docker run ", "docker run --detach --name alone ")
    assert alone.count("alone") == 1
    site = "http://localhost:8080/"
    output = run_steps(
        engine, start_docker(), block_after("**With Docker Compose**"),
        *[f"visit {site}"] * 3,
        without_terminal(block_after("3. Look at the room", "docs/docker.md")), f"visit {site}",
        without_terminal(block_after("## With Docker Compose", "docs/upgrade.md")),
        f"visit {site}", "docker compose ps --format '{{.Name}} {{.Status}}'",
        "docker compose down --volumes", POSTGRESQL.format(**IMAGE_NAMES),
        "printf '[rooms.shop]\\ntotal_active_users = 1\\n' >waitroom.toml",
        "export WAITROOM_SECRET_KEYS=$(openssl rand -hex 32)", alone,
        "until visit http://localhost:8400/gate/shop/ | grep 200; do sleep 1; done",
    )  # fmt: skip
    visits = re.findall(r"^visitor (\d+)", output, re.MULTILINE)
    assert visits == ["200", "200", "503", "200", "200", "200", "200"]
    services = COMPOSE["services"]
    healthy = re.findall(r"^waitroom-(\w+)-\d+ Up .*\(healthy\)", output, re.MULTILINE)
    assert set(healthy) == set(services), textwrap.shorten(output, 500)
    assert re.search(r"^job: fine$", output, re.MULTILINE)
    report = re.search(r"^report: (.*)$", output, re.MULTILINE)
    assert report
    assert json.loads(report[1])["admitted_at_once"] == 1
