"""Every pinned version installs on every Python that Waitroom supports, as a wheel: the Python that
Debian 12, Ubuntu 24.04 and Debian 13 bring, and the newest one."""

import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from tests.install.compose import ROOT

PYTHONS = ("3.11.2", "3.12.3", "3.13.5", "3.14.0")


def pins(python: str) -> list[Requirement]:
    where = {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_python_implementation": "CPython",
    }
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if "==" in line and not line.startswith("#")]
    return [pin for pin in found if pin.marker is None or pin.marker.evaluate(where)]


@pytest.mark.full
@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
def test_each_has_a_wheel_for_it(python, tmp_path):
    """By what pip finds."""
    exact = [f"{pin.name}{pin.specifier}" for pin in pins(python)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    done = subprocess.run(
        [*pip, "--only-binary=:all:", "--python-version", python, "--target", tmp_path, *exact],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
