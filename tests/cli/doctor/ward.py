"""A site for tests of `waitroom doctor`: one nginx that has every mistake in a configuration that
the command can find, each in a location or a server block of its own."""

import ipaddress
import json
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from sidecar.cli.doctor.checks import diagnose
from sidecar.cli.doctor.findings import Finding, Level
from sidecar.cli.doctor.site_response import SiteResponse
from sidecar.cli.doctor.visit import Options, Visit
from tests.support.processes import free_port
from tests.support.site import Site

GATED = "set $waitroom_room shop; include waitroom/location.conf; proxy_pass http://origin;"
RIGHT = f"include waitroom/server.conf; location / {{ {GATED} }}"

ROOMS = {
    "shop": {"total_active_users": 100_000},
    "waits": {"total_active_users": 0},
    "full": {"total_active_users": 0, "max_waiting": 0},
    "closed": {"total_active_users": 0, "queueing_method": "reject"},
    "open": {"total_active_users": 1, "suspended": True},
}

LOCATIONS = f"""
location / {{ {GATED} }}
location /waits {{ {GATED.replace("shop", "waits")} }}
location /full {{ {GATED.replace("shop", "full")} }}
location /closed {{ {GATED.replace("shop", "closed")} }}
location /open {{ {GATED.replace("shop", "open")} }}
location /seat {{ {GATED.replace("shop", "seat~7")} }}
location /elsewhere {{ set $waitroom_mode redirect; {GATED.replace("shop", "waits")} }}
location /moved {{ return 302 /page; }}
location /no-gate {{ proxy_pass http://origin; }}
location /unknown {{ {GATED.replace("shop", "shpo")} }}
location /nameless {{ include waitroom/location.conf; proxy_pass http://origin; }}
location /no-headers {{ {GATED} add_header X-Frame-Options DENY; }}
location /no-errors {{ {GATED} error_page 404 /404.html; }}
location /cors {{ {GATED} include waitroom/headers.conf;
    add_header Access-Control-Allow-Origin https://app.example always; }}
location /password {{ auth_basic staging; auth_basic_user_file htpasswd; {GATED} }}
"""

