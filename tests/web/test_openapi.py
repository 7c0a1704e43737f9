"""The API's description: valid, whole, and true of a running replica."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

from sidecar.base.metrics import Metrics
from sidecar.base.rooms import RoomSettings
from sidecar.base.settings import Settings
from sidecar.core.rooms import Rooms
from sidecar.web.openapi import document
from sidecar.web.page import find_static
from sidecar.web.routes import edge_app, ops_app
from tests.processes import wait_until
from tests.site import ADMIN_TOKEN, Site, answers, make_folder

#: For people with browsers, so not of the API.
PAGES = re.compile(r"/dashboard.*|/_waitroom/static|/_waitroom/\{room\}/")


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    found = set()
    for resource in app.router.resources():
        path = resource.canonical.removesuffix("{asked}")
        if PAGES.fullmatch(path):
            continue
        for route in resource:
            found.add(("get" if route.method == "*" else route.method.lower(), path))
    return {(method, path) for method, path in found if method != "head"}


def operations_of(described: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): item[method]
        for path, item in described["paths"].items()
        for method in ("get", "post", "put", "patch", "delete")
        if method in item
    }


@pytest.fixture(scope="module")
def described():
    return document()


def test_it_is_valid(described):
    """As OpenAPI 3.1, examples of parameters and bodies included."""
    assert list(OpenAPIV31SpecValidator(described).iter_errors()) == []


def test_every_door_is_described_and_no_other(described):
    """Of both listeners; what is for people with browsers left out."""
    settings = Settings(
        secret_keys=["k" * 32], rooms={"shop": RoomSettings(total_active_users=1)}
    )
    edge = edge_app(Rooms([]), Metrics(), find_static())
    ops = ops_app(settings, Rooms([]), Metrics(), [])
    doors = routes_of(edge) | routes_of(ops)
    assert set(operations_of(described)) == doors
    # I expect doors of both, and so the walk to have found them.
    assert {("get", "/check"), ("patch", "/admin/rooms/{room}")} <= doors


# Of a replica that runs ---------------------------------------------------------------------------


class Replica(Site):
    """redis-server and one `waitroom serve` that keeps a history in SQLite."""

    def _start(self) -> None:
        self.folder = make_folder(self._stack)
        self._settings["history"] = f"sqlite:///{self.folder}/history.db"
        self._start_redis()
        self._start_replica(0)
        wait_until(lambda: answers(f"{self.ops[0]}/readyz"), "the replica")

    @property
    def edge(self) -> str:
        return self.edges[0]

    def join(self, room: str) -> str:
        """A newcomer's cookie."""
        request = urllib.request.Request(f"{self.edge}/_waitroom/{room}/join", method="POST")
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.headers["Set-Cookie"]).partition(";")[0]

    def people(self, room: str) -> list[str]:
        """Who is in line, from the head on, and who is inside."""
        lists = [self.admin("GET", f"/rooms/{room}/{kind}")[kind] for kind in ("waiting", "sessions")]
        return [person["visitor"] for found in lists for person in found]


@pytest.fixture(scope="module")
def replica():
    """Two rooms with people inside and in line: one to look at, one to be changed."""
    rooms = {room: {"total_active_users": 2, "poll_limit": 5} for room in ("shop", "spare", "hall")}
    with Replica(rooms=rooms) as started:
        for room in rooms:
            for _ in range(5):
                started.join(room)
        yield started


def test_it_is_served(replica, described):
    """To everybody who reaches the listener."""
    with urllib.request.urlopen(f"{replica.ops[0]}/openapi.json", timeout=5) as answer:
        assert answer.headers.get_content_type() == "application/json"
        assert answer.headers["Cache-Control"] == "max-age=300"
        assert json.load(answer) == described


#: Rooms that an operation is tried on; all others are tried on the room to look at.
CHANGING = {"patch", "post"}


def aimed(described: dict[str, Any], people: dict[str, list[str]]) -> dict[str, Any]:
    """The document with rooms and visitors that there are: a random name would only ever find
    that it is unknown."""
    aimed = json.loads(json.dumps(described))
    for (method, path), operation in operations_of(aimed).items():
        shared = aimed["paths"][path].get("parameters", [])
        names = {each["$ref"].rpartition("/")[2] for each in shared}
        visitor_side = path.startswith("/_waitroom/")
        room = "hall" if visitor_side else "spare" if method in CHANGING else "shop"
        own = operation.setdefault("parameters", [])
        if "Room" in names:
            own.append(in_path("room", {"enum": [room]}))
        if "Visitor" in names:
            own.append(in_path("visitor", {"anyOf": [{"enum": people[room]}, VISITOR]}))
    return aimed


VISITOR = {"$ref": "#/components/schemas/VisitorId"}


def in_path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}
