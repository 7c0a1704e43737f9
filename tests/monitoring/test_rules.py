"""The alarms: well-formed, each fires and keeps quiet when it should, and says what to do."""

import re

import pytest
import yaml

from tests.support.monitoring import MONITORING, ROOT, RULE_TESTS, RULES, run

ALARMS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
ALERTMANAGER = MONITORING / "alertmanager" / "alertmanager.yml"


@pytest.mark.full
def test_prometheus_takes_the_rules_and_the_example():
    """promtool finds no fault with the scrape configuration, nor with the rules it names."""
    said = run("promtool", "check", "config", MONITORING / "prometheus" / "prometheus.yml")
    assert "1 rule files found" in said


@pytest.mark.full
def test_the_alarms_fire_and_keep_quiet():
    """promtool plays rooms in trouble and rooms close to it."""
    run("promtool", "test", "rules", RULE_TESTS)


def test_every_alarm_is_tried():
    """Each has an expectation that it fires, and one that it does not: at another time, or for
    another room or site of the same test, since an expectation lists all that are told."""
    fires, quiet, labels = set(), set(), ("room", "webhook", "job")
    for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]:
        text = " ".join(given["series"] for given in test["input_series"])
        most = max(len(set(re.findall(rf'\b{label}="(.+?)"', text))) for label in labels)
        for expected in test.get("promql_expr_test", ()):
            told = len(expected["exp_samples"])
            for name in re.findall(r"Waitroom\w+", expected["expr"]):
                if told:
                    fires.add(name)
                if told < most:
                    quiet.add(name)
    assert fires == set(ALARMS)
    assert quiet == set(ALARMS)


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_says_where_and_what_to_do(name):
    """Its severity is one of three, its texts name the room (or the site, where the trouble
    is all rooms'), and its runbook is the whole address of its section."""
    alarm = ALARMS[name]
    texts = alarm["annotations"]
    assert alarm["labels"]["severity"] in {"critical", "warning", "info"}
    assert re.search(r"\$labels\.(room|limit|target|webhook|job)", texts["summary"])
    assert re.search(r"\$labels\.(room|limit|target|webhook|job)", texts["description"])
    # What it means, and below what to do: docs/alerts.md shows them apart.
    assert len(texts["description"].split("\n")) == 2
    assert texts["runbook_url"] == f"https://waitroom.example/docs/alerts.html#{name.lower()}"
    assert f"\n## {name}\n" in (ROOT / "docs" / "alerts.md").read_text()


@pytest.mark.full
def test_alertmanager_takes_the_example():
    """amtool finds no fault with it."""
    assert "SUCCESS" in run("amtool", "check-config", ALERTMANAGER)


@pytest.mark.full
@pytest.mark.parametrize(
    ("severity", "told"),
    [("critical", "slack,dingtalk,webhook"), ("warning", "dingtalk,webhook"), ("info", "nobody")],
)
def test_who_is_told(severity, told):
    """The worst goes everywhere; what may be meant so, nowhere."""
    run("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}",
        f"--verify.receivers={told}", f"severity={severity}", "job=waitroom")  # fmt: skip


def test_what_is_held_back_exists():
    """The alarms that the inhibition names are alarms; a pattern stands for at least one."""
    for rule in yaml.safe_load(ALERTMANAGER.read_text())["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            pattern = matcher.partition('"')[2].rstrip('"')
            for each in pattern.split("|"):
                assert any(re.fullmatch(each, name) for name in ALARMS), each
