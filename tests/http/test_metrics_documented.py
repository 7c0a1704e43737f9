"""Metrics: each says what it means; rules, dashboard and docs/metrics.md use no other."""

import json
import re

import pytest
import yaml

from scripts.docs_pages.metrics import FOUND
from tests.support.metrics import DECLARED, PAGE, QUERIES, ROOT

MONITORING = ROOT / "deploy" / "monitoring"
RULES = yaml.safe_load((MONITORING / "prometheus" / "waitroom.rules.yml").read_text())
RULE_TESTS = yaml.safe_load((MONITORING / "prometheus" / "waitroom.rules.test.yml").read_text())
DASHBOARD = json.loads((MONITORING / "grafana" / "waitroom.json").read_text())
#: The labels that Prometheus itself adds.
ADDED = {"job", "instance"}
METRIC = r"(?:up|(?:room:|target:)?(?:waitroom|process|python)[_:][a-z0-9_:]+)"
USE = re.compile(rf"(?<![\w:])({METRIC})\b(?:{{([^}}]*)}})?")


def test_every_metric_says_what_it_means():
    """docs/metrics-reference.md is made of these sentences."""
    assert len(DECLARED) > 30
    texts = {name: metric.text for metrics in FOUND.values() for name, metric in metrics.items()}
    ours = {name: text for name, text in texts.items() if name.startswith("waitroom_")}
    assert [name for name, text in ours.items() if not text.endswith(".")] == []


def test_the_page_names_metrics_that_exist():
    """In its tables and sentences."""
    series = {
        part for name in EXPORTED for part in (name, re.sub("_(bucket|sum|count)$", "", name))
    }
    assert set(re.findall(r"`(waitroom_[a-z_]+)`", PAGE)) <= series


def test_no_visitor_is_a_label():
    """Labels are few and of few values."""
    allowed = {"room", "line", "kind", "reason", "what", "door", "state", "verb", "script", "event",
               "result", "version", "implementation", "major", "minor", "patchlevel", "template",
               "limit", "act", "outcome", "target", "status", "webhook"}  # fmt: skip
    assert {label for _, labels in DECLARED.values() for label in labels} <= allowed


def exported() -> dict[str, set[str]]:
    """Every series that Prometheus has of us, and what was recorded; its labels by its name."""
    series = {"up": set(ADDED)}
    for name, (kind, labels) in DECLARED.items():
        if kind == "histogram":
            series[f"{name}_bucket"] = {*labels, *ADDED, "le"}
            series |= {f"{name}_{part}": {*labels, *ADDED} for part in ("sum", "count")}
        else:
            series[name] = {*labels, *ADDED}
    for group in RULES["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                labels = re.findall(r"by \(([\w, ]+)\)", rule["expr"])
                series[rule["record"]] = {name for each in labels for name in each.split(", ")}
    return series


EXPORTED = exported()
EXPRESSIONS = {
    f"rule {rule.get('alert') or rule['record']}": rule["expr"]
    for group in RULES["groups"]
    for rule in group["rules"]
} | {
    f"panel {panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
} | {
    f"variable {variable['name']}": variable["definition"]
    for variable in DASHBOARD["templating"]["list"]
    if variable["type"] == "query"
} | {
    f"question {number}": question
    for number, question in enumerate(QUERIES)
}  # fmt: skip


def misuses(expression: str) -> list[str]:
    """What an expression names that does not exist: metrics, and labels of metrics."""
    found = []
    for name, matchers in USE.findall(expression):
        if name not in EXPORTED:
            found.append(name)
            continue
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        found += [f"{name}: {label}" for label in labels - EXPORTED[name]]
    return found


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_expressions_use_what_there_is(where):
    """Rules, dashboard and the page's questions name no metric and no label that is not there."""
    assert misuses(EXPRESSIONS[where]) == []


def test_the_rules_are_tried_on_series_as_they_are():
    """The series of the rules' tests have the labels that replicas export, and no other."""
    for test in RULE_TESTS["tests"]:
        for given in test["input_series"]:
            ((name, matchers),) = USE.findall(given["series"])
            labels = set(re.findall(r"(\w+)=", matchers))
            if 'state="unknown-room"' in matchers:
                labels.add("room")  # it is empty, which Prometheus takes for absent
            assert labels == EXPORTED[name], given["series"]
