"""Firefox, driven by WebDriver BiDi, for tests of behaviour that differs from Chromium."""

import asyncio
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes import Process, free_port, wait_until
from tests.support.site import Servers

#: Maximum time for a page to load or change.
PATIENCE_S = 20
PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "app.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}

#: JavaScript that returns the centre of an element. It returns null if the element is disabled,
#: moves, or is covered by another.
FIND_POINT = """async element => {
    if (!element || element.disabled) return null;
    element.scrollIntoView({ block: 'center', behavior: 'instant' });
    const before = element.getBoundingClientRect();
    await new Promise(done => setTimeout(done, 50));
    const now = element.getBoundingClientRect();
    if (now.x !== before.x || now.y !== before.y) return null;
    const [x, y] = [now.x + now.width / 2, now.y + now.height / 2];
    return element.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
}"""


class Firefox(Servers):
    """A Firefox with a new profile.

    Commands and events share one WebSocket. A command reads messages until its response arrives,
    and stores the errors that pages report meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self.tabs: dict[str, Tab] = {}

    def _start(self) -> None:
        binary = shutil.which("firefox-esr") or shutil.which("firefox")
        if binary is None:
            problem = "firefox-esr is not installed; run make test"
            if os.environ.get("CI") or os.geteuid() == 0:
                pytest.fail(problem)
            pytest.skip(problem)
        profile = Path(tempfile.mkdtemp(prefix="wr-firefox-"))
        self._stack.callback(shutil.rmtree, profile, ignore_errors=True)
        lines = [
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in PREFERENCES.items()
        ]
        (profile / "user.js").write_text("".join(lines))
        port = free_port()
        command = [binary, "--headless", "--no-remote", "--profile", str(profile),
                   f"--remote-debugging-port={port}"]  # fmt: skip
        # Firefox refuses a home folder of another user.
        env = {**os.environ, "HOME": str(profile), "MOZ_CRASHREPORTER_DISABLE": "1"}
        self._stack.enter_context(Process(command, log=profile / "firefox.log", env=env))
        self._runner = self._stack.enter_context(asyncio.Runner())
        self._socket = self._runner.run(self._connect(f"ws://127.0.0.1:{port}/session"))
        self._stack.callback(lambda: self._runner.run(self._disconnect()))
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])

    async def _connect(self, url: str) -> aiohttp.ClientWebSocketResponse:
        self._session = aiohttp.ClientSession()
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._session.ws_connect(url, max_msg_size=0)
            except aiohttp.ClientError:
                if time.monotonic() > end:
                    await self._session.close()
                    raise
                await asyncio.sleep(0.1)

    async def _disconnect(self) -> None:
        await self._socket.close()
        await self._session.close()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result."""
        return self._runner.run(self._call(method, params))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        await self._socket.send_json({"id": self._count, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S * 2):
            while True:
                message = await self._socket.receive_json()
                if message["type"] == "event":
                    self._store_error(message["params"])
                elif message["id"] == self._count:
                    break
        if message["type"] == "error":
            raise BidiError(f"{method}: {message['error']}: {message['message']}")
        result: dict[str, Any] = message["result"]
        return result

    def _store_error(self, event: dict[str, Any]) -> None:
        tab = self.tabs.get(event["source"].get("context"))
        if tab is not None and event["level"] == "error":
            tab.problems.append(event["text"])

    def visitor(self, *, locale: str = "en-GB") -> "Tab":
        """Open a tab for a new visitor, with cookies of its own."""
        user = self.call("browser.createUserContext")["userContext"]
        self.call("emulation.setLocaleOverride", locale=locale, userContexts=[user])
        context = self.call("browsingContext.create", type="tab", userContext=user)["context"]
        self.tabs[context] = tab = Tab(self, context)
        return tab


class BidiError(Exception):
    """Firefox has refused a command."""


class Tab:
    """A browser tab. `problems` has the errors on its console, including violations of its
    Content-Security-Policy."""

    def __init__(self, firefox: Firefox, context: str) -> None:
        self._firefox, self._context = firefox, context
        self.problems: list[str] = []

    def goto(self, url: str) -> "Tab":
        self._call("browsingContext.navigate", url=url, wait="complete")
        return self

    def resize(self, width: int, height: int = 900) -> None:
        self._call("browsingContext.setViewport", viewport={"width": width, "height": height})

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression, and return its value. Return None if that fails because
        the page is being replaced."""
        expression = f"(async () => JSON.stringify(await ({script})))()"
        try:
            found = self._firefox.call(
                "script.evaluate",
                expression=expression,
                target={"context": self._context},
                awaitPromise=True,
            )
        except BidiError:
            return None
        if found["type"] == "exception":
            raise AssertionError(found["exceptionDetails"]["text"])
        return json.loads(found["result"].get("value", "null"))

    def until(self, script: str, wanted: Any = True) -> None:
        """Wait until a JavaScript expression has the value `wanted`."""
        wait_until(lambda: self.run(script) == wanted, f"{script} == {wanted!r}", PATIENCE_S)

    def shows(self, css: str, text: str) -> None:
        """Wait until a visible element that matches `css` contains the text."""
        own, wanted = json.dumps(css), json.dumps(text)
        self.until(
            f"[...document.querySelectorAll({own})].some(e => e.checkVisibility()"
            f" && (e.innerText + (e.value ?? '')).includes({wanted}))"
        )

    def click(self, css: str, text: str = "") -> None:
        """Click the first visible element that matches `css` and contains `text`."""
        own, wanted = json.dumps(css), json.dumps(text)
        find = (
            f"[...document.querySelectorAll({own})].find(e => e.checkVisibility()"
            f" && e.innerText.includes({wanted}))"
        )
        end = time.monotonic() + PATIENCE_S
        while (point := self.run(f"({FIND_POINT})({find})")) is None:
            assert time.monotonic() < end, f"no {css} with {text!r} can be clicked"
            time.sleep(0.1)
        x, y = map(round, point)
        self._act(
            "pointer",
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        )

    def type(self, css: str, text: str) -> None:
        """Replace the value of the field that matches `css`, by typing."""
        self.click(css)
        self.run(f"document.querySelector({json.dumps(css)}).select()")
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._act("key", *keys)

    def _act(self, kind: str, *actions: dict[str, Any]) -> None:
        self._call(
            "input.performActions", actions=[{"type": kind, "id": kind, "actions": list(actions)}]
        )

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._firefox.call(method, context=self._context, **params)
