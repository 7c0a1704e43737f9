"""`waitroom limits` and `waitroom leases`."""

import json
import re

import pytest
from click.testing import Result

from sidecar.cli.replica_client import ReplicaOptions

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"


@pytest.fixture
def take(config):
    """Somebody takes a resource, or queues for it."""
    options = ReplicaOptions(str(config))

    def take(resource: str, holder: str, *, template: str = "seat") -> str:
        path = f"/v1/leases/{template}/{resource}"
        with options.client() as client:
            return client.request("POST", path, {"holder": holder})["state"]

    return take


def said(done: Result) -> list[str]:
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_limits_are_listed(run):
    """Each limit has a line, with its window or the life of a permit."""
    assert [line.split("\t") for line in said(run("limits", "list"))] == [
        ["name", "algorithm", "limit", "each", "exceed", "key"],
        ["pay", "fixed_window", "20", "86400 s", "refuse", "{biz}:{channel}"],
        ["slots", "concurrency", "3", "30 s", "refuse", ""],
    ]


def test_a_limit_is_shown(run):
    """A limit is shown with its values; with a key, the decision on a call."""
    shown = json.loads(run("limits", "show", "pay").stdout)
    assert (shown["limit"], shown["fields"]) == (20, ["biz", "channel"])
    assert shown["values"] == {"file": {"refund:wx": 1}, "set": {}}
    for words in (("biz=refund", "channel=wx"), ("--key", "refund:wx")):
        shown = json.loads(run("limits", "show", "pay", *words).stdout)
        assert (shown["key"], shown["limit"], shown["allowed"]) == ("refund:wx", 1, True)
    assert json.loads(run("limits", "show", "slots").stdout)["remaining"] == 3
    shown = json.loads(run("limits", "show", "pay", "biz=a=b&c", "channel=50%/").stdout)
    assert shown["key"] == "a%3Db%26c:50%25%2F"


def test_a_keys_limit_is_set(run):
    """A key's limit is set and unset, also of a key with a percent sign."""
    key = "a%2Fb:wx"
    assert said(run("limits", "set", "pay", key, "5")) == [f"pay: the limit of {key} is 5"]
    shown = json.loads(run("limits", "show", "pay", "biz=a/b", "channel=wx").stdout)
    assert (shown["key"], shown["limit"]) == (key, 5)
    assert said(run("limits", "set", "pay", key, "-1")) == [f"pay: the limit of {key} is none"]
    assert said(run("limits", "unset", "pay", key)) == [f"pay: the limit of {key} is 20"]
    assert json.loads(run("limits", "show", "pay").stdout)["values"]["set"] == {}


def test_a_limit_without_fields_needs_no_key(run):
    """A limit without fields is set by the number alone."""
    assert said(run("limits", "set", "slots", "9")) == ["slots: the limit is 9"]
    assert json.loads(run("limits", "show", "slots").stdout)["limit"] == 9
    assert said(run("limits", "unset", "slots")) == ["slots: the limit is 3"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("limits show pai", "no limit is named 'pai'"),
        ("limits show pay biz=a", "channel: is needed, a part of the key {biz}:{channel}"),
        ("limits show pay refund:wx", "refund:wx: write FIELD=VALUE, such as channel=wx"),
        ("limits show pay --key a biz=b", "say either --key or fields"),
        ("limits set pay refund:wx many", "many: say a whole number, or -1 for no limit"),
        ("limits set pay 5", "biz: is needed, a part of the key"),
        ("limits set pay a b 5", "say NAME, KEY and LIMIT"),
        ("leases list seed", "no lease is named 'seed'"),
        ("leases release seat a/b", "a/b: that is no resource's name"),
        ("leases release seat a ä", "holder: 1 to 128 letters"),
    ],
)
def test_what_is_refused(run, words, why):
    """A refusal says why."""
    done = run(*words.split())
    assert done.exit_code in {1, 2}
    assert isinstance(done.exception, SystemExit)
    assert why in done.stderr
    assert done.stdout == ""


