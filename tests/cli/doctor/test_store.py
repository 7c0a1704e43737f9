"""The doctor finds replicas that do not share a store; what a replica says of its own memory."""

import json
import urllib.request
from contextlib import ExitStack

import pytest

from sidecar.cli.doctor.findings import Level
from tests.cli.doctor.ward import bad, examine, said
from tests.support.processes import Process, listens, wait_until
from tests.support.redis_servers import RedisServer
from tests.support.site import Site, answers, redis_command


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return json.load(reply)


async def test_replicas_with_a_memory_each_are_found():
    """Both answer, both let in as many as the cap says; one alone is doubtful, and says so."""
    rooms = {"shop": {"total_active_users": 1}}
    with Site(rooms=rooms, replicas=2, store="memory://") as site:
        findings = await examine(f"{site.url}/page")
        (problem,) = bad(findings)
        assert "replicas do not share a store: 2 stores answered, each in a replica's" in problem
        assert "Set `store` to the same address in all replicas, such as `redis://" in problem
        for ops, replica in zip(site.ops, site.replicas, strict=True):
            assert get(f"{ops}/readyz") == {"status": "ready", "store": "memory"}
            (line,) = [line for line in replica.output.splitlines() if "settings_warning" in line]
            assert '"level": "warning"' in line
            assert "all state is in this process alone" in line

        site.replicas[1].kill()
        findings = await examine(f"{site.url}/page")
        assert not bad(findings)
        (warning,) = bad(findings, Level.WARNING)
        assert "the replica keeps its rooms in its own memory" in warning


@pytest.mark.parametrize("room", [{"total_active_users": 9}, {"total_active_users": 0}])
async def test_replicas_with_a_redis_each_are_found(room):
    """Whether there is a place for the doctor or not; with one for both all is well."""
    with ExitStack() as stack:
        site = stack.enter_context(Site(rooms={"shop": room}, replicas=2))
        findings = await examine(f"{site.url}/page")
        assert {found.level for found in findings} == {Level.OK}, findings
        assert "the replicas that answered share a store" in said(findings)
        wait_until(lambda: "eviction" in get(f"{site.ops[0]}/readyz"), "a look at the policy")
        ready = {"status": "ready", "store": "redis", "eviction": "noeviction"}
        assert get(f"{site.ops[0]}/readyz") == ready
        assert "settings_warning" not in site.replicas[0].output

        other = site.folder / "other.sock"
        stack.enter_context(Process(redis_command(other), log=site.folder / "other.log"))
        wait_until(lambda: listens(other), "the other redis-server")
        config = site.folder / "replica-1.toml"
        config.write_text(config.read_text().replace(str(site.redis_socket), str(other)))
        site.replicas[1].stop()
        site.replicas[1].start()
        wait_until(lambda: answers(f"{site.ops[1]}/readyz"), "the replica", of=site.replicas[1])
        (problem,) = bad(await examine(f"{site.url}/page"))
        assert "replicas do not share a store: 2 stores answered; each has its own queue" in problem


async def test_a_redis_that_evicts_is_found():
    """By the doctor, at /readyz and in the log."""
    with RedisServer("--maxmemory-policy", "allkeys-lru") as redis, Site(store=redis.url) as site:
        wait_until(lambda: "eviction" in get(f"{site.ops[0]}/readyz"), "a look at the policy")
        assert get(f"{site.ops[0]}/readyz")["eviction"] == "allkeys-lru"
        assert "store_evicts" in site.replicas[0].output
        (problem,) = bad(await examine(f"{site.url}/page"))
        assert "maxmemory-policy allkeys-lru" in problem
        assert "noeviction" in problem
