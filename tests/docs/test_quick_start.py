"""The quick start of jobs.md, typed into one shell in an empty folder, as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.installation import IMAGE
from tests.support.http_server import serve
from tests.support.processes import CLEAN, WAITROOM, free_port
from tests.support.redis_servers import RedisServer
from tests.support.site import ROOT

PAGE = ROOT / "docs" / "jobs.md"
#: Stops what the shell has begun in the background.
STOP = "stop() { jobs -p | xargs -r kill; wait; }; trap stop EXIT"
PYTHON = "python <<'END'\n"
#: What a person does who reads on: look until the replica and the worker are there.
READY = (
    "for _ in $(seq 200); do curl -sf http://127.0.0.1:8401/readyz && "
    "waitroom targets list | grep -q images && break; sleep 0.1; done"
)


def script(folder: Path) -> str:
    """Return the quick start's blocks as one script, which ends at the first command that fails."""
    text = PAGE.read_text()
    first, last = (
        text[: text.index(heading)].count("\n") for heading in ("## Quick start", "## The API")
    )
    lines = ["set -eu", STOP]
    for block in blocks_of(PAGE):
        if not first < block.line < last:
            continue
        if block.language == "toml":
            (folder / "waitroom.toml").write_text(block.text)
        elif block.language == "python":  # continues the Python block before it
            begun = lines.pop().removesuffix("END") if lines[-1].endswith("\nEND") else PYTHON
            lines.append(f"{begun}{block.text}END")
        else:
            lines += [block.text, *([READY] if "waitroom serve" in block.text else [])]
    return "\n".join(lines)


@pytest.mark.full
def test_it_works_as_it_stands(tmp_path):
    """Only addresses are others: of Redis, of the replica, and of the target, which is on this
    machine and so private; ID is the job's. No variable is set that the page does not set."""
    with RedisServer() as redis, serve(lambda _: IMAGE) as target:
        text = script(tmp_path)
        settings = tmp_path / "waitroom.toml"
        settings.write_text(
            settings.read_text()
            .replace("redis://127.0.0.1:6379/0", redis.url)
            .replace('url = "https://images.example/v1/"', f'private = true\nurl = "{target}/"')
        )
        edge, ops = free_port(), free_port()
        listeners = {"EDGE": edge, "OPS": ops}
        listen = {f"WAITROOM_{name}_LISTEN": f"127.0.0.1:{n}" for name, n in listeners.items()}
        text = text.replace("127.0.0.1:8401", f"127.0.0.1:{ops}").replace("show ID", 'show "$id"')
        text = re.sub(r"https://\w+\.example/", f"{target}/", text)
        programs = f"{Path(WAITROOM).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env={**CLEAN, "PATH": programs, **listen},
            capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
    said = f"{text}\n{done.stdout}{done.stderr}"
    assert done.returncode == 0, said
    assert (tmp_path / "cat.png").read_bytes() == b"fine", said
    assert (tmp_path / "fox.png").read_bytes() == b"fine", said
