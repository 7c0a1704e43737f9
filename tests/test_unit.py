"""`make unit` runs what starts no process: how that is found, and what holds it."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_a_unit_test_that_starts_a_process_fails():
    """However well it hides it."""
    hidden = importlib.import_module("sub" + "process")
    with pytest.raises(AssertionError, match="is no unit test: it starts"):
        hidden.run(["true"], check=False)


def test_the_makefile_has_each_target_once():
    """Of two of one name make takes the last one: `make check` would run something else."""
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (.*)$", makefile.replace("\\\n", ""), re.MULTILINE)[0].split()
    assert sorted(targets) == sorted(phony)
    listed = re.findall(r"make ([a-z -]+?)(?:  |;| serves)", makefile)
    assert set(phony) - {"help"} <= set(" ".join(listed).split())