def test_leases_are_listed(run, take):
    """Templates are listed; of one, each resource with its holders."""
    assert [take("17", name) for name in ("anna", "ben", "eva")] == ["granted"] * 2 + ["waiting"]
    assert [line.split("\t") for line in said(run("leases", "list"))] == [
        ["name", "term", "capacity", "in use"],
        ["seat", "3600 s", "2", "1"],
        ["desk", "90 s", "1", "0"],
    ]
    _, line = said(run("leases", "list", "seat"))
    assert re.fullmatch(f"17\t1\tanna until {MOMENT}, ben until {MOMENT}", line)
    said(run("leases", "release", "seat", "17", "anna"))
    _, line = said(run("leases", "list", "seat"))
    assert re.fullmatch(f"17\t0\t(.*, )?eva is called, and has until {MOMENT}(, .*)?", line)
    for name in ("ben", "eva"):
        assert said(run("leases", "release", "seat", "17", name)) == [f"{name} released"]
    assert said(run("leases", "list", "seat")) == ["resource\twaiting\theld by"]


def test_all_leases_of_a_resource_are_released(run, take):
    """Only the named resource is released, not those next to it by name."""
    for resource in ("17", "18", "17+", "16", "1", "16z"):
        take(resource, "-anna")
        take(resource, "ben")
    take("17", "eva")
    assert said(run("leases", "release", "seat", "17")) == [
        "-anna released", "ben released", "2 held 17; 1 waited for it",
    ]  # fmt: skip
    left = [line.split()[0] for line in said(run("leases", "list", "seat"))[1:]]
    assert left == ["1", "16", "16z", "17", "17+", "18"]
    assert said(run("leases", "release", "seat", "17")) == [
        "eva released", "1 held 17; 0 waited for it",
    ]  # fmt: skip
    for resource in ("17", "15", "zz", "0"):
        assert said(run("leases", "release", "seat", resource)) == [f"nobody holds {resource}"]
    again = run("leases", "release", "seat", "18", "eva")
    assert said(again) == ["eva neither held 18 nor waited"]


def test_who_waits_for_a_resource(run, take):
    """A resource shows its holders and queue, and is found by a holder's name."""
    for holder in ("shown-1", "shown-2", "shown-3"):
        take("shown", holder)
    held, waits = [], []
    for line in said(run("leases", "show", "seat", "shown")):
        fields = line.split("\t")
        (held if len(fields) == 5 and fields[0].startswith("shown") else waits).append(fields)
    assert [fields[:2] for fields in held] == [["shown-1", "operator"], ["shown-2", "operator"]]
    assert [fields[:2] for fields in waits[2:]] == [["1", "shown-3"]]
    found = said(run("leases", "list", "seat", "--find", "shown-3"))
    assert [line.split("\t")[0] for line in found[1:]] == ["shown"]
    refused = run("leases", "list", "--find", "x")
    assert (refused.exit_code, "TEMPLATE" in refused.stderr) == (2, True)


def test_a_key_is_found_and_reset(run, config):
    with ReplicaOptions(str(config)).client() as client:
        for key, calls in (("find:1", 1), ("find:3", 3)):
            for _ in range(calls):
                client.request("POST", "/v1/limits/pay/acquire", {"key": key})
    rows = [line.split("\t") for line in said(run("limits", "keys", "pay"))]
    assert rows[0] == ["key", "limit", "left", "free again in"]
    found = [row[:3] for row in rows if row[0].startswith("find:")]
    assert found == [["find:3", "20", "17"], ["find:1", "20", "19"]]
    assert said(run("limits", "reset", "pay", "find:3")) == ["pay: the count of find:3 is reset"]
    assert said(run("limits", "reset", "pay", "find:3")) == ["pay: nothing was counted of find:3"]
    assert said(run("limits", "reset", "slots")) == ["slots: nothing was counted"]
