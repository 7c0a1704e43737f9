"""waitroom init --site-file: what a site's own nginx file lacks."""

import pytest

from sidecar.cli.setup.site_file import find_missing_lines

ROOM = ["set $waitroom_room shop;", "include waitroom/location.conf;"]
SERVER = ["include waitroom/server.conf;"]
STRICT = ["include waitroom/strict-path.conf;"]


def said(tmp_path, text):
    """(line, block, lines) of each step."""
    file = tmp_path / "site"
    file.write_text(text)
    return [(step.line, step.block, step.lines) for step in find_missing_lines(file, "shop")]


def test_a_site_that_is_passed_on(tmp_path):
    text = """server {
    server_name shop.example www.shop.example;
    location / {
        proxy_pass http://127.0.0.1:9000;
    }
    location = /health { proxy_pass http://127.0.0.1:9000; }
    location /static/ { alias /srv/static/; }
    location /media/ { proxy_pass http://127.0.0.1:9000; }
}
"""
    assert said(tmp_path, text) == [
        (1, "server (shop.example www.shop.example)", SERVER),
        (3, "location /", ROOM),
        (6, "location = /health", STRICT),
        (8, "location /media/", STRICT),
    ]


def test_a_front_controller_in_php(tmp_path):
    """As the packages of PHP-FPM suggest it: the room is in both."""
    text = """server {
    root /var/www/html;
    location / { try_files $uri $uri/ /index.php?$args; }
    location ~ \\.php$ {
        include snippets/fastcgi-php.conf;
        fastcgi_pass unix:/run/php/php-fpm.sock;
    }
    location ~ /\\.ht { deny all; }
    location ~* \\.(css|js|png)$ { expires 30d; add_header Cache-Control public; }
}
"""
    assert said(tmp_path, text) == [
        (1, "server", SERVER),
        (3, "location /", ROOM),
        (4, "location ~ \\.php$", ROOM),
    ]


@pytest.mark.parametrize(
    ("location", "lines"),
    [
        ("location / { uwsgi_pass 127.0.0.1:9; }", ROOM),
        ("location / { root /srv; }", ROOM),
        ("location / { try_files $uri @app; }", ROOM),
        ("location = /index.php { fastcgi_pass unix:/x; }", ROOM),
        (
            "location / { add_header A b; proxy_pass http://a; }",
            [*ROOM, "include waitroom/headers.conf;"],
        ),
        (
            "location / { error_page 404 /x; proxy_pass http://a; }",
            [*ROOM, "include waitroom/errors.conf;"],
        ),
        (
            "location / { include waitroom/location.conf; add_header A b; proxy_pass http://a; }",
            ["include waitroom/headers.conf;"],
        ),
    ],
)
def test_what_one_location_needs(tmp_path, location, lines):
    steps = said(tmp_path, f"server {{ include waitroom/server.conf; {location} }}")
    assert [step[2] for step in steps] == [lines]


def test_where_no_line_helps(tmp_path):
    text = """http {
server { location / { return 301 https://shop.example$request_uri; } }
server {
    include waitroom/server.conf;
    error_page 403 /no.html;
    location / { auth_request /login; proxy_pass http://a; }
}
}
"""
    file = tmp_path / "site"
    file.write_text(text)
    steps = find_missing_lines(file, "shop")
    assert [(step.line, step.lines) for step in steps] == [(2, []), (3, []), (6, []), (6, ROOM)]
    assert "no page" in steps[0].reason
    assert "above server.conf" in steps[1].reason
    assert "auth_request" in steps[2].reason


def test_nothing_is_missing(tmp_path):
    text = "server { include waitroom/server.conf; location / { include waitroom/location.conf; } }"
    assert said(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [("server { location / {", "unexpected end of file"), ("", "no server block"),
     ("location / { }", "no server block"), ("}", "unexpected")],
)  # fmt: skip
def test_what_is_no_sites_file(tmp_path, text, words):
    with pytest.raises(ValueError, match=words):
        said(tmp_path, text)