#: Server blocks by name. `<name>` stands for the URL of another block, PORT for a free port, OPS
#: and EDGE for URLs of a replica, and ADDRESS for an IP address that is not loopback.
SERVERS = {
    "right": f"listen 127.0.0.1:PORT; {RIGHT}",
    "tls": f"listen 127.0.0.1:PORT ssl; {RIGHT}",
    "no-include": "listen 127.0.0.1:PORT; location / { proxy_pass http://origin; }",
    "no-server-conf": f"listen 127.0.0.1:PORT; location / {{ {GATED} }}",
    "odd-verdict": f"listen 127.0.0.1:PORT; rewrite ^/_waitroom/ /status/404 break; {RIGHT}",
    "forbidden": f"listen 127.0.0.1:PORT; if ($uri ~ ^/_waitroom/) {{ return 403; }} {RIGHT}",
    "no-static": f"listen 127.0.0.1:PORT; set $waitroom_static /nowhere; {RIGHT}",
    "no-page": f"listen 127.0.0.1:PORT; set $waitroom_page ''; {RIGHT}",
    "secure": f"listen 127.0.0.1:PORT; set $waitroom_scheme https; {RIGHT}",
    "own-401": f"listen 127.0.0.1:PORT; error_page 401 /login; {RIGHT}",
    "policy": f"""listen 127.0.0.1:PORT; {RIGHT}
        add_header Content-Security-Policy "default-src cdn.example; style-src 'self'" always;""",
    "good-policy": f"""listen 127.0.0.1:PORT; {RIGHT}
        add_header Content-Security-Policy "default-src 'self' cdn.example" always;""",
    "odd-path": f"""listen 127.0.0.1:PORT; {RIGHT} location /health/ {{
        if ($request_uri ~ ^/health/waitroom-doctor) {{ return 404; }}
        proxy_pass http://origin; }}""",
    "strict-path": f"""listen 127.0.0.1:PORT; {RIGHT} location /health/ {{
        if ($request_uri ~ ^/health/waitroom-doctor) {{ return 404; }}
        include waitroom/strict-path.conf; proxy_pass http://origin; }}""",
    "no-post": f"listen 127.0.0.1:PORT; if ($request_method = POST) {{ return 405; }} {RIGHT}",
    "front": f"listen 127.0.0.1:PORT; {RIGHT} location ~ \\.php$ {{ proxy_pass http://origin; }}",
    "error-page": f"""listen 127.0.0.1:PORT; {RIGHT}
        location /assets/ {{ root /nowhere; error_page 404 /missing; }}""",
    "right-error-page": f"""listen 127.0.0.1:PORT; recursive_error_pages on; {RIGHT}
        location /assets/ {{ root /nowhere; error_page 404 /missing; }}""",
    "limited": f"listen 127.0.0.1:PORT; limit_req zone=doctor burst=4 nodelay; {RIGHT}",
    "limited-429": f"""listen 127.0.0.1:PORT; limit_req zone=doctor burst=4 nodelay;
        limit_req_status 429; {RIGHT}""",
    "limited-inside": f"""listen 127.0.0.1:PORT; include waitroom/server.conf;
        location / {{ limit_req zone=page burst=100 nodelay; {GATED} }}""",
    "cors": f"""listen 127.0.0.1:PORT; {RIGHT}
        add_header Access-Control-Allow-Origin https://app.example always;""",
    "trusting": f"""listen 127.0.0.1:PORT; {RIGHT}
        set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;""",
    "ops": f"""listen 127.0.0.1:PORT; {RIGHT}
        location /metrics {{ proxy_pass OPS; }} location /admin/ {{ proxy_pass OPS; }}""",
    # Proxies in front of nginx.
    "tls-balancer": "listen 127.0.0.1:PORT ssl; location / { proxy_pass <right>; }",
    "balancer": "listen ADDRESS:PORT; location / { proxy_pass <right>; }",
    "careless-cache": """listen 127.0.0.1:PORT; location / { proxy_pass <right>;
        proxy_cache pages; proxy_cache_valid any 1m;
        proxy_ignore_headers Set-Cookie Cache-Control;
        add_header X-Cache-Status $upstream_cache_status always; }""",
    "public": """listen 127.0.0.1:PORT; location / { proxy_pass <right>;
        proxy_hide_header Cache-Control; add_header Cache-Control "public, max-age=60"; }""",
    "cookie-flags": """listen 127.0.0.1:PORT; location / { proxy_pass <right>;
        proxy_cookie_flags ~ nohttponly samesite=none; proxy_cookie_path / /shop; }""",
    "cookie-drop": """listen 127.0.0.1:PORT; location /_waitroom/ { proxy_pass <right>; }
        location / { proxy_pass <right>; proxy_set_header Cookie ""; }""",
    "cookie-drop-doors": """listen 127.0.0.1:PORT; location / { proxy_pass <right>; }
        location /_waitroom/ { proxy_pass <right>; proxy_set_header Cookie ""; }""",
    "no-retry": """listen 127.0.0.1:PORT; location / { proxy_pass <main>;
        proxy_hide_header Retry-After; }""",
    # A proxy that caches a page without its cookie.
    "cold-cache": """listen 127.0.0.1:PORT; location /_waitroom/ { proxy_pass <right>; }
        location / { proxy_pass <right>; proxy_cache pages; proxy_cache_valid 200 1m;
        proxy_ignore_headers Set-Cookie Cache-Control; proxy_hide_header Set-Cookie;
        add_header Set-Cookie $cookie_of_miss always; }""",
    "no-cookie": """listen 127.0.0.1:PORT; location / { proxy_pass <main>;
        proxy_hide_header Set-Cookie; }""",
    # The sidecar's own listeners, exposed to everybody.
    "outside": f"listen ADDRESS:PORT; {RIGHT}",
    "open-ops": "listen ADDRESS:PORT; location / { proxy_pass OPS; }",
    "open-edge": "listen ADDRESS:PORT; location / { proxy_pass EDGE; }",
}


