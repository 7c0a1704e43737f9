"""Where nginx keeps verdicts: how large it gets, and what a disk costs that has no more space."""

import os
import re
import subprocess

import pytest

from tests.support.nginx_client import Visitor
from tests.support.site import ROOT, Site, gated

SETTINGS = ("nginx/waitroom", "deploy/docker", "deploy/kubernetes/nginx")
#: An entry of keys_zone, and a verdict's file.
KEY_BYTES, FILE_BYTES = 128, 4096
MIB = 1 << 20


@pytest.mark.parametrize("folder", SETTINGS)
def test_the_folder_is_no_larger_than_it_says(folder):
    """nginx forgets the oldest at once where keys_zone is full; max_size only in a while."""
    text = (ROOT / folder / "settings.conf").read_text()
    zone, most = map(int, re.search(r"keys_zone=waitroom:(\d+)m .*max_size=(\d+)m", text).groups())
    assert zone * MIB // KEY_BYTES * FILE_BYTES <= most * MIB


class Small(Site):
    """Verdicts are on a disk of one mebibyte, which holds as many as keys_zone."""

    def _write_nginx(self) -> None:
        super()._write_nginx()
        folder = self.folder / "verdicts"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
        self._stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        settings = self.folder / "waitroom" / "settings.conf"
        settings.write_text(settings.read_text().replace("waitroom:2m", "waitroom:32k"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_more_insiders_than_the_folder_holds(stamps):
    """Some are asked about more often; nobody is cut off."""
    rooms = {"shop": {"total_active_users": 400}}
    with Small(rooms=rooms, locations=gated("/"), stamps=stamps) as site:
        inside = [Visitor(site.url) for _ in range(400)]
        for _ in range(3):
            assert {visitor.get("/page").status for visitor in inside} == {200}
        polls = [visitor.get("/_waitroom/shop/status").json()["state"] for visitor in inside]
        assert set(polls) == {"admitted"}
