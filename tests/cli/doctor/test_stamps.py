"""The doctor says whether nginx knows visitors inside by itself, and that the key is the same."""

import pytest

from sidecar.cli.doctor import cookie
from sidecar.cli.doctor.findings import Level
from sidecar.gate.stamps import key_file
from tests.cli.doctor.ward import bad, examine, only, reply, said, visit
from tests.support.site import Site, gated

INSIDE = [reply(200, {"state": "admitted", "refresh_after_seconds": 5})]


class OtherKey(Site):
    def _write_nginx(self):
        super()._write_nginx()
        (self.folder / "waitroom-stamp.conf").write_text(key_file(["the key of another site"]))


@pytest.mark.parametrize(
    ("kind", "on", "level", "words"),
    [
        (Site, True, Level.OK, "nginx knows visitors inside by itself (stamps)"),
        (Site, False, Level.OK, "stamps are off (`waitroom nginx-key"),
        (OtherKey, False, Level.PROBLEM, "nginx has a key that a replica does not know"),
    ],
)
async def test_a_site_with_and_without_stamps(kind, on, level, words):
    rooms = {"shop": {"total_active_users": 1000}}
    with kind(rooms=rooms, stamps=on, locations=gated("/"), replicas=2) as site:
        findings = await examine(site.url)
        assert words in said(findings)
        assert bool(bad(findings)) is (level is not Level.OK), findings


def test_a_stamp_that_nginx_does_not_take():
    """It brings another one."""
    back = reply(200, Set_Cookie="waitroom_now=x.1.y; Path=/")
    found = only(cookie.stamps(visit(beats=INSIDE, back=back, stamped=back)))
    assert found.level is Level.WARNING
    assert "$waitroom_stamp_binding" in found.fix


def test_who_waits_cannot_tell():
    waits = [reply(200, {"state": "waiting", "refresh_after_seconds": 5})]
    assert not list(cookie.stamps(visit(beats=waits, back=reply(503))))
    assert not list(cookie.stamps(visit(back=reply(200))))
