"""Runs promtool and amtool, the checkers of Prometheus and Alertmanager, on deploy/monitoring."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
RULES = MONITORING / "prometheus" / "waitroom.rules.yml"
RULE_TESTS = MONITORING / "prometheus" / "waitroom.rules.test.yml"


def run(program: str, *arguments: object, stdin: bytes = b"") -> str:
    """Run a checker such as promtool, and return its output. Fail if it finds an error."""
    if shutil.which(program) is None:
        pytest.fail(f"{program} is not installed; run make test")
    done = subprocess.run(
        [program, *map(str, arguments)], input=stdin,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60,
    )  # fmt: skip
    text = done.stdout.decode()
    assert done.returncode == 0, text
    return text