class Ward(Site):
    """The site with every mistake. `ports` has the port of each server block in SERVERS."""

    def _write_nginx(self) -> None:
        self.ports = {name: free_port() for name in SERVERS}
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
             "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        (self.folder / "htpasswd").write_text("tester:{PLAIN}secret\n")
        blocks = [
            f"ssl_certificate {certificate}; ssl_certificate_key {key};",
            f"proxy_cache_path {self.folder}/pages keys_zone=pages:1m;",
            "map $upstream_cache_status $cookie_of_miss {",
            '    default $upstream_http_set_cookie; HIT ""; }',
            "limit_req_zone $server_port zone=doctor:1m rate=1r/s;",
            "limit_req_zone $server_port zone=page:1m rate=100r/s;",
        ]
        for name, text in SERVERS.items():
            block = text.replace("PORT", str(self.ports[name])).replace("ADDRESS", own_address())
            block = block.replace("OPS", self.ops[0]).replace("EDGE", self.edges[0])
            for other, port in {**self.ports, "main": self.port}.items():
                block = block.replace(f"<{other}>", f"http://127.0.0.1:{port}")
            blocks.append(f"server {{ {block} }}")
        self._http = "\n".join(blocks)
        super()._write_nginx()

    def at(self, where: str) -> str:
        """Return the URL of "/path" on the main server, or of "server" or "server/path"."""
        name, slash, path = where.partition("/")
        if not name:
            return self.url + where
        scheme = "https" if name.startswith("tls") else "http"
        host = own_address() if "ADDRESS" in SERVERS[name] else "127.0.0.1"
        return f"{scheme}://{host}:{self.ports[name]}/{path if slash else 'page'}"


def own_address() -> str:
    """Return an IP address of this machine that is not loopback, or 127.0.0.1 if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


needs_network = pytest.mark.skipif(
    own_address() == "127.0.0.1", reason="this machine has no address but loopback"
)


async def examine(address: str, **options) -> list[Finding]:
    """Return what `waitroom doctor` finds at a URL."""
    here = {"ops_port": free_port(), "edge_port": free_port(), "includes": Path("/nowhere")}
    options = {**here, **options}
    return await diagnose(address, Options(**options))


def bad(findings: list[Finding], level: Level = Level.PROBLEM) -> list[str]:
    """Return the texts of the findings of a level, by default the problems."""
    return [f"{found.what} -> {found.fix}" for found in findings if found.level is level]


def said(findings: list[Finding]) -> str:
    return "\n".join(found.what for found in findings)


def read(address: str, headers: dict[str, str] | None = None) -> bytes:
    request = urllib.request.Request(address, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=2) as reply:
            return reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read()
    except OSError:
        return b""


NOW_S = 1_800_000_000.0
PAGE = '<html data-room="shop" data-state="{}"><script src="/_waitroom/static/waiting.js">'


def reply(status: int = 200, body: object = "", **headers: str) -> SiteResponse:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    if not isinstance(body, str):
        body = json.dumps(body)
        named["Content-Type"] = "application/json"
    return SiteResponse(status, CIMultiDictProxy(named), body, at_s=NOW_S)


def visit(**seen) -> Visit:
    """Create the record of the doctor's visit to a site, in which the doctor has seen `seen`."""
    url = URL(seen.pop("url", "https://shop.example/"))
    made = Visit(url, Options(), url)
    made.addresses = [ipaddress.ip_address("198.41.30.198")]
    made.own_address = "10.1.2.3"
    for name, value in seen.items():
        setattr(made, name, value)
    return made


def only(found) -> Finding:
    (finding,) = list(found)
    return finding
