"""Fixtures that write settings files in a temporary working directory."""

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to an empty folder, so that no waitroom.toml is found. Return the folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder):
    """Return a function that writes a settings file, and returns its path."""

    def write(text: str) -> str:
        (folder / "given.toml").write_text(text)
        return str(folder / "given.toml")

    return write
