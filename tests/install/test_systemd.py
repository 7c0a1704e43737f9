"""The units: systemd takes them, and what they say agrees with the code and the pages.

No systemd runs here: systemd-analyze reads the files, and what they start is started by hand.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.cli.serve import run_jobs
from sidecar.http.listeners import DRAIN_S
from sidecar.settings.load import load
from sidecar.settings.model import Settings
from sidecar.settings.values import ENV_PREFIX, read_values
from sidecar.visitors.verdict_lifetime import RESPONSE_MS
from tests.install.compose import BIN, ROOT, port_of
from tests.support.processes import Process, free_port, wait_until
from tests.support.site import make_folder

UNITS = ROOT / "deploy" / "systemd"
PAGE = (ROOT / "docs" / "install.md").read_text()
PROGRAM = "/opt/waitroom/venv/bin/waitroom"
RUNNER = "waitroom-jobs.service"


def unit(name: str = "waitroom@.service", instance: str = "1") -> list[tuple[str, str]]:
    """Return a unit's directives and values in order, with the specifiers replaced."""
    text = (UNITS / name).read_text()
    text = text.replace("%i", instance).replace("%d", "/run/credentials")
    return re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)


def value(name: str, *, of: str = "waitroom@.service") -> str:
    (found,) = [value for directive, value in unit(of) if directive == name]
    return found


def seconds(name: str, *, of: str = "waitroom@.service") -> float:
    return float(value(name, of=of).removesuffix("s"))


def environment(instance: str = "1") -> dict[str, str]:
    pairs = [value for name, value in unit(instance=instance) if name == "Environment"]
    return dict(pair.split("=", 1) for pair in pairs)


