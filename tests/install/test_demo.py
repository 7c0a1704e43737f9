"""make run's demo, started as its user starts it."""

import contextlib
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.support.processes import Process, wait_until
from tests.support.site import ROOT

#: Those that make calls, for any sh.
SCRIPTS = ("apt-install", "install-browser", "install-packages", "make-venv")
COMMAND = [sys.executable, "demo/run.py"]


def fetch(url: str, cookie: str = "") -> tuple[int, str, str]:
    request = urllib.request.Request(url, headers={"Accept": "text/html", "Cookie": cookie})
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.status, reply.read().decode(), reply.headers["Set-Cookie"] or ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["Set-Cookie"] or ""


def first_status(url: str, demo: Process) -> int:
    """Return the status of the first response, whichever server sends it."""
    found: list[int] = []

    def ask() -> bool:
        with contextlib.suppress(urllib.error.URLError):
            found.append(fetch(url)[0])
        return bool(found)

    wait_until(ask, "nginx", of=demo)
    return found[0]


def test_the_story_in_the_demo(tmp_path):
    """Two fit in, the third waits; a seat has one visitor; calls are limited; pictures are drawn
    one at a time; the crowd comes and goes; all ends cleanly. Where port 8080 is in use it says
    which one it takes."""
    log = tmp_path / "log"
    with contextlib.ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        with contextlib.suppress(OSError):  # in use already
            taken.bind(("0.0.0.0", 8080))
        taken.listen()
        demo = stack.enter_context(Process(COMMAND, log=log, cwd=ROOT, start_new_session=True))
        said = re.compile(r"Port 8080 is in use by another program; the shop takes (\d+)\.")
        wait_until(lambda: said.search(demo.output) is not None, "the port", of=demo)
        port = said.findall(demo.output)[0]
        url = f"http://127.0.0.1:{port}"
        # I expect the first response of all to come from a replica; nginx's log names no fault.
        assert first_status(f"{url}/_waitroom/shop/status", demo) == 200
        wait_until(lambda: "The shop is open" in demo.output, "the demo")
        assert not re.search(r"\[(error|crit|alert|emerg)\]", demo.output)
        answers = [fetch(f"{url}/thing/lamp?colour=red") for _ in range(3)]
        assert [status for status, *_ in answers] == [200, 200, 503]
        assert "Table lamp" in answers[0][1]
        assert ">You are next</h1>" in answers[2][1]
        status, text, _ = fetch(f"{url}/checkout/done", answers[0][2].partition(";")[0])
        assert (status, "Thank you" in text) == (200, True)
        seats = [fetch(f"{url}/seats/3/") for _ in range(2)]
        assert [status for status, *_ in seats] == [200, 503]
        assert fetch(f"{url}/seats/3/done", seats[0][2].partition(";")[0])[0] == 200
        assert 429 in [fetch(f"{url}/api/stock")[0] for _ in range(9)]
        ordered = urllib.request.urlopen(f"{url}/pictures/", data=b"", timeout=5)
        with ordered:
            pictures = ordered.geturl()
            assert "1 in the queue" in ordered.read().decode()
        crowd = subprocess.run(
            [sys.executable, "demo/crowd.py", "--url", f"http://localhost:{port}",
             "--visitors", "3", "--stay", "0.1", "--minutes", "1"],
            cwd=ROOT, capture_output=True, text=True, timeout=90, check=True,
        )  # fmt: skip
        assert "3 visitors finished" in crowd.stdout, crowd.stdout
        wait_until(lambda: fetch(pictures)[1].count("</svg>") == 5, "five pictures")
        demo.stop(30)
    print(demo.output[-5000:])
    (afterwards,) = re.findall(r"Afterwards: +(.*)", demo.output)
    report = subprocess.run(
        ["sh", "-c", afterwards], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert re.search(r"^entered +[1-9]", report.stdout, re.MULTILINE | re.IGNORECASE), report.stdout
    assert "replica.2 stopped (rc=0)" in demo.output
    assert "runner stopped (rc=0)" in demo.output
    assert "Traceback" not in demo.output


def test_a_busy_port_is_said_plainly():
    """With the number, and what to type instead."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    assert done.returncode != 0
    assert f"Port {port} is in use" in done.stderr
    assert "make run PORT=" in done.stderr


def test_the_crowd_visits_this_machine_only():
    """Another host is refused before anything is sent."""
    done = subprocess.run(
        [sys.executable, "demo/crowd.py", "--url", "http://192.0.2.1"],
        cwd=ROOT, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, "this machine only" in done.stderr) == (2, True)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_are_sound_shell(script):
    """sh reads them without complaint."""
    subprocess.run(["sh", "-n", str(ROOT / "scripts" / script)], check=True, timeout=10)
