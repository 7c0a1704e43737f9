"""TLS and HTTP/2 in front: the cookie's Secure, split cookies, uploads."""

import json
import subprocess

import pytest

from tests.support.processes import free_port
from tests.support.site import Site, gated

BOTH = gated("/", room="open") + gated("/full", "client_max_body_size 100m;", room="full")


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def site(tmp_path_factory, port):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=localhost", "-days", "1",
         "-keyout", folder / "key", "-out", folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    server = f"""
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {folder}/cert;
        ssl_certificate_key {folder}/key;
    """
    rooms = {"open": {"total_active_users": 100}, "full": {"total_active_users": 0}}
    with Site(rooms=rooms, server=server, locations=BOTH) as site:
        yield site


@pytest.fixture
def curl(site, port, tmp_path):
    """Return a function that requests a page by HTTPS, and returns status, headers and body."""

    def ask(path, *options, version="--http2"):
        command = ["curl", "-sk", version, "-D", "-", "-H", "Accept: text/html", *options]
        done = subprocess.run(
            [*command, f"https://127.0.0.1:{port}{path}"],
            capture_output=True,
            check=True,
            timeout=60,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = [tuple(line.split(": ", 1)) for line in lines]
        return int(first.split()[1]), headers, body

    return ask


def given(headers, room):
    return [
        v for k, v in headers if k.lower() == "set-cookie" and v.startswith(f"waitroom_{room}=")
    ]


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
@pytest.mark.parametrize(("path", "room", "status"), [("/", "open", 200), ("/full", "full", 503)])
def test_the_cookie_is_secure_by_https(curl, version, path, room, status):
    """From the gate and from the doors."""
    got, headers, _ = curl(path, version=version)
    (line,) = given(headers, room)
    assert got == status
    assert "; Secure" in line
    _, headers, _ = curl(f"/_waitroom/{room}/", version=version)
    (line,) = given(headers, room)
    assert "; Secure" in line


def test_cookies_that_http2_splits(curl):
    """Each cookie may come in a field of its own; ours is found among them."""
    _, headers, _ = curl("/")
    ours = given(headers, "open")[0].partition(";")[0]
    options = [o for n in range(5) for o in ("-H", f"Cookie: a{n}={n}")]
    status, headers, body = curl("/", "-H", "Cookie: z=1", "-H", f"Cookie: {ours}", *options)
    assert (status, given(headers, "open")) == (200, [])
    assert json.loads(body)["path"] == "/"


def test_a_denied_upload_by_http2(curl, tmp_path):
    """The waiting page, though the body is still on its way."""
    (tmp_path / "upload").write_bytes(b"u" * (20 << 20))
    status, _, body = curl("/full", "--data-binary", f"@{tmp_path}/upload")
    assert (status, b"data-room=" in body) == (503, True)
