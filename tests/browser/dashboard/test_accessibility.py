"""axe-core's rules in all views of the dashboard, in several colour schemes and widths."""

import pytest
from playwright.sync_api import expect

from tests.support.browser import find_violations
from tests.support.dashboard import WithHistory, log_in, view

VIEWS = ("", "rooms/sale", "look/sale", "leases", "leases/seat", "leases/seat/17", "limits",
         "limits/login", "limits/login/10.0.0.1", "targets", "targets/images", "webhooks",
         "webhooks/team", "jobs", "jobs/images", "log")  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    limit = {"algorithm": "fixed_window", "limit": 5, "window": "1m", "key": "{address}"}
    settings = {
        "jobs": f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db",
        "targets.images.url": "http://127.0.0.1:1/",
        "targets.images.private": True,
        "targets.images.paused": True,
        "webhooks.team.url": "http://127.0.0.1:1/",
    }
    with WithHistory(
        rooms={"sale": {"total_active_users": 1, "classes.vip.head_start": "1m"}},
        leases={"seat": {"term": "10m", "max_waiting": 5}},
        limits={"login": limit},
        settings=settings,
    ) as site:
        for _ in range(3):
            site.arrive("sale")
        for holder in ("order-1", "order-2"):
            site.api("POST", "/leases/seat/17", {"holder": holder})
        site.api("POST", "/limits/login/acquire", {"key": "10.0.0.1"})
        site.api("POST", "/jobs", {"target": "images"})
        site.admin("PATCH", "/rooms/sale", {"message": "Soon."})
        yield site


SCHEMES = (("light", "none", 1280), ("dark", "none", 390), ("light", "active", 390))


def test_no_rule_is_broken_in_any_view(site, visitor):
    """No view breaks a rule of axe-core or scrolls sideways, in any colour scheme and width."""
    page, found = visitor(), {}

    def check(name):
        for colours, forced, width in SCHEMES:
            page.emulate_media(color_scheme=colours, forced_colors=forced)
            page.set_viewport_size({"width": width, "height": 900})
            lines = find_violations(page)
            if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                lines.append(f"{wide} px wide")
            if lines:
                found[name, colours, forced, width] = lines

    page.goto(site.dashboard)
    check("log-in")
    log_in(site, page, "Night shift")
    expect(page.locator("#overview")).to_contain_text("sale")
    for address in VIEWS:
        view(page, address)
        expect(page.locator("main h1:visible, main h2:visible").first).to_be_visible()
        page.wait_for_timeout(300)  # The replica sends its lists.
        check(address or "overview")
    page.keyboard.press("/")
    page.keyboard.type("sal")
    expect(page.locator("#found a")).to_have_count(1)
    check("search")
    page.goto(f"{site.dashboard}/wall?room=sale")
    expect(page.locator("h1")).to_be_visible()
    check("wall")
    assert found == {}
