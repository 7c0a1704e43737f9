"""A folder to stand in, and Hypothesis without haste."""

from __future__ import annotations

import pytest
from hypothesis import settings

# It looks at answers here, not at the time they take on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder without a waitroom.toml to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder):
    def write(text: str) -> str:
        (folder / "given.toml").write_text(text)
        return str(folder / "given.toml")

    return write
