"""The Grafana dashboard: what an import expects of it, and that Prometheus takes its questions.

That its metrics exist is tests/http/test_metrics_documented.py's.
"""

import itertools
import json
import re

import pytest
import yaml

from tests.support.metrics import QUERIES
from tests.support.monitoring import MONITORING, run

TEXT = (MONITORING / "grafana" / "waitroom.json").read_text()
DASHBOARD = json.loads(TEXT)
PANELS = DASHBOARD["panels"]
SHOWN = [panel for panel in PANELS if panel["type"] != "row"]
WIDTH = 24
#: A metric in a query, with its matchers.
METRIC = r"(?<![\w:])(?:(?:room:)?waitroom_[\w:]+|process_\w+|up)\b(\{[^}]*\})?"


def test_it_can_be_imported():
    """It has a title, an address of its own and a schema, and no id, which an import gives. The
    import asks for each input, and the data source that is chosen there is the variable's."""
    assert (DASHBOARD["title"], DASHBOARD["uid"], DASHBOARD["id"]) == ("Waitroom", "waitroom", None)
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert [(each["name"], each["type"], each["pluginId"]) for each in DASHBOARD["__inputs"]] == [
        ("DS_PROMETHEUS", "datasource", "prometheus")
    ]
    imported = json.loads(TEXT.replace("${DS_PROMETHEUS}", "uid-of-mine"))
    assert imported["templating"]["list"][0]["current"]["value"] == "uid-of-mine"
    required = {each["id"] for each in DASHBOARD["__requires"]}
    assert required == {"grafana", "prometheus", *(panel["type"] for panel in SHOWN)}


def test_panels_are_told_apart():
    """Ids are unique, and titles of what is shown."""
    for values in ([p["id"] for p in PANELS], [p["title"] for p in SHOWN]):
        assert len(set(values)) == len(values) > 10


def test_panels_lie_side_by_side():
    """In the grid of 24 columns, none over another, and the rows' order is the list's."""
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] >= 0 < at["w"]
        assert at["x"] + at["w"] <= WIDTH
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]),
                                      range(at["y"], at["y"] + at["h"])))  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells
    order = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in PANELS]
    assert order == sorted(order)


def test_variables_are_declared_and_used():
    """Data source, site and room; nothing else is referred to but Grafana's own."""
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = {a or b for a, b in re.findall(r"\$(?:\{(\w+)\}|(\w+))", TEXT)}
    assert names == {"datasource", "job", "room"} == used - {"__rate_interval", "DS_PROMETHEUS"}


@pytest.mark.parametrize("panel", SHOWN, ids=lambda panel: panel["title"])
def test_a_panel_is_explained_and_has_its_unit(panel):
    """It asks the chosen Prometheus about the chosen site, says what it shows and in what."""
    assert panel["description"].endswith((".", ")"))
    assert panel["fieldConfig"]["defaults"]["unit"]
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters) > 0
    for asked in (panel, *panel["targets"]):
        assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        chosen = re.findall(METRIC, target["expr"])
        assert chosen
        assert all('job="$job"' in each for each in chosen)


@pytest.mark.full
def test_prometheus_takes_every_question(tmp_path):
    """Of the dashboard and of docs/metrics.md: promtool parses them, as rules."""
    asked = [target["expr"] for panel in SHOWN for target in panel["targets"]]
    asked += [each["expr"] for each in DASHBOARD["annotations"]["list"] if "expr" in each]
    asked = [expr.replace("$__rate_interval", "1m").replace("$", "") for expr in asked] + QUERIES
    rules = [{"record": f"question:{n}", "expr": expr} for n, expr in enumerate(asked)]
    file = tmp_path / "questions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "questions", "rules": rules}]}))
    assert f"{len(asked)} rules found" in run("promtool", "check", "rules", file)
