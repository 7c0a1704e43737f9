"""Where a target's calls go, and with what secrets, is an admin's to say."""

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request

import pytest

from sidecar.http.auth.passwords import HASHER
from tests.support.works import JobSystem

PASSWORD = "correct horse battery"
KEY = "the-key-of-the-target"
TARGETS = {"images": {"headers": {"X-Key": KEY}}}
ELSEWHERE = "http://127.0.0.1:1/"
ACCOUNTS = "".join(
    f'[operators.{name}]\nrole = "{role}"\npassword = "{HASHER.hash(PASSWORD)}"\n'
    for name, role in (("otto", "operator"), ("ada", "admin"))
)


class Session:
    """An operator's, as the dashboard uses it."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(jar)
        form = urllib.parse.urlencode({"name": name, "token": PASSWORD}).encode()
        self._opener.open(f"{url}/dashboard/login", form, timeout=10).close()
        self._csrf = ""
        self._csrf = self.call("GET", "/dashboard/session")[1]["csrf"]

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict]:
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"X-Waitroom-CSRF": self._csrf},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=10) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def change(self, target: str, **changes: object) -> tuple[int, dict]:
        return self.call("PATCH", f"/v1/targets/{target}", changes)


@pytest.fixture(scope="module")
def works():
    with JobSystem(TARGETS, runners=1, more=ACCOUNTS) as works:
        yield works


@pytest.fixture(scope="module")
def otto(works):
    return Session(works.urls[0], "otto")


@pytest.fixture(scope="module")
def ada(works):
    return Session(works.urls[0], "ada")


@pytest.mark.parametrize(
    ("target", "changes", "what"),
    [
        ("images", {"url": ELSEWHERE, "headers": {}}, "A change of url and headers"),
        ("images", {"private": False}, "A change of private"),
        ("images", {"headers": {"X-Key": "another"}}, "A change of headers"),
        ("images", {"callback_urls": [ELSEWHERE], "callback_secret": "s" * 16}, "callback_secret"),
        (
            "images",
            {"callback_secret": "s" * 16, "previous_callback_secret": "o" * 16},
            "previous_callback_secret",
        ),
        ("new", {"url": ELSEWHERE}, "A new target"),
    ],
)
def test_an_operator_is_refused(otto, works, target, changes, what):
    status, said = otto.change(target, **changes)
    assert (status, said["code"]) == (403, "role_too_low")
    assert what in said["detail"]
    assert works.caller("operator").target("images")["source"] == "file"


def test_an_operator_changes_the_rest(otto, works):
    """Also where what only an admin changes is sent as it was shown."""
    shown = works.caller("operator").target("images")["settings"]
    same = {name: shown[name] for name in ("url", "private", "headers", "callback_urls")}
    status, said = otto.change("images", concurrency=3, **same)
    assert (status, said["settings"]["concurrency"]) == (200, 3)
    works.caller("operator").call("DELETE", "/targets/images")


def test_no_secret_follows_a_url_to_another_server(ada, works):
    """Not one that the settings file has, either; the same server may have another path."""
    for headers in ({}, {"headers": {"X-Key": "***"}}):
        status, said = ada.change("images", url=ELSEWHERE, **headers)
        assert (status, "give X-Key again" in json.dumps(said)) == (422, True), said
    assert ada.change("images", url=f"{works.target.url}deeper/")[0] == 200
    assert ada.change("images", url=ELSEWHERE, headers={"X-Key": "one for there"})[0] == 200
    log = works.replicas[0].output
    assert ELSEWHERE in log
    assert KEY not in log
    assert "one for there" not in log
    works.caller("operator").call("DELETE", "/targets/images")
