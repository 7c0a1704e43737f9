"""Sites with nginx configurations of docs/recipes: a PHP application, and Debian's WordPress."""

import os
import pwd
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.databases import Mariadb
from tests.support.processes import Process, listens, wait_until
from tests.support.site import ROOT, Site, build_nginx_config, replace_each

WORDPRESS = Path("/usr/share/wordpress")
PASSWORD = "a-password-of-the-shop"
FPM = """[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
user = {user}
group = {group}
listen = {socket}
listen.mode = 0666
pm = static
pm.max_children = 3
catch_workers_output = yes
php_admin_value[error_log] = {folder}/php.log
"""
CONFIG = """<?php
define('DB_NAME', 'history');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:{socket}');
define('WP_HOME', '{url}');
define('WP_SITEURL', '{url}');
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"""


class RecipeSite(Site):
    """A site whose nginx has the configuration of a page in docs/recipes."""

    recipe: str
    includes = "include waitroom/http.conf;\n"

    @property
    def block(self) -> str:
        """The first nginx block on the recipe's page."""
        text = (ROOT / "docs" / "recipes" / self.recipe).read_text()
        return text.partition("```nginx\n")[2].partition("```")[0]

    def changes(self) -> dict[str, str]:
        """Return what to replace in the recipe's nginx block: paths and sockets by those here."""
        raise NotImplementedError

    def _write_nginx(self) -> None:
        super()._write_nginx()
        changes = {"listen 80;": f"listen 127.0.0.1:{self.port};", **self.changes()}
        text = build_nginx_config(self.folder, self.includes + replace_each(self.block, changes))
        (self.folder / "nginx.conf").write_text(text)

    def release_all(self) -> None:
        """End all sessions of the room."""
        for session in self.admin("GET", "/rooms/shop/sessions")["sessions"]:
            self.admin("POST", f"/rooms/shop/visitors/{session['visitor']}/release")
        wait_until(lambda: self.room()["active"] == 0, "the end of all visits")


class WithFpm(RecipeSite):
    """A site whose nginx serves the files in `root`, and PHP scripts by PHP-FPM."""

    root: Path
    includes = "include /etc/nginx/mime.types;\ninclude waitroom/http.conf;\n"

    def _start_gate(self) -> Process:
        self.fpm = self._start_fpm()
        return super()._start_gate()

    def _start_fpm(self) -> Process:
        self.fpm_socket = self.folder / "fpm.sock"
        user = "www-data" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        group = pwd.getpwnam(user).pw_gid
        config = self.folder / "fpm.conf"
        config.write_text(FPM.format(
            folder=self.folder, socket=self.fpm_socket, user=user, group=group,
        ))  # fmt: skip
        binaries = sorted(Path("/usr/sbin").glob("php-fpm*"))
        assert binaries, "php-fpm is not installed; run make test-all"
        process = self.run("fpm", [str(binaries[-1]), "-F", "-y", str(config)])
        wait_until(lambda: listens(self.fpm_socket), f"php-fpm: {process.output}")
        return process

    def changes(self) -> dict[str, str]:
        shutil.copy("/etc/nginx/fastcgi.conf", self.folder)
        return {
            "/var/www/html": str(self.root),
            "unix:/run/php/php-fpm.sock": f"unix:{self.fpm_socket}",
            # Tests set a visitor's IP address by a header.
            "include waitroom/server.conf;": "include waitroom/server.conf; set_real_ip_from "
            "127.0.0.1; real_ip_header X-Forwarded-For;",
        }


class FrontController(WithFpm):
    """An application with one PHP script for all paths, as frameworks have, and one style sheet."""

    recipe = "php.md"

    def _start_gate(self) -> Process:
        self.root = self.folder / "public"
        self.root.mkdir()
        (self.root / "index.php").write_text(
            "<?php header('Content-Type: text/html');"
            " if (isset($_GET['say'])) header($_GET['say']);"
            " echo 'made by PHP: ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['PATH_INFO'] ?? '';"
        )
        (self.root / "site.css").write_text("body { color: black }")
        return super()._start_gate()


class AsGuidesHaveIt(FrontController):
    """A site with the nginx configuration that most guides to PHP show, as changed by `edit`."""

    GUIDE = """server {
    listen 80;
    server_name shop.example;
    root /var/www/html;
    index index.php;

    location / {
        try_files $uri $uri/ /index.php?$query_string;
    }
    location ~ \\.php$ {
        fastcgi_pass unix:/run/php/php-fpm.sock;
        include fastcgi.conf;
    }
    location ~* \\.(?:css|js|png)$ {
        expires 30d;
        add_header X-Kept yes;
    }
    location ~ /\\. {
        deny all;
    }
}
"""

    def __init__(self, edit: Callable[[str], str], **options: Any) -> None:
        super().__init__(**options)
        self._edit = edit

    @property
    def block(self) -> str:
        return self._edit(self.GUIDE)


class WordPress(WithFpm):
    """A newly installed WordPress, whose permalinks are by name."""

    recipe = "wordpress.md"

    def _start_gate(self) -> Process:
        self.root = self.folder / "wordpress"
        shutil.copytree(WORDPRESS, self.root, ignore=lambda *_: ["wp-config.php"])
        uploads = self.root / "wp-content" / "uploads"
        uploads.mkdir(exist_ok=True)
        uploads.chmod(0o777)  # for php-fpm's user
        database = self.folder / "database"
        database.mkdir()
        self._mariadb = Mariadb(database)
        self._stack.callback(self._mariadb.close)
        self._mariadb.start()
        (self.root / "wp-config.php").write_text(
            CONFIG.format(socket=database / "s.sock", url=self.url)
        )
        return super()._start_gate()

    def _start(self) -> None:
        super()._start()
        form = {
            "weblog_title": "The shop", "user_name": "admin", "admin_password": PASSWORD,
            "admin_password2": PASSWORD, "pw_weak": "on", "admin_email": "admin@shop.example",
            "blog_public": "0", "language": "",
        }  # fmt: skip
        url = f"{self.url}/wp-admin/install.php?step=2"
        with urllib.request.urlopen(url, urllib.parse.urlencode(form).encode(), 60) as reply:
            assert b"Success" in reply.read()
