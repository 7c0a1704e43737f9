"""The wheels: what is installed is all that a replica needs, and all that the client needs."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from sidecar import __version__
from sidecar.cli import main
from tests.install.compose import ROOT, copy_image_files

#: What a checkout has and an installation must not.
STRAY = re.compile(r"(^|/)(__pycache__|tests|demo|docs|\.\w)|\.(pyc|orig|rej|toml|pem|key)$")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Build the wheels of server and client from the files that the image's build copies."""
    folder = tmp_path_factory.mktemp("wheel")
    copy_image_files(folder / "source")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet",
         "--disable-pip-version-check", "--wheel-dir", str(folder),
         str(folder / "source"), str(folder / "source" / "client")],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    """Unpack the wheels into a folder outside of the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def files(folder: Path, *suffixes: str) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
        and (not suffixes or file.suffix in suffixes)
    }  # fmt: skip


def test_every_module_and_script_is_in_it(installed):
    """Each Python and Lua file of sidecar/, each of the dashboard's, and all of client/waitroom/
    is in the wheels, byte for byte."""
    source = ROOT / "sidecar"
    names = files(source, ".py", ".lua", ".html", ".css", ".js", ".svg", ".ini")
    assert {
        "rooms/lua/enter.lua",
        "dashboard/page/index.html",
        "dashboard/page/dashboard.js",
    } <= names
    for name in names:
        assert (installed / "sidecar" / name).read_bytes() == (source / name).read_bytes(), name
    client = ROOT / "client" / "waitroom"
    assert files(installed / "waitroom") == files(client) > {"py.typed", "client.py"}


@pytest.mark.parametrize(
    ("source", "place"),
    [("static", "static"), ("nginx/waitroom", "nginx"), ("deploy/systemd", "systemd")],
)
def test_the_page_and_the_includes_are_in_it(installed, source, place):
    """static/ and nginx/waitroom/ are in the wheel as they are, and nothing beside them."""
    share = installed / "sidecar" / "share" / place
    names = files(ROOT / source)
    assert names
    assert files(share) == names
    for name in names:
        assert (share / name).read_bytes() == (ROOT / source / name).read_bytes(), name


def test_each_command_has_a_man_page(installed):
    """Where `man` finds it once pip has installed it. groff reads it without a warning."""
    folder = installed / f"waitroom-{__version__}.data" / "data" / "share" / "man" / "man1"
    context = click.Context(main)
    assert {page.name for page in folder.iterdir()} >= {
        "waitroom.1",
        "waitroom-rooms-set.1",
        *(f"waitroom-{name}.1" for name in main.list_commands(context)),
    }
    for page in folder.iterdir():
        done = subprocess.run(
            ["man", "--warnings", "--encoding=UTF-8", "--local-file", page],
            env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"},
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(rf"{page.stem}\s+-\s+\w", done.stdout)
    assert files(installed / f"waitroom-{__version__}.data") == {
        str(page.relative_to(folder.parents[3])) for page in folder.iterdir()
    }


def test_nothing_stray_is_in_it(installed):
    """No tests, caches, settings or keys, and the two packages only, each in one wheel."""
    names = files(installed)
    assert [name for name in names if STRAY.search(name)] == []
    assert {name.split("/")[0] for name in names} == {
        "sidecar",
        "waitroom",
        f"waitroom-{__version__}.data",
        f"waitroom-{__version__}.dist-info",
        f"waitroom_client-{__version__}.dist-info",
    }
