"""A shop in Django behind Gunicorn, by docs/recipes/django.md."""

import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.sites.php import recipe
from tests.support.nginx_client import Visitor
from tests.support.processes import listens, wait_until
from tests.support.site import ROOT, Site, build_nginx_config, replace_each
from tests.support.story import ahead


class Shop(Site):
    """Gunicorn on a socket, nginx by the recipe."""

    def _start_gate(self):
        self.socket = self.folder / "gunicorn.sock"
        app = "tests.sites.django_shop"
        python = ["env", f"SHOP={self.folder}", f"PYTHONPATH={ROOT}", sys.executable]
        install = f"import {app}; {app}.install()"
        subprocess.run([*python, "-c", install], check=True, timeout=120)
        self.app = self._run(
            "gunicorn",
            [*python, "-m", "gunicorn", "--bind", f"unix:{self.socket}", "--workers", "2",
             "--umask", "0", f"{app}:application"],
        )  # fmt: skip
        wait_until(lambda: listens(self.socket), f"gunicorn: {self.app.output}")
        return super()._start_gate()

    def _write_nginx(self) -> None:
        super()._write_nginx()
        text = replace_each(
            recipe("django.md"),
            {
                "listen 80;": f"listen 127.0.0.1:{self.port};",
                "/var/www/html": str(self.folder),
                "http://unix:/run/gunicorn.sock": f"http://unix:{self.socket}",
            },
        )
        (self.folder / "nginx.conf").write_text(
            build_nginx_config(self.folder, "include waitroom/http.conf;\n" + text)
        )


@pytest.fixture(scope="module")
def site():
    room = {"total_active_users": 2, "heartbeat_interval": 1, "claim_window": 60}
    with Shop(rooms={"shop": room}) as site:
        (site.folder / "static").mkdir()
        (site.folder / "static" / "shop.css").write_text("body { color: black }")
        yield site


def log_in(page, site):
    page.goto(f"{site.url}/order/")
    page.fill("[name=username]", "visitor")
    page.fill("[name=password]", "a-password")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Your order")


def test_two_in_the_third_waits_enters_and_orders(site, visitor, tmp_path):
    """It signs in, loses its session before it sends the form, comes back to it with what was
    typed, sends it with a file, and the finished order frees the slot."""
    inside = [Visitor(site.url) for _ in range(2)]
    for each in inside:
        each.hold("/")
    third = visitor()
    third.goto(f"{site.url}/")
    expect(ahead(third)).to_have_text("0")
    assert Visitor(site.url).get("/static/shop.css").status == 200
    inside[0].post("/_waitroom/shop/leave")
    expect(third.locator("h1")).to_have_text("Shop")

    log_in(third, site)
    third.fill("[name=text]", "Two tickets")
    for session in site.admin("GET", "/rooms/shop/sessions")["sessions"]:
        site.admin("POST", f"/rooms/shop/visitors/{session['visitor']}/release")
    wait_until(lambda: site.room()["active"] == 0, "the end of all visits")
    others = [Visitor(site.url) for _ in range(2)]
    for other in others:
        other.hold("/")
    third.get_by_role("button", name="Order").click()
    expect(third.locator("#unsent")).to_contain_text("has not arrived")
    expect(ahead(third)).to_have_text("0")
    assert not (site.folder / "ordered").exists()
    others[0].post("/_waitroom/shop/leave")
    expect(third.locator("h1")).to_have_text("Your order")
    assert third.url == f"{site.url}/order/"
    expect(third.locator("[name=text]")).to_have_value("Two tickets")

    picture = tmp_path / "picture.png"
    picture.write_bytes(bytes(range(256)) * 4000)
    third.set_input_files("[name=file]", picture)
    third.get_by_role("button", name="Order").click()
    expect(third.locator("h1")).to_have_text("Thank you")
    expect(third.locator("body")).to_contain_text("Order 1: Two tickets")
    assert (site.folder / "uploaded").read_bytes() == picture.read_bytes()
    wait_until(lambda: site.room()["active"] == 1, "the slot of the finished order")
    assert third.problems == []


def test_what_is_sent_from_outside_reaches_no_application(site):
    """The page, and no 403 of Django's CSRF check."""
    for visitor in [Visitor(site.url) for _ in range(3)]:
        for _ in range(2):
            visitor.get("/")
    reply = Visitor(site.url).post("/order/send/", b"text=x")
    assert (reply.status, reply.waits) == (503, True)
    assert reply.data("next") == "/"
