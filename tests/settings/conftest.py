"""A folder to stand in."""

import pytest


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
