"""waitroom page: the page for nginx, and its preview for people who design it."""

import json
import re

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.gate.page.preview import STATES, Preview
from sidecar.gate.page.render import Page
from sidecar.kit.share import find_share
from sidecar.rooms.settings import RoomSettings
from tests.support.site import ROOT

HOSTILE = "</script><script>alert(1)</script>"
CONFIG = f"""
store = "memory://"
secret_keys = ["{"k" * 40}"]
[rooms.sale]
total_active_users = 1
accent = "#e11d48"
message = "{HOSTILE}"
public_url = "https://shop.example"
logo = "/shop/logo.svg"
"""
TWO = CONFIG + "[rooms.other]\ntotal_active_users = 1\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command in a folder with these settings."""
    monkeypatch.chdir(tmp_path)

    def run(*words, config=CONFIG):
        (tmp_path / "waitroom.toml").write_text(config, encoding="utf-8")
        return CliRunner().invoke(main, ["page", *words])

    return run


@pytest.mark.parametrize("words", [[], ["nginx"], [str(ROOT / "static" / "waiting.html")]])
def test_the_page_for_nginx(run, words):
    """The command writes nginx's page to a file or to its output."""
    shipped = (ROOT / "nginx" / "waitroom" / "waiting.conf").read_text(encoding="utf-8")
    assert run(*words).stdout == shipped


def test_a_preview_is_a_folder_to_open(run, tmp_path):
    """A page for each state, which loads nothing but what lies beside it, and one with all."""
    made = run("preview", "sale")
    assert made.exit_code == 0
    files = ["index.html", *(f"{state}.html" for state in STATES)]
    assert made.stdout.splitlines() == [f"preview/{file}" for file in files]
    for state in STATES:
        text = (tmp_path / "preview" / f"{state}.html").read_text(encoding="utf-8")
        assert "--wr-accent:#e11d48" in text
        assert '<img src="https://shop.example/shop/logo.svg"' in text
        assert HOSTILE not in text
        for address in re.findall(r'<(?:link|script)[^>]+(?:href|src)="([^"?]*)', text):
            assert (tmp_path / "preview" / address).is_file()
        assert ("preview.js" in text) is (state != "no-script")


def test_settings_can_be_tried(run, tmp_path):
    """Some states, another language, settings that are in no file, another folder."""
    words = ["--state", "full", "--language", "ar", "--set", "accent=#123456", "--into", "a"]
    assert run("preview", *words).stdout.splitlines() == ["a/index.html", "a/full.html"]
    text = (tmp_path / "a" / "full.html").read_text(encoding="utf-8")
    assert '<html lang="ar" dir="rtl"' in text
    assert "--wr-accent:#123456" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop"], "there is no room 'shop'; these are: sale"),
        (["--state", "sad"], "there is no state 'sad'; these are: joining, waiting"),
        (["--language", "xx"], "there is no language 'xx'; these are: ar, de"),
        (["--set", "accent"], "write SETTING=VALUE"),
        (["--set", "accent=tael"], "accent: write a colour such as"),
        (["--set", "colour=teal"], "unknown setting"),
    ],
)
def test_what_is_wrong_is_named(run, words, said):
    made = run("preview", *words)
    assert made.exit_code != 0
    assert said in made.stderr
    missing = run("nowhere.html")
    assert (missing.exit_code, "nowhere.html" in missing.stderr) == (1, True)
    unnamed = run("preview", config=TWO)
    assert (unnamed.exit_code, "name a room: sale, other" in unnamed.stderr) == (2, True)


def test_files_of_the_site_are_found_there():
    """Those of the page itself lie beside it."""
    css = "a { b: url('/x/y.png') } c { d: url(/_waitroom/static/e.svg) }"
    settings = RoomSettings(
        total_active_users=1,
        font="/fonts/a.woff2",
        custom_css=css,
        footer=json.dumps([{"text": "Imprint", "address": "/imprint"}]),
    )
    page = Page(find_share("static"))
    text = Preview(page, "sale", settings, static="static/", site="https://s.example").html("full")
    for part in (
        'src:url("https://s.example/fonts/a.woff2")', "url('https://s.example/x/y.png')",
        "url(static/e.svg)", '"https://s.example/imprint"',
    ):  # fmt: skip
        assert part in text


def test_a_template_of_the_rooms_own(run, tmp_path):
    """A template is previewed in each state that shows it; a faulty one is refused."""
    (tmp_path / "templates").mkdir()
    file = tmp_path / "templates" / "own.html"
    file.write_text(
        "{{#is_full}}full{{/is_full}}{{#queueAll}}paused{{/queueAll}}{{position}} {{waitTime}}"
        " {{timeUntilEventStart}} {{heading}} {{message}} <img src=/_waitroom/static/logo.svg>"
        "<img src='/a.png'>"
    )
    config = CONFIG.replace("[rooms.sale]", '[rooms.sale]\ntemplate = "own.html"')
    assert run("preview", "sale", config=config).exit_code == 0
    text = {f.stem: f.read_text() for f in (tmp_path / "preview").glob("*.html")}
    end = " &lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; <img src=static/logo.svg>"
    end += "<img src='https://shop.example/a.png'>"
    assert text["waiting"] == f"38 13 0 You are in line{end}"
    assert text["next"].startswith("1 13 0 You are next")
    assert text["full"].startswith("full 0 0 ")
    assert text["paused"].startswith("paused38 13 0 ")
    assert text["prequeue"].startswith(" 0 13 ")
    assert "Opens " in text["opens"]
    assert all("data-room" in text[state] for state in ("called", "left", "lost", "error"))
    file.write_text("{{#a}}")
    refused = run("preview", "sale", config=config)
    assert (refused.exit_code, "own.html: line 1:" in refused.stderr) == (1, True)
