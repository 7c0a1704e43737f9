"""A handler that only answers, where a replica would be: what aiohttp costs by itself."""

import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Self

from loadtest.bench.runs import Load, Reply, Room
from loadtest.bench.systems import ORIGIN, WAITING, poll
from loadtest.bench.waitroom import REPLICAS
from tests.support.processes import Process, wait_until
from tests.support.site import ROOT, Site, make_folder


class Bare(AbstractContextManager["Bare"]):
    """nginx with the includes, and as many handlers as Waitroom has replicas."""

    name = "bare"

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._handlers: list[Process] = []

    def __enter__(self) -> Self:
        folder = make_folder(self._stack)
        sockets = [folder / f"handler-{number}.sock" for number in range(REPLICAS)]
        for socket in sockets:
            command = [sys.executable, "-m", "loadtest.bench.handler", str(socket)]
            process = Process(command, log=socket.with_suffix(".log"), cwd=ROOT)
            self._handlers.append(self._stack.enter_context(process))
            wait_until(socket.exists, "a handler", of=process)
        edges = tuple(f"unix:{socket}" for socket in sockets)
        self.site = Site(replicas=0, edges=edges, origin=ORIGIN)
        self._stack.enter_context(self.site)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return self.site.url

    @property
    def port(self) -> int:
        return self.site.port

    @property
    def folder(self) -> Path:
        return self.site.folder

    @property
    def pids(self) -> dict[str, list[int]]:
        return {
            "nginx": [self.site.nginx.pid],
            "replicas": [each.pid for each in self._handlers],
            "origin": [self.site.origin.pid],
        }

    def room(self, workload: str) -> Room | None:  # noqa: ARG002 - there is none
        return None

    def served(self, reply: Reply) -> str:
        is_status = reply.status == 200 and b'"state": "waiting"' in reply.body
        return "status" if is_status else f"status {reply.status}"

    def prepare(self, workload: str) -> Load | None:
        """Cookies as long as a ticket, each another one."""
        if workload != "polls":
            return None
        tickets = (
            f"waitroom_polls=t~{n:022}~{n:016}~{n:013}~0.{n:06}.{n:043}" for n in range(WAITING)
        )
        return Load([poll("/_waitroom/polls/status", each) for each in tickets], apart=True)
