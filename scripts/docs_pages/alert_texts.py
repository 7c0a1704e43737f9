"""sidecar/dashboard/page/alerts.json: thresholds and texts of the rules, for the dashboard."""

import json
import re
from typing import Any

from scripts.docs_pages.alerts import read_rules, split

_UNITS = {"s": 1, "m": 60, "h": 3600}
_THRESHOLD = "waitroom:threshold_"


def page() -> str:
    rules = read_rules()
    thresholds = {
        rule["record"].removeprefix(_THRESHOLD): float(rule["expr"])
        for rule in rules
        if rule.get("record", "").startswith(_THRESHOLD)
    }
    alerts = {rule["alert"]: _alert(rule) for rule in rules if "alert" in rule}
    return json.dumps({"thresholds": thresholds, "alerts": alerts}, indent=1) + "\n"


def _alert(rule: dict[str, Any]) -> dict[str, Any]:
    lasts = rule.get("for", "0s")
    meaning, remedy = split(rule)
    return {
        "severity": rule["labels"]["severity"],
        "for_s": int(lasts[:-1]) * _UNITS[lasts[-1]],
        "summary": _braced(rule["annotations"]["summary"]),
        "meaning": _braced(meaning),
        "remedy": _braced(remedy),
    }


def _braced(text: str) -> str:
    """{room}, {value}, and {duration} for a value in seconds."""
    text = re.sub(r"{{ *\$labels\.(\w+) *}}", r"{\1}", text)
    text = re.sub(r"{{ *\$value *\| *humanizeDuration *}}", "{duration}", text)
    return " ".join(re.sub(r"{{ *\$value[^}]*}}", "{value}", text).split())
