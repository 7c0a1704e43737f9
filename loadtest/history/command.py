"""What `waitroom report` takes over a room's last day and over all of it: time and memory."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.02
_CONFIG = """\
secret_keys = ["for-a-measurement-for-a-measurement"]
history = "{url}"

[rooms.{room}]
total_active_users = 300
"""


@dataclass(frozen=True, slots=True)
class Made:
    """A report that was made."""

    period: str
    stays: int
    seconds: float
    #: The most memory that the command had, MB.
    memory_mb: float


def make_report(url: str, room: str, period: str, folder: Path) -> Made:
    """Runs the command. `period`: how long ago it begins, such as 24h."""
    config, out = folder / "waitroom.toml", folder / "report.json"
    config.write_text(_CONFIG.format(url=url, room=room))
    program = Path(sys.executable).with_name("waitroom")
    command = [str(program), "report", "--config", str(config), room,
               "--from", period, "--format", "json"]  # fmt: skip
    began, memory_mb = time.monotonic(), 0.0
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file)
        while process.poll() is None:
            memory_mb = max(memory_mb, _most_mb(process.pid))
            time.sleep(_LOOK_S)
    seconds = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"waitroom report ended with {process.returncode}")
    return Made(period, json.loads(out.read_text())["stays"], seconds, memory_mb)


def _most_mb(pid: int) -> float:
    """The most that the process has had until now; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found[0]) / 1000 if found else 0.0
