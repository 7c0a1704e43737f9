"""A room's own template, at a replica and in the configuration."""

import json
import re
import shutil

import pytest

from sidecar.gate.page.template import POLICY
from sidecar.kit.errors import InputError
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load
from tests.support.replica import ADMIN_TOKEN, HTML
from tests.support.site import ROOT

FILES = ROOT / "tests" / "support" / "templates"
KEYS = {"WAITROOM_SECRET_KEYS": "k" * 32}


@pytest.fixture
async def shop(replica, monkeypatch, tmp_path):
    """A replica that runs in a folder with templates."""
    shutil.copytree(FILES, tmp_path / "templates")
    monkeypatch.chdir(tmp_path)
    return await replica(total_active_users=0, template="own.html", message="Hello & <more>")


async def page_of(site, said, **headers):
    given = {"X-Waitroom-Room": site.room.name, "X-Waitroom-Document": said, **headers}
    return await site.edge.get("/page", headers=given)


async def test_the_verdict_brings_what_the_page_shows(shop):
    verdict = await shop.check()
    said = verdict.headers["X-Waitroom-Document"]
    assert verdict.headers["Refresh"] == verdict.headers["Retry-After"]
    assert (json.loads(said)["position"], "message" in said) == (1, False)
    page = await page_of(shop, said, **{"X-Original-URI": "/a?b=1"})
    text = await page.text()
    assert '<p id="position">1</p>' in text
    assert "Hello &amp; &lt;more&gt;" in text
    assert 'href="/a?b=1"' in text
    assert page.headers["Content-Security-Policy"] == POLICY
    assert "X-Accel-Expires" not in page.headers


@pytest.mark.parametrize(("method", "unsent"), [("GET", False), ("HEAD", False), ("POST", True)])
async def test_what_was_sent_has_not_arrived(shop, method, unsent):
    said = (await shop.check()).headers["X-Waitroom-Document"]
    page = await page_of(shop, said, **{"X-Original-URI": "/form", "X-Original-Method": method})
    assert ("What you sent has not arrived" in await page.text()) == unsent
    assert ("unsent=1&next=/form" in page.headers["Refresh"]) == unsent


async def test_a_page_that_is_kept_says_nothing_of_anybody(shop):
    said = (await shop.check(headers={"Sec-Fetch-Mode": "no-cors"})).headers["X-Waitroom-Document"]
    assert json.loads(said)["visitor"] is None
    page = await page_of(shop, said, **{"X-Original-URI": "/secret"})
    assert page.headers["X-Accel-Expires"] == "1"
    assert "secret" not in await page.text()


@pytest.mark.parametrize("said", ["", "{", "[]", "{}", '{"visitor": null}', "1"])
async def test_what_is_no_document_is_refused(shop, said):
    assert (await page_of(shop, said)).status == 400


async def test_other_proxies_hand_it_on(shop):
    """Other proxies get the template's page, with the way to a place for newcomers."""
    headers = {**HTML, "X-Forwarded-Uri": "/a?b='1"}
    page = await shop.edge.get(f"/gate/{shop.room.name}", headers=headers)
    assert '<p id="position">1</p>' in await page.text()
    assert page.headers["Refresh"].isdigit()
    ahead = {**headers, "Sec-Purpose": "prefetch"}
    page = await shop.edge.get(f"/gate/{shop.room.name}", headers=ahead)
    assert page.headers["Refresh"].endswith(f"url=/_waitroom/{shop.room.name}/?next=/a?b=%271")
    assert "X-Waitroom-Document" not in page.headers


async def test_who_left_gets_our_page(shop):
    """A visitor who left gets our page: the template says that they wait."""
    path = f"/_waitroom/{shop.room.name}/leave"
    page = await shop.edge.post(path, headers=HTML, data={"next": "/"})
    assert 'data-state="not_queued"' in await page.text()


async def change(site, value):
    return await site.ops.patch(
        f"/admin/rooms/{site.room.name}",
        json={"template": value},
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
    )


async def test_it_is_changed_at_run_time(shop):
    assert (await change(shop, "cloudflare.html")).status == 200
    assert "Refresh" in (await shop.check()).headers
    said = (await shop.check()).headers["X-Waitroom-Document"]
    assert "Alpenrock is busy" in await (await page_of(shop, said)).text()


async def test_a_template_with_our_script_needs_no_refresh(shop, tmp_path):
    """The script polls, and a reload would only disturb the visitor."""
    text = '<script src="/_waitroom/static/waiting.js"></script>'
    (tmp_path / "templates" / "scripted.html").write_text(text)
    assert (await change(shop, "scripted.html")).status == 200
    verdict = await shop.check()
    page = await page_of(shop, verdict.headers["X-Waitroom-Document"])
    assert (verdict.headers["Refresh"], "Refresh" in page.headers) == ("", False)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("away.html", "away.html cannot be read: No such file"),
        ("faulty.html", "faulty.html: line 2: Did not find a matching tag for {{#a}}"),
        ("../waitroom.html", "write the name of a file in template_dir"),
        ("waitroom.toml", "write the name of a file in template_dir"),
    ],
)
async def test_a_change_to_what_cannot_be_used_is_refused(shop, tmp_path, value, reason):
    (tmp_path / "templates" / "faulty.html").write_text("\n{{#a}}")
    refused = await change(shop, value)
    assert refused.status == 422
    assert reason in await refused.text()


async def test_a_replica_without_the_file_shows_our_page(replica):
    site = await replica(total_active_users=0, template="own.html")
    verdict = await site.check()
    assert "X-Waitroom-Document" not in verdict.headers
    assert (await page_of(site, "{}")).status == 404


def test_the_file_stands_beside_the_settings(tmp_path):
    """Templates are in a folder beside the settings, and a faulty one is named at the start."""
    file = tmp_path / "waitroom.toml"
    file.write_text('[rooms.shop]\ntotal_active_users = 1\ntemplate = "shop.html"\n')
    (tmp_path / "templates").mkdir()
    template = tmp_path / "templates" / "shop.html"
    for text, problem in (
        (None, f"rooms.shop.template: {template} cannot be read: No such file or directory"),
        ("\n\n{{/a}}", f"rooms.shop.template: {template}: line 3: Section end tag mismatch"),
    ):
        if text is not None:
            template.write_text(text)
        with pytest.raises(InputError, match=re.escape(problem)):
            load(str(file), KEYS)
    template.write_text("{{waitTime}}")
    assert load(str(file), KEYS).template_dir == tmp_path / "templates"


async def test_the_documentation_has_one(shop, tmp_path):
    """The documentation's template works, and shows nothing that does not exist."""
    (text,) = re.findall(
        r"```html\n(.*?)```", (ROOT / "docs" / "branding.md").read_text(), re.DOTALL
    )
    (tmp_path / "templates" / "shop.html").write_text(text)
    assert (await change(shop, "shop.html")).status == 200
    said = (await shop.check()).headers["X-Waitroom-Document"]
    page = await (await page_of(shop, said)).text()
    assert re.search(r"<p>0 people are ahead of you.\s+We cannot say yet how long it takes.", page)
    assert re.search(r"Reference: [0-9A-Z]{4}-[0-9A-Z]{4}</p>", page)


def test_the_policy_is_the_same_everywhere_and_scripts_do_not_read_the_template():
    for file in ("nginx/waitroom/own-page.conf", "docs/branding.md"):
        assert POLICY in (ROOT / file).read_text()
    assert (
        "template"
        not in RoomSettings(total_active_users=1, template="a.html").get_script_settings()
    )
