"""Checks with `nginx -t` that nginx accepts the configuration lines of a page."""

import re
import shutil
import subprocess
from pathlib import Path

from sidecar.gate.nginx_key import build_key_file
from tests.support.processes import free_port
from tests.support.site import ROOT, SECRET, copy_includes, nginx_binary, temp_paths, user_line

#: The levels of a configuration, from the innermost. Lines belong to the first that accepts them.
LEVELS = ("location", "server", "http", "main")


def make_prefix(folder: Path) -> None:
    """Create nginx' folder: the includes as an installation has them, the key file, and a
    certificate."""
    copy_includes(folder)
    shutil.copy(ROOT / "nginx" / "waitroom-files.conf", folder)
    shutil.copy("/etc/nginx/fastcgi.conf", folder)
    (folder / "waitroom-stamp.conf").write_text(build_key_file([SECRET]))
    (folder / "tmp").mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=shop.example", "-keyout", folder / "key.pem",
         "-out", folder / "certificate.pem"],
        check=True, capture_output=True, timeout=20,
    )  # fmt: skip


def find_problem(folder: Path, block: str, before: str = "") -> str:
    """Return "" if nginx accepts the lines on any level. Otherwise return its errors on all levels.
    `before` are lines that belong to the http level."""
    errors = []
    for level in LEVELS:
        config = build_configuration(
            folder, level, localize(folder, block), localize(folder, before)
        )
        (folder / "nginx.conf").write_text(config)
        done = subprocess.run(
            [nginx_binary(), "-t", "-p", folder, "-c", folder / "nginx.conf"],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
        if done.returncode == 0 and "[warn]" not in done.stderr:
            return ""
        errors.append(f"{level}: {done.stderr.splitlines()[0]}")
    return "\n".join(errors)


def localize(folder: Path, block: str) -> str:
    """Replace the ports, folders and files in the lines by those of this test."""
    block = re.sub(r"listen (?:\[::\]:)?\d+", f"listen 127.0.0.1:{free_port()}", block)
    block = re.sub(r"(?<![\w$])/(?:etc/nginx|var/log/nginx|run)/", f"{folder}/", block)
    block = re.sub(r"(ssl_(?:client_)?certificate) [^;]+;", rf"\1 {folder}/certificate.pem;", block)
    return re.sub(r"ssl_certificate_key [^;]+;", f"ssl_certificate_key {folder}/key.pem;", block)


def build_configuration(folder: Path, level: str, block: str, before: str) -> str:
    """Build a whole configuration around the lines. Leave out what the lines already contain."""
    text = block + before
    named = set(re.findall(r"proxy_pass https?://([a-z][\w-]*)[;/$]", text))
    own = set(re.findall(r"upstream ([\w-]+)", text))
    upstreams = " ".join(f"upstream {n} {{ server 127.0.0.1:9; }}" for n in sorted(named - own))
    _without_upstream(folder, remove="waitroom" in own)
    temporary = temp_paths(folder)
    head = f"{user_line()} pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
    if level == "main":
        if "http {" not in block:
            return head + block
        return head + block.replace("http {", f"http {{ {temporary} {upstreams}", 1)
    if level in {"location", "server"}:
        server = "" if "waitroom/server.conf" in block else "include waitroom/server.conf;"
        inner = f"location / {{ {block}\n}}" if level == "location" else block
        block = f"server {{ listen 127.0.0.1:{free_port()}; {server}\n{inner}\n}}"
    names = "" if "waitroom/http.conf" in text else "include waitroom/http.conf;"
    return f"{head} http {{ access_log off; {temporary} {upstreams} {names}\n{before}\n{block}\n}}"


def _without_upstream(folder: Path, *, remove: bool) -> None:
    """Write settings.conf with its upstream of the replicas, or without it if `remove`, because the
    page's lines define the upstream."""
    file, kept = folder / "waitroom" / "settings.conf", folder / "settings.kept"
    if not kept.exists():
        shutil.copy(file, kept)
    text = kept.read_text()
    file.write_text(re.sub(r"upstream waitroom \{.*?\n\}", "", text, flags=re.DOTALL)
                    if remove else text)  # fmt: skip
