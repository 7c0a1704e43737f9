"""waitroom nginx-key."""

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.gate.nginx_key import build_key_file

KEYS = ["old-secret-" * 4, "new-secret-" * 4]


@pytest.fixture
def run(tmp_path, monkeypatch):
    config = tmp_path / "waitroom.toml"
    config.write_text(f'store = "redis://r/0"\nsecret_keys = {KEYS}\n[rooms.shop]\n'
                      "total_active_users = 1\n")  # fmt: skip
    (tmp_path / "nginx").mkdir()
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["nginx-key", *words])


def test_the_file_is_for_its_owner_alone(run, tmp_path):
    """Only the owner can read the key file, even where another file was readable by all."""
    target = tmp_path / "nginx" / "waitroom-stamp.conf"
    for _ in range(2):
        result = run(str(target))
        assert result.exit_code == 0, result.output
        assert "nginx -s reload" in result.output
        assert target.read_text() == build_key_file(KEYS)
        assert target.stat().st_mode & 0o777 == 0o600
        target.chmod(0o644)
    assert [each.name for each in target.parent.iterdir()] == ["waitroom-stamp.conf"]


def test_it_is_printed_for_containers(run):
    assert run("-").output == build_key_file(KEYS)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("nginx/key.conf", "beside nginx.conf, such as /etc/nginx/waitroom-stamp.conf"),
        ("none/waitroom-stamp.conf", "there is no folder none"),
    ],
)
def test_a_file_that_nginx_would_not_read(run, file, says):
    result = run(file)
    assert (result.exit_code, says in result.output) == (2, True)


@pytest.mark.parametrize(
    "line",
    [
        "secure_link $arg_md5,$arg_expires;",
        "  secure_link_secret word;",
        'if ($secure_link = "") {',
    ],
)
def test_an_nginx_that_signs_links_itself(run, tmp_path, line):
    """A configuration that uses secure_link is refused, unless --force is given."""
    site = tmp_path / "nginx" / "sites-enabled" / "shop"
    site.parent.mkdir()
    site.write_text(f"server {{\n{line}\n")
    target = tmp_path / "nginx" / "waitroom-stamp.conf"
    result = run(str(target))
    assert result.exit_code == 1
    assert f"{site} uses secure_link" in result.output
    assert not target.exists()
    assert run(str(target), "--force").exit_code == 0


def test_our_own_files_and_comments_are_no_such_use(run, tmp_path):
    nginx = tmp_path / "nginx"
    (nginx / "waitroom").mkdir()
    (nginx / "waitroom" / "stamp.conf").write_text("secure_link $waitroom_now;\n")
    (nginx / "nginx.conf").write_text("# secure_link off\n")
    assert run(str(nginx / "waitroom-stamp.conf")).exit_code == 0
