"""The preview of a room's page in the dashboard."""

import json
import re

import pytest

from sidecar.dashboard import pages
from sidecar.gate.page.languages import Languages
from sidecar.gate.page.preview import STATES
from sidecar.http.app_keys import TEMPLATES
from tests.support.replica import cookie_of, log_in
from tests.support.site import ROOT

ADDRESS = "/dashboard/preview"


@pytest.fixture
def settings():
    return {
        "accent": "#e11d48",
        "custom_css": "h1 { color: red }",
        "footer": [{"text": "Imprint", "address": "/imprint"}],
        "public_url": "https://shop.example",
        "logo": "/shop/logo.svg",
    }


async def preview(site, form=None, **query):
    headers = {"Cookie": cookie_of(await log_in(site))}
    params = {"room": site.room.name, **query}
    if form is None:
        return await site.ops.get(ADDRESS, params=params, headers=headers)
    return await site.ops.post(ADDRESS, params=params, headers=headers, data=form)


async def test_it_is_the_page_with_the_rooms_look(site):
    """With what was changed at run time; other files from the site, its own from here."""
    await site.room.store.configure({"background": "#123456"})
    await site.room.refresh()
    reply = await preview(site, state="full", language="ar")
    text = await reply.text()
    assert reply.status == 200
    for part in (
        "--wr-accent:#e11d48", "--wr-background:#123456", "h1 { color: red }",
        'lang="ar" dir="rtl"',
        'src="https://shop.example/shop/logo.svg"', 'href="https://shop.example/imprint"',
    ):  # fmt: skip
        assert part in text
    files = re.findall(r'<(?:script src|link rel="stylesheet" href)="([^"]+)"', text)
    assert [file.partition("?")[0].rpartition("/")[2] for file in files] == [
        "waiting.css", "preview.js", "waiting.js",
    ]  # fmt: skip
    for file in files:
        assert (await site.ops.get(file)).status == 200  # without a cookie: the frame has none


async def test_settings_are_tried_before_they_are_saved(site):
    """An empty one is as configured; the room itself stays what it is."""
    await site.room.store.configure({"accent": "#000000"})
    await site.room.refresh()
    links = json.dumps([{"text": "Help", "address": "https://help.example"}])
    form = {"accent": "", "background": "#abcdef", "footer": links, "custom_css": "a{}\r\nb{}"}
    text = await (await preview(site, form)).text()
    assert "--wr-accent:#e11d48" in text
    assert "--wr-background:#abcdef" in text
    assert 'href="https://help.example"' in text
    assert "a{}\nb{}" in text
    assert (site.room.settings.accent, site.room.settings.background) == ("#000000", None)


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"accent": "tael", "font": "a;b"}, "font: write families"),
        ({"custom_css": "@import 'x'"}, "custom_css: @import is not allowed"),
        ({"footer": "x"}, "footer: write JSON"),
        ({"total_active_users": "5"}, "total_active_users: no setting of the page"),
    ],
)
async def test_what_is_not_allowed_is_named(site, form, problem):
    """By the same rules as where it is saved."""
    reply = await preview(site, form)
    assert reply.status == 422
    assert any(line.startswith(problem) for line in (await reply.json())["errors"])


async def test_it_is_for_operators(site):
    for method in (site.ops.get, site.ops.post):
        assert (await method(f"{ADDRESS}?room={site.room.name}")).status == 401


@pytest.mark.parametrize(
    "query", [{"room": "nowhere"}, {"state": "sad"}, {"language": "xx"}, {"language": "../en"}]
)
async def test_there_is_no_other(site, query):
    assert (await preview(site, **query)).status == 404


async def test_the_page_can_do_nothing(site):
    """It has no origin, is framed by the dashboard alone, and has only the styles of its room. The
    dashboard frames nothing else."""
    reply = await preview(site)
    policy = reply.headers["Content-Security-Policy"]
    nonce = re.search(r"'nonce-([\w-]+)'", policy)
    assert nonce
    assert f'<style nonce="{nonce[1]}">' in await reply.text()
    rules = [rule.strip() for rule in policy.split(";")]
    assert {"default-src 'none'", "frame-ancestors 'self'", "sandbox allow-scripts"} <= set(rules)
    assert "img-src 'self' data: https://shop.example" in rules
    again = (await preview(site)).headers["Content-Security-Policy"]
    assert nonce[1] not in again
    dashboard = await site.ops.get("/dashboard")
    assert "frame-src 'self';" in dashboard.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in dashboard.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "name", ["../waiting.css", "%2e%2e/waitroom.toml", "nothing.css", "i18n", "..%2f..%2fREADME.md"]
)
async def test_only_the_pages_files_are_there(site, name):
    reply = await site.ops.get(f"{ADDRESS}/static/{name}")
    assert reply.status == 404


async def test_the_view_offers_what_there_is(site):
    """All states, and the languages of the page's folder."""
    view = (pages.FOLDER / "view-look.html").read_text(encoding="utf-8")
    states = re.search(r'<select data-of="state">(.*?)</select>', view)
    assert states
    assert set(re.findall(r'value="([^"]+)"', states[1])) == set(STATES)
    reply = await site.ops.get(f"{ADDRESS}/languages")
    assert await reply.json() == Languages(ROOT / "static").tags


async def test_a_template_is_trusted_no_more(site, tmp_path):
    """It may run what it runs on the site, without an origin."""
    (tmp_path / "own.html").write_text("<h1>{{site_name}}</h1><script>top.x</script>")
    site.ops.app[TEMPLATES]._folder = tmp_path
    await site.room.store.configure({"template": "own.html", "site_name": "<Rock>"})
    await site.room.refresh()
    reply = await preview(site)
    assert (await reply.text()).startswith("<h1>&lt;Rock&gt;</h1>")
    assert reply.headers["Content-Security-Policy"].endswith("; sandbox allow-scripts")
