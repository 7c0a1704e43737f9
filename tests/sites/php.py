"""PHP-FPM, and a WordPress of Debian's package on MariaDB."""

from __future__ import annotations

import os
import pwd
import shutil
import urllib.parse
import urllib.request
from pathlib import Path

from tests.support.databases import Mariadb
from tests.support.processes import Process, listens, wait_until
from tests.support.site import ROOT, Site, adapted, around

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


class WithFpm(Site):
    """The site is nginx itself, by a recipe's configuration, with files in `root` and PHP-FPM."""

    recipe: str
    root: Path

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
        process = self._run("fpm", [str(binaries[-1]), "-F", "-y", str(config)])
        wait_until(lambda: listens(self.fpm_socket), f"php-fpm: {process.output}")
        return process

    def _write_nginx(self) -> None:
        super()._write_nginx()
        shutil.copy("/etc/nginx/fastcgi.conf", self.folder)
        text = adapted(
            recipe(self.recipe),
            {
                "listen 80;": f"listen 127.0.0.1:{self.port};",
                "/var/www/html": str(self.root),
                "unix:/run/php/php-fpm.sock": f"unix:{self.fpm_socket}",
            },
        )
        includes = "include /etc/nginx/mime.types;\ninclude waitroom/http.conf;\n"
        (self.folder / "nginx.conf").write_text(around(self.folder, includes + text))


def recipe(page: str) -> str:
    """The page's first nginx block."""
    text = (ROOT / "docs" / "recipes" / page).read_text()
    return text.partition("```nginx\n")[2].partition("```")[0]


class WordPress(WithFpm):
    """A new WordPress, with permalinks of names."""

    recipe = "wordpress.md"

    def _start_gate(self) -> Process:
        self.root = self.folder / "wordpress"
        shutil.copytree(WORDPRESS, self.root, ignore=lambda *_: ["wp-config.php"])
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
