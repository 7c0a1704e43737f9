"""A real Alertmanager holds a room, with the configuration of docs/adaptive.md."""

import json
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from tests.support.processes import Process, free_port, wait_until
from tests.support.site import ADMIN_TOKEN, ROOT, Site, gated


def read_configuration(site, folder):
    """Return the page's configuration, with this room's address and token, and without waits."""
    page = (ROOT / "docs" / "adaptive.md").read_text()
    config = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    config["route"] |= {"receiver": "hold-shop", "group_wait": "0s", "group_interval": "1s"}
    [webhook] = config["receivers"][0]["webhook_configs"]
    _, _, path = webhook["url"].partition("/admin")
    webhook["url"] = f"{site.ops[0]}/admin{path}"
    token = folder / "token"
    token.write_text(ADMIN_TOKEN)
    webhook["http_config"]["authorization"]["credentials_file"] = str(token)
    return config


def is_ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def send_alert(port, *, is_resolved):
    now = datetime.now(UTC)
    ends = now - timedelta(seconds=1) if is_resolved else now + timedelta(minutes=5)
    alert = {
        "labels": {"alertname": "DatabaseSlow"},
        "annotations": {"summary": "The database is slow"},
        "startsAt": (now - timedelta(minutes=1)).isoformat(),
        "endsAt": ends.isoformat(),
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v2/alerts",
        json.dumps([alert]).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert reply.status == 200


@pytest.mark.full
def test_an_alert_holds_the_room_until_it_is_resolved(tmp_path):
    """Its summary is the reason."""
    with Site(rooms={"shop": {"total_active_users": 5}}, locations=gated("/")) as site:
        file, port = tmp_path / "alertmanager.yml", free_port()
        file.write_text(yaml.safe_dump(read_configuration(site, tmp_path)))
        command = ["prometheus-alertmanager", f"--config.file={file}",
                   f"--storage.path={tmp_path / 'data'}", "--cluster.listen-address=",
                   f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
        with Process(command, log=tmp_path / "alertmanager.log"):
            wait_until(lambda: is_ready(port), "Alertmanager")
            send_alert(port, is_resolved=False)
            wait_until(lambda: site.room()["state"] == "paused", "the hold", timeout_s=30)
            assert site.room()["settings"]["hold"]["why"] == "alert: The database is slow"
            send_alert(port, is_resolved=True)
            wait_until(lambda: site.room()["state"] == "running", "the end", timeout_s=60)
