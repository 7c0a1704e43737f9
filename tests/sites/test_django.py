"""A shop in Django behind Gunicorn, configured as in docs/recipes/django.md."""

import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.sites.php import RecipeSite
from tests.support.nginx_client import Visitor
from tests.support.processes import listens, wait_until
from tests.support.site import ROOT
from tests.support.story import ahead


class Shop(RecipeSite):
    """A shop with Gunicorn on a socket."""

    recipe = "django.md"

    def _start_gate(self):
        self.socket = self.folder / "gunicorn.sock"
        app = "tests.sites.django_shop"
        python = ["env", f"SHOP={self.folder}", f"PYTHONPATH={ROOT}", sys.executable]
        install = f"import {app}; {app}.install()"
        subprocess.run([*python, "-c", install], check=True, timeout=120)
        self.app = self.run(
            "gunicorn",
            [*python, "-m", "gunicorn", "--bind", f"unix:{self.socket}", "--workers", "2",
             "--umask", "0", f"{app}:application"],
        )  # fmt: skip
        wait_until(lambda: listens(self.socket), f"gunicorn: {self.app.output}")
        return super()._start_gate()

    def changes(self) -> dict[str, str]:
        return {
            "/var/www/html": str(self.folder),
            "http://unix:/run/gunicorn.sock": f"http://unix:{self.socket}",
        }


@pytest.fixture(scope="module")
def site():
    room = {"total_active_users": 2, "heartbeat_interval": 1, "claim_window": 60}
    with Shop(rooms={"shop": room}) as site:
        (site.folder / "static").mkdir()
        (site.folder / "static" / "shop.css").write_text("body { color: black }")
        yield site


def test_two_in_the_third_waits_enters_and_orders(site, visitor, tmp_path):
    """The visitor signs in, loses the session before sending the form, and gets the form back with
    its text. The order that is sent then frees the slot."""
    inside = [Visitor(site.url) for _ in range(2)]
    for each in inside:
        each.hold("/")
    third = visitor()
    third.goto(f"{site.url}/")
    expect(ahead(third)).to_have_text("0")
    assert Visitor(site.url).get("/static/shop.css").status == 200
    inside[0].post("/_waitroom/shop/leave")
    expect(third.locator("h1")).to_have_text("Shop")

    third.goto(f"{site.url}/order/")
    third.fill("[name=username]", "visitor")
    third.fill("[name=password]", "a-password")
    third.get_by_role("button", name="Log in").click()
    expect(third.locator("h1")).to_have_text("Your order")
    third.fill("[name=text]", "Two tickets")
    site.release_all()
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
    """The reply is the waiting page, and not a 403 of Django's CSRF check."""
    for visitor in [Visitor(site.url) for _ in range(3)]:
        for _ in range(2):
            visitor.get("/")
    reply = Visitor(site.url).post("/order/send/", b"text=x")
    assert (reply.status, reply.waits) == (503, True)
    assert reply.data("next") == "/"