def credentials() -> dict[str, str]:
    """Return the file of each credential by name."""
    return dict(value.split(":", 1) for name, value in unit() if name == "LoadCredential")


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def settings(tmp_path):
    """Return a function that loads an instance's settings, from the page's file and the unit."""
    (toml,) = re.findall(r"<<'END'\n(.*?)^ *END$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "waitroom.toml").write_text(toml)
    for name in credentials():
        (tmp_path / name).write_text("0123456789abcdef" * 4)

    def settings(instance: str) -> Settings:
        environ = {
            name: text.replace("/run/credentials", str(tmp_path))
            for name, text in environment(instance).items()
        }
        return load(str(tmp_path / "waitroom.toml"), environ)

    return settings


@pytest.fixture
def units(tmp_path):
    """Copy the units, and replace their program by the one of this environment."""
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    for file in (folder / "waitroom@.service", folder / RUNNER):
        text = file.read_text()
        assert set(re.findall(r"^Exec\w+=\+?(\S+)", text, re.MULTILINE)) <= {PROGRAM, "/bin/sh"}
        file.write_text(text.replace(PROGRAM, str(BIN / "waitroom")))
    shutil.copy(folder / "waitroom@.service", folder / "waitroom@1.service")
    return folder


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    binary = shutil.which("systemd-analyze")
    if binary is None:
        pytest.fail("systemd-analyze is not installed; run make test, or install systemd")
    return subprocess.run(
        [binary, *map(str, words)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.full
def test_systemd_takes_the_units(units):
    """`systemd-analyze verify` has nothing to say of the services and of the target."""
    files = [units / "waitroom@1.service", units / "waitroom.target", units / RUNNER]
    done = analyze("verify", "--man=no", *files)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    # I expect it to find a directive that there is not.
    files[0].write_text(files[0].read_text() + "\n[Service]\nProtectAll=yes\n")
    assert "ProtectAll" in analyze("verify", "--man=no", *files).stderr


@pytest.mark.full
@pytest.mark.parametrize("name", ["waitroom@1.service", RUNNER])
def test_a_service_is_exposed_to_little(units, name):
    """`systemd-analyze security` gives at most 2 of 10 points, and nearly 10 to a bare unit."""
    file = units / name
    words = ["security", "--offline=true", "--threshold=20"]
    done = analyze(*words, file)
    assert done.returncode == 0, done.stdout
    file.write_text(f"[Service]\nExecStart={BIN / 'waitroom'} serve\n")
    assert analyze(*words, file).returncode != 0


def test_the_units_variables_are_settings(settings):
    """Each WAITROOM_ variable names a setting, and each instance has addresses of its own."""
    first, second = settings("1"), settings("2")
    assert first.admin_token
    assert first.edge_listen != second.edge_listen
    # The commands ask the first by default, and nobody else listens where the edge would.
    assert first.ops_listen == Settings.model_fields["ops_listen"].default
    assert port_of(second.ops_listen) == port_of(first.ops_listen) + 1
    for name in environment():
        if name.startswith(ENV_PREFIX):
            setting = name.removeprefix(ENV_PREFIX).lower().removesuffix("_file")
            assert setting in Settings.model_fields, name


def test_sockets_are_in_a_folder_that_stays(settings):
    """The folder is systemd's to make, and does not go when one of the replicas stops."""
    folder = Path(settings("1").edge_listen.removeprefix("unix:")).parent
    assert str(folder) == f"/run/{value('RuntimeDirectory')}"
    assert value("RuntimeDirectoryPreserve") == "yes"
    # Its group enters, others do not.
    assert value("RuntimeDirectoryMode") == "0750"
    assert f"unix:{folder}/edge-1.sock" in PAGE
    assert f"unix:{folder}/edge-2.sock" in PAGE


def test_secrets_are_handed_on():
    """Each secret is a file of root's that systemd hands on and a variable names."""
    files = credentials()
    assert set(files) == {"secret_keys", "admin_token"}
    for name, file in files.items():
        assert environment()[f"WAITROOM_{name.upper()}_FILE"] == f"/run/credentials/{name}"
        assert Path(file).parent == Path("/etc/waitroom/secrets")
    assert "install -d -m 700 /etc/waitroom/secrets" in PAGE


@pytest.mark.full
@pytest.mark.parametrize("name", ["waitroom@", "waitroom-jobs"])
def test_a_password_of_redis_is_handed_on(units, tmp_path, name):
    """What init writes beside a unit is a drop-in that systemd takes, and the store it loads."""
    store = "redis://:pass@127.0.0.1:1/0"
    words = ["--site", "a.example", "--users", "1", "--redis", store, "--into", str(tmp_path)]
    done = CliRunner().invoke(main, ["init", "--system", "debian", *words])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "etc/systemd/system" / f"{name}.service.d"
    shutil.copytree(folder, units / f"{name.replace('@', '@1')}.service.d")
    done = analyze("verify", "--man=no", units / f"{name.replace('@', '@1')}.service")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    text = (folder / "store.conf").read_text()
    (file,) = re.findall(r"^LoadCredential=store:/(.*)$", text, re.MULTILINE)
    (variable,) = re.findall(r"^Environment=(\w+)=%d/store$", text, re.MULTILINE)
    values, problems = read_values(None, {variable: str(tmp_path / file)}, Settings)
    assert (values["store"], problems) == (store, [])


def test_times_agree(settings):
    """The watchdog is slower than nginx, and a stop that goes its way is not cut off."""
    patience = re.search(
        r"proxy_read_timeout (\d+)s;", (ROOT / "nginx/waitroom/proxy.conf").read_text()
    )
    assert patience
    assert int(patience[1]) * 1000 == RESPONSE_MS
    assert seconds("WatchdogSec") > 2 * int(patience[1])
    assert seconds("TimeoutStopSec") > settings("1").shutdown_delay + 2 * DRAIN_S


def test_a_runner_agrees_with_the_replicas(tmp_path):
    """It is closed to as much, has the same settings, no token, and the time to end its calls."""
    closed = [unit(name)[-30:] for name in ("waitroom@.service", RUNNER)]
    assert closed[0] == closed[1]
    assert ("NoNewPrivileges", "yes") in closed[0]
    for name in ("User", "Group", "UMask", "StateDirectory", "Restart", "WantedBy", "PartOf"):
        assert value(name, of=RUNNER) == value(name)
    command = value("ExecStart", of=RUNNER)
    assert command == value("ExecStart").replace(" serve ", " run-jobs ")
    (grace,) = [option.default for option in run_jobs.params if option.name == "grace"]
    assert seconds("TimeoutStopSec", of=RUNNER) > grace + DRAIN_S
    directives = unit(RUNNER)
    handed = [value for name, value in directives if name == "LoadCredential"]
    assert handed == [f"secret_keys:{credentials()['secret_keys']}"]
    # With what it is handed, and the page's target, it has all that it needs.
    (tmp_path / "secret_keys").write_text("0123456789abcdef" * 4)
    (toml,) = re.findall(r"```toml\n(jobs = .*?)```", PAGE, re.DOTALL)
    (tmp_path / "waitroom.toml").write_text(toml)
    environ = dict(value.split("=", 1) for name, value in directives if name == "Environment")
    environ = {
        name: text.replace("/run/credentials", str(tmp_path)) for name, text in environ.items()
    }
    settings = load(str(tmp_path / "waitroom.toml"), environ)
    assert settings.targets
    assert settings.jobs_database.startswith(f"sqlite:////var/lib/{value('StateDirectory')}/")


def test_the_command_finds_settings_and_secrets(tmp_path):
    """deploy/systemd/waitroom runs the command with what the page has put below /etc."""
    etc = tmp_path / "etc"
    (etc / "secrets").mkdir(parents=True)
    for name in ("secret_keys", "admin_token"):
        (etc / "secrets" / name).write_text("0123456789abcdef" * 4)
    (etc / "waitroom.toml").write_text("[rooms.shop]\ntotal_active_users = 1\n")
    text = (UNITS / "waitroom").read_text()
    assert os.access(UNITS / "waitroom", os.X_OK)
    assert set(re.findall(r"\S*/etc/waitroom/\S+", text)) == {
        f"WAITROOM_{name.upper()}_FILE={file}" for name, file in credentials().items()
    }
    script = tmp_path / "waitroom"
    script.write_text(
        text.replace("/etc/waitroom", str(etc)).replace(PROGRAM, str(BIN / "waitroom"))
    )
    done = subprocess.run(
        ["/bin/sh", script, "check-config"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "1 room(s), shop" in done.stdout) == (0, True), done.stderr


def test_the_page_installs_what_is_there():
    """Every file that docs/install.md copies is in the repository, under the names it uses."""
    copied = re.findall(r"(?<![/\w])(deploy/systemd/[\w@.-]+)", PAGE)
    assert {f"deploy/systemd/{file.name}" for file in UNITS.iterdir()} == set(copied)
    folders = {f"/etc/{name}" for name in ("waitroom", "nginx/waitroom")}
    folders |= {f"/run/{value('RuntimeDirectory')}", f"/var/lib/{value('StateDirectory')}"}
    for folder in (*folders, PROGRAM.removesuffix("/bin/waitroom")):
        assert f"`{folder}" in PAGE, folder
    # The user is one whom the page makes.
    sysusers = (UNITS / "waitroom.sysusers").read_text()
    assert re.search(rf"^u {value('User')} ", sysusers, re.MULTILINE)
    assert value("User") == value("Group") == "waitroom"


def test_what_the_unit_starts_serves(stack):
    """Its command, variables and umask make a replica whose socket the group may use."""
    folder = make_folder(stack)
    ops = f"127.0.0.1:{free_port()}"
    (folder / "run").mkdir()
    secret = "0123456789abcdef" * 4
    (folder / "secret_keys").write_text(secret)
    (folder / "admin_token").write_text(secret)
    (folder / "waitroom.toml").write_text("[rooms.shop]\ntotal_active_users = 1\n")
    places = {"/run/waitroom": f"{folder}/run", "/run/credentials": str(folder)}
    environ = {**os.environ, **environment(), "WAITROOM_OPS_LISTEN": ops}
    for place, here in places.items():
        environ = {name: text.replace(place, here) for name, text in environ.items()}
    command = shlex.split(value("ExecStart").replace("/etc/waitroom", str(folder)))
    command[0] = command[0].replace(PROGRAM, str(BIN / "waitroom"))
    umask = int(value("UMask"), 8)
    replica = stack.enter_context(Process(command, log=folder / "log", env=environ, umask=umask))
    edge = folder / "run" / "edge-1.sock"
    wait_until(lambda: edge.is_socket() or not replica.running, "the socket")
    assert replica.running, replica.output
    check, kill = (text for name, text in unit() if name == "ExecReload")
    check = check.removeprefix("+").replace("/etc/waitroom", str(folder))
    check = shlex.split(check.replace(PROGRAM, str(BIN / "waitroom")))
    plain = {"PATH": os.environ["PATH"]}  # no secret is readable there
    assert subprocess.run(check, env=plain, capture_output=True, check=False).returncode == 0
    subprocess.run(shlex.split(kill.replace("$MAINPID", str(replica.pid))), check=True)
    wait_until(lambda: '"event": "reloaded"' in replica.output, "the reload", of=replica)
    (folder / "waitroom.toml").write_text("[rooms.shop]\ntotal_active_users = -1\n")
    assert subprocess.run(check, env=plain, capture_output=True, check=False).returncode == 1
    wait_until(lambda: stat.S_IMODE(edge.stat().st_mode) == 0o660, "a socket for the group")
