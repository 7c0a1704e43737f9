"""Run the demo in the foreground: Redis, two replicas, a job worker, a shop and nginx.

Its files are in a temporary folder, which is deleted at the end, except .run/waitroom.toml and
.run/history.db, which the next run replaces.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

from after import answers
from honcho import manager as honcho

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "demo"
RUN = ROOT / ".run"
PORT = 8080
OPS_PORTS = (8401, 8402)
#: The service_token in waitroom.toml.
TOKEN = "demo-service-token"
STOPPED = {None, 0, 130, 143}
#: Time that a process may take to stop. A replica gives its last requests 5 s.
STOP_S = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, help="8080, or the next one that is free")
    port = choose_port(parser.parse_args().port)
    # The folder is not in the project, because a path of a unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="waitroom-demo-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        ops = [take_port(preferred, f"replica {i}") for i, preferred in enumerate(OPS_PORTS, 1)]
        studio = take_port()
        make_run_folder()
        configs = [write_replica(folder, number, port, studio) for number, port in enumerate(ops)]
        write_nginx(folder, port, studio)
        write_key(folder, configs[0])
        write_run_config(configs[0])
        honcho.KILL_WAIT = STOP_S
        manager = honcho.Manager()
        for label, command in build_commands(folder, configs, ops).items():
            manager.add_process(
                label, command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, cwd=str(ROOT)
            )
        threading.Thread(target=print_greeting, args=(port, ops[0]), daemon=True).start()
        manager.loop()
    # Ctrl-C and SIGTERM are the normal ends of the demo.
    sys.exit(0 if manager.returncode in STOPPED else manager.returncode)


def build_commands(folder: Path, configs: list[Path], ops: list[int]) -> dict[str, str]:
    python = sys.executable
    # Without these servers, visitors would see the waiting page, and nginx would log errors.
    needed = " ".join([f"{folder}/shop.sock", *(f"http://127.0.0.1:{at}/readyz" for at in ops)])
    waitroom = Path(python).parent / "waitroom"
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    commands = {
        "redis": f"exec redis-server --port 0 --unixsocket {folder}/redis.sock --save '' "
        f"--dir {folder} --loglevel warning",
        "shop": f"exec {python} demo/shop.py --socket {folder}/shop.sock "
        f"--ops http://127.0.0.1:{ops[0]} --token {TOKEN}",
        "runner": f"exec {waitroom} run-jobs --config {configs[0]}",
        "nginx": f"exec {python} demo/after.py {needed} -- "
        f"{nginx} -p {folder} -c {folder}/nginx.conf",
    }
    for number, config in enumerate(configs, start=1):
        commands[f"replica.{number}"] = f"exec {waitroom} serve --config {config}"
    return commands


def make_run_folder() -> None:
    """Make .run without the history of the demo before."""
    RUN.mkdir(exist_ok=True)
    for file in RUN.glob("history.db*"):
        file.unlink()


def write_replica(folder: Path, number: int, ops_port: int, studio_port: int) -> Path:
    config = folder / f"replica-{number}.toml"
    lines = [
        f'store = "unix://{folder}/redis.sock"',
        f'edge_listen = "unix:{folder}/edge-{number}.sock"',
        f'ops_listen = "127.0.0.1:{ops_port}"',
        f'history = "sqlite:///{RUN}/history.db"',
        f'jobs = "sqlite:///{folder}/jobs.db"',
    ]
    text = (DEMO / "waitroom.toml").read_text().replace("@studio@", str(studio_port))
    config.write_text("\n".join(lines) + "\n" + text)
    tomllib.loads(config.read_text())
    return config


def write_nginx(folder: Path, port: int, studio_port: int) -> None:
    includes = folder / "waitroom"
    shutil.copytree(ROOT / "nginx" / "waitroom", includes)
    settings = (includes / "settings.conf").read_text()
    edges = "\n".join(
        f"    server unix:{folder}/edge-{number}.sock max_fails=0;"
        for number in range(len(OPS_PORTS))
    )
    settings = settings.replace("    server 127.0.0.1:8400 max_fails=0;", edges)
    settings = settings.replace("/etc/nginx/waitroom/static", str(ROOT / "static"))
    settings = settings.replace("/run/waitroom-verdicts", str(folder / "verdicts"))
    (includes / "settings.conf").write_text(settings)
    text = (DEMO / "nginx.conf").read_text()
    user = "user root;" if os.geteuid() == 0 else ""
    values = {"folder": folder, "port": port, "studio": studio_port, "user": user, "demo": DEMO}
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    (folder / "nginx.conf").write_text(text)


def write_key(folder: Path, config: Path) -> None:
    """Write the key with which nginx checks stamps."""
    waitroom, file = Path(sys.executable).parent / "waitroom", folder / "waitroom-stamp.conf"
    subprocess.run(
        [waitroom, "nginx-key", file, "--config", config],
        check=True, stderr=subprocess.DEVNULL, timeout=30,
    )  # fmt: skip


def write_run_config(config: Path) -> None:
    """Write .run/waitroom.toml, so that `waitroom rooms` finds the demo."""
    (RUN / "waitroom.toml").write_text(config.read_text())


def print_greeting(port: int, ops_port: int) -> None:
    url = f"http://localhost:{port}"
    while not answers(f"{url}/_waitroom/shop/status"):
        time.sleep(0.1)
    crowd = "make crowd VISITORS=20" + ("" if port == PORT else f" PORT={port}")
    print(
        f"\n  The shop is open: {url}   (two fit in; Ctrl-C stops all)\n"
        f"  Bring visitors:   {crowd}\n"
        f"  A seat each:      {url}/seats/\n"
        f"  A rate limit:     {url}/api/stock   (five calls in ten seconds)\n"
        f"  Jobs:             {url}/pictures/   (one is drawn at a time)\n"
        "  See the room:     .venv/bin/waitroom rooms --config .run/waitroom.toml list\n"
        "  Afterwards:       .venv/bin/waitroom report --config .run/waitroom.toml shop\n"
        f"  Dashboard:        http://localhost:{ops_port}/dashboard   (token: demo-admin-token)\n"
        f"  Metrics:          http://localhost:{ops_port}/metrics\n",
        flush=True,
    )


def choose_port(asked: int | None) -> int:
    if asked is not None:
        if is_free(asked):
            return asked
        sys.exit(
            f"Port {asked} is in use by another program. Choose another one: make run PORT=8090"
        )
    port = next(filter(is_free, range(PORT, PORT + 100)))
    if port != PORT:
        print(f"Port {PORT} is in use by another program; the shop takes {port}.", flush=True)
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def take_port(preferred: int = 0, user: str = "") -> int:
    """Return the preferred port if it is free. Otherwise return any free port, and print which one
    the `user` takes. 0 means no preference."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    if preferred:
        print(
            f"Port {preferred} is in use by another program; ops_listen of {user} takes {port}.",
            flush=True,
        )
    return port


if __name__ == "__main__":
    main()
