"""Starts sites behind nginx, Caddy or HAProxy, with the example configurations of this repository.

Only addresses are changed in the examples, and a timeout, so that tests are fast.
"""

import shutil
from pathlib import Path

from tests.support.processes import Process, free_port
from tests.support.site import ROOT, Site, build_nginx_config, replace_each

EXAMPLES = ROOT / "deploy"
ORIGINS = Path(__file__).parent / "origins"


class NginxSite(Site):
    """A site behind nginx, with nginx/example.conf."""

    name = "nginx"

    def _write_nginx(self) -> None:
        super()._write_nginx()
        text = replace_each(
            (ROOT / "nginx" / "example.conf").read_text(),
            {
                "listen 80;": f"listen 127.0.0.1:{self.port};",
                "127.0.0.1:9000": f"127.0.0.1:{self.origin_port}",
                "/var/log/nginx/access.log": f"{self.folder}/access.log",
            },
        )
        (self.folder / "nginx.conf").write_text(build_nginx_config(self.folder, text))


class CaddySite(Site):
    """A site behind Caddy, with deploy/caddy/Caddyfile. `url` is that of Caddy."""

    name = "caddy"

    def _start_gate(self) -> Process:
        text = replace_each(
            (EXAMPLES / "caddy" / "Caddyfile").read_text(),
            {
                "shop.example {": f"http://127.0.0.1:{self.port} {{",
                "127.0.0.1:8400 127.0.0.1:8410": " ".join(self._upstreams),
                "127.0.0.1:9000": f"127.0.0.1:{self.origin_port}",
                "/checkout/done": "/done",
                "response_header_timeout 3s": "response_header_timeout 1s",
            },
        )
        config = self.folder / "Caddyfile"
        config.write_text("{\n\tadmin off\n}\n" + text)
        home = [f"XDG_{kind}_HOME={self.folder}" for kind in ("CONFIG", "DATA")]
        command = [binary("caddy"), "run", "--config", str(config), "--adapter", "caddyfile"]
        return self.run("caddy", ["env", *home, *command])


class HaproxySite(Site):
    """A site behind HAProxy, with the files of deploy/haproxy. `url` is that of HAProxy."""

    name = "haproxy"

    def _start_gate(self) -> Process:
        lua_address = f"127.0.0.1:{free_port()}"
        script = self.folder / "waitroom.lua"
        source = (EXAMPLES / "haproxy" / "waitroom.lua").read_text()
        script.write_text(replace_each(source, {"127.0.0.1:8409": lua_address}))
        servers = "\n".join(
            f"    server replica{number} {address}"
            for number, address in enumerate(self._upstreams, start=1)
        )
        text = replace_each(
            (EXAMPLES / "haproxy" / "haproxy.cfg").read_text(),
            {
                "bind :80": f"bind 127.0.0.1:{self.port}",
                "/etc/haproxy/waitroom.lua": str(script),
                "127.0.0.1:8409": lua_address,
                "    server replica1 127.0.0.1:8400\n    server replica2 127.0.0.1:8410": servers,
                "127.0.0.1:9000": f"127.0.0.1:{self.origin_port}",
                "/checkout/done": "/done",
                "timeout server 3s": "timeout server 1s",
            },
        )
        config = self.folder / "haproxy.cfg"
        config.write_text(text)
        return self.run("haproxy", [binary("haproxy"), "-db", "-f", str(config)])


class WithNode:
    """Mixin: the origin is a Node program, which parses URLs as Node does."""

    origin_port: int

    def _origin_command(self) -> list[str]:
        return [binary("node"), str(ORIGINS / "node.mjs"), str(self.origin_port)]


class WithPhp:
    """Mixin: the origin is written in PHP."""

    origin_port: int

    def _origin_command(self) -> list[str]:
        address = f"127.0.0.1:{self.origin_port}"
        return [binary("php"), "-S", address, str(ORIGINS / "site.php")]


def binary(name: str) -> str:
    found = shutil.which(name, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
    assert found, f"{name} is not installed; run make test"
    return found
