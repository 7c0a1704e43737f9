"""The platforms that `waitroom init` supports: their paths, users and commands."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform on which replicas and nginx run."""

    #: The user that nginx's workers run as.
    nginx_user: str
    #: A text that tells which file has the `server { }` of a site.
    site_file: str
    #: The addresses of the replicas, as nginx's `server` lines name them.
    replicas: tuple[str, ...]
    #: A sentence about how to start the replicas, and the commands for it.
    start: tuple[str, ...]
    #: The command that makes nginx read its files again.
    reload: str = "sudo nginx -t && sudo systemctl reload nginx"
    #: True if systemd units are installed.
    has_units: bool = True


_UNITS = (
    "Start two replicas:",
    "sudo systemd-sysusers && sudo systemctl daemon-reload",
    "sudo systemctl enable --now waitroom@1 waitroom@2 waitroom.target",
)
_SOCKETS = ("unix:/run/waitroom/edge-1.sock", "unix:/run/waitroom/edge-2.sock")
_DEBIAN_SITE = "your site's file in /etc/nginx/sites-available (nginx's own is `default` there)"

PLATFORMS = {
    "debian": Platform("www-data", _DEBIAN_SITE, _SOCKETS, _UNITS),
    "rhel": Platform(
        "nginx",
        "your site's file in /etc/nginx/conf.d (nginx's own server is in /etc/nginx/nginx.conf)",
        _SOCKETS,
        _UNITS,
    ),
    "docker": Platform(
        "nginx",
        "the file of your site in the nginx container's /etc/nginx/conf.d",
        ("waitroom:8400",),
        (
            "Build the image. Start the replica, Redis, and your nginx with the new files:",
            "docker build --tag waitroom:{version} {clone}",
            "docker compose -f compose.yaml -f {into}/compose.waitroom.yaml up --detach --wait",
        ),
        reload="docker compose exec nginx nginx -t && docker compose exec nginx nginx -s reload",
        has_units=False,
    ),
    "plain": Platform(
        "www-data",
        "your site's file, where nginx's configuration includes it",
        ("127.0.0.1:8400",),
        (
            "Start a replica. It needs a terminal of its own, or a service manager:",
            "sudo waitroom serve",
        ),
        reload="sudo nginx -t && sudo nginx -s reload",
        has_units=False,
    ),
}


def find_platform() -> str:
    """Return the name of this machine's platform. Detect systemd as sd_booted(3) does, and Debian
    or Ubuntu by /etc/debian_version."""
    if not Path("/run/systemd/system").is_dir():
        return "plain"
    return "debian" if Path("/etc/debian_version").exists() else "rhel"
