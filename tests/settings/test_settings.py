"""Settings: what is right is read, and what is wrong is named, all of it at once."""

import itertools
import re

import pytest
from pydantic import ValidationError

from sidecar.jobs.settings import TargetSettings
from sidecar.kit.setting_types import describe_problems, read_servers
from sidecar.leases.settings import LeaseSettings
from sidecar.limits.settings import LimitSettings
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load
from sidecar.settings.model import DEMO_SECRET, Settings
from sidecar.webhooks.settings import Webhook
from tests.settings.problems import GOOD, SECRET, problems, room_problems

# Where settings come from.


def test_variables_alone_are_enough():
    """With a secret and a room in the environment no file is needed; the rest has defaults."""
    settings = load(None, GOOD)
    assert settings.secret_keys == [SECRET]
    assert settings.rooms == {"shop": RoomSettings(total_active_users=5)}
    assert settings.store == "memory://"
    assert "store: is not set, so all state is in this process alone" in settings.warnings[0]


def test_a_variable_overrides_the_file(write):
    """A variable replaces one setting and leaves its neighbours, at every depth."""
    path = write(
        f'log_level = "error"\nlog_format = "console"\nsecret_keys = ["{SECRET}"]\n'
        "[rooms.shop]\ntotal_active_users = 3\nmax_waiting = 9"
    )
    environ = {"WAITROOM_LOG_LEVEL": "debug", "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "4"}
    settings = load(path, environ)
    assert (settings.log_level, settings.log_format) == ("debug", "console")
    shop = settings.rooms["shop"]
    assert (shop.total_active_users, shop.max_waiting) == (4, 9)


def test_every_type_can_be_a_variable():
    """Text from the environment becomes a number, a switch, a duration, a word, a code."""
    room = {
        "SUSPENDED": "true", "QUEUE_ALL": "0", "SESSION_DURATION": "1.5h", "POLL_LIMIT": "7",
        "QUEUEING_METHOD": "random", "QUEUEING_STATUS_CODE": "429", "MESSAGE": "7",
    }  # fmt: skip
    environ = {**GOOD, **{f"WAITROOM_ROOMS__SHOP__{name}": text for name, text in room.items()}}
    shop = load(None, {**environ, "WAITROOM_DEMO": "yes"}).rooms["shop"]
    assert shop == RoomSettings(
        total_active_users=5, suspended=True, queue_all=False, session_duration=5400,
        poll_limit=7, queueing_method="random", queueing_status_code=429, message="7",
    )  # fmt: skip


@pytest.mark.parametrize("between", [",", ", ", "\n", "\r\n", ",\n", "\n\n"])
def test_several_keys_in_one_text(folder, between):
    """Commas and line ends both stand between keys, and the order stays. A file's keys override
    those of a plain variable."""
    (folder / "keys").write_text("a" * 32 + between + "b" * 32 + "\n")
    settings = load(None, {**GOOD, "WAITROOM_SECRET_KEYS_FILE": str(folder / "keys")})
    assert settings.secret_keys == ["a" * 32, "b" * 32]


# What is wrong is named.


def test_every_problem_is_reported_at_once(write):
    """Wrong types, unknown names, rules between fields, secrets, variables: all in one go."""
    path = write(
        """
        store = "http://redis"
        log_level = "loud"
        colour = "red"
        edge_listen = "8400"
        admin_token = "short"
        secret_keys = ["short"]
        store_timeout = 0
        [rooms.shop]
        total_active_users = -1
        heartbeat_timeout = 20
        heartbeat_interval = 11
        sesion_duration = 5
        [rooms."Two Words"]
        queueing_status_code = 500
        """
    )
    found = problems(path, WAITROOM_STATIC_DIR_FILE="/nowhere", WAITROOM_ROOMS__SHOP__SUSPENDED="?")
    # I expect each of them named, once.
    assert sorted(line.partition(":")[0] for line in found) == [
        "WAITROOM_STATIC_DIR_FILE", "admin_token", "colour", "edge_listen", "log_level",
        "rooms.Two Words", "rooms.Two Words.queueing_status_code",
        "rooms.Two Words.total_active_users", "rooms.shop.claim_window",
        "rooms.shop.heartbeat_interval", "rooms.shop.sesion_duration", "rooms.shop.suspended",
        "rooms.shop.total_active_users", "secret_keys", "store", "store_timeout",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("log_format", "xml", "'json' or 'console'"),
        ("edge_listen", "here", "127.0.0.1:8400"),
        ("store", "http://x", "redis+sentinel://, redis+cluster:// or memory://"),
        ("store", "redis+sentinel://", "server 1 has no host"),
        ("store", "redis+cluster://:pw@a,:6379", "server 2 has no host"),
        ("store", "redis+sentinel://a:26379,b:x/main", "server 2 cannot be read: a port is a"),
        ("store", "rediss+cluster://a,b:70000", "server 2 cannot be read: a port is a number"),
        ("store", "redis+cluster://a:0", "server 1 cannot be read"),
        ("store", "redis+sentinel://:p/w@a", "in a password / is written %2F"),
        ("store", "redis+cluster://a,b/0", "a cluster has no databases"),
        ("store", "redis+sentinel://a/0", "/SERVICE/DATABASE"),
        ("store", "redis+sentinel://a/main/x", "the database is a number"),
        ("store", "redis+sentinel://a/main/0/1", "and no more"),
        ("store_timeout", "0", "must be greater than 0"),
        ("shutdown_delay", "301", "must be at most 300 (got"),
        ("demo", "perhaps", "must be true or false (got"),
        ("rooms__shop__queueing_method", "lifo", "'fifo', 'random', 'passthrough' or 'reject'"),
        ("rooms__shop__queueing_status_code", "500", "200, 202, 429 or 503"),
        ("rooms__shop__total_active_users", "many", "must be a whole number (got"),
        ("rooms__shop__total_active_users", "10000001", "must be at most 10000000 (got"),
        ("rooms__shop__session_duration", "soon", '"30s", "5m", "2h"'),
        ("rooms__shop__session_duration", "4", "must be at least 5 (got"),
        ("rooms__shop__message", "m" * 501, "must have at most 500 characters"),
    ],
)
def test_a_problem_names_the_setting_and_what_is_allowed(name, value, allowed):
    """One wrong value is one line: the setting's name, what it may be, what it was."""
    (line,) = problems(**{**GOOD, f"WAITROOM_{name.upper()}": value})
    assert line.startswith(name.replace("__", ".") + ": ")
    assert allowed in line
    assert value[:100] in line or name == "store"


@pytest.mark.parametrize(
    "model", [Settings, RoomSettings, LeaseSettings, LimitSettings, TargetSettings, Webhook]
)
def test_no_problem_has_the_validators_own_words(model):
    """Every setting with values of every kind: a problem says what the value must be."""
    tables = {"x": 3}, {"x": {}}, {"x": {"x": 3}}, {"x": {"x": {}}}
    lists = [], [[]], [{}], [3], [{"name": 3}]
    others = "?", "", "m" * 10_000, True, None, -1, 1.5, 10**12, float("nan")
    lines = []
    for name, value in itertools.product(model.model_fields, [*tables, *lists, *others]):
        try:
            model.model_validate({name: value})
        except ValidationError as error:
            lines += describe_problems(error, model)
    assert len(lines) > 50
    assert [line for line in lines if re.search("Input|should|valid |pydantic|pathlib", line)] == []


@pytest.mark.parametrize(
    ("url", "servers", "path"),
    [
        ("redis+sentinel://a", [("a", 26379)], []),
        ("redis+sentinel://u:p%2Fw@a:1,b,[::1]:3/main/2?sentinel_username=x",
         [("a", 1), ("b", 26379), ("::1", 3)], ["main", "2"]),
        ("rediss+cluster://:p@ss@a.b-c,10.0.0.1:7/", [("a.b-c", 6379), ("10.0.0.1", 7)], []),
    ],
)  # fmt: skip
def test_a_store_of_several_servers(url, servers, path):
    """Each with a port of its own, or the usual one; a service and a database, or none."""
    assert read_servers(url) == (servers, path)
    assert load(None, {**GOOD, "WAITROOM_STORE": url}).store == url


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("WAITROOM_PORT", "WAITROOM_PORT: unknown setting"),
        ("WAITROOM_STORE__URL", "WAITROOM_STORE__URL: store is not a table"),
        ("WAITROOM_ROOMS__SHOP__MESSAGE__DE", "WAITROOM_ROOMS__SHOP__MESSAGE__DE: message is not"),
        ("WAITROOM_ROOMS__SHOP__COLOUR", "WAITROOM_ROOMS__SHOP__COLOUR: unknown setting"),
        ("WAITROOM_", "WAITROOM_: names no setting"),
        ("WAITROOM___STORE", "WAITROOM___STORE: names no setting"),
        ("WAITROOM_ROOMS__SHOP__", "WAITROOM_ROOMS__SHOP__: names no setting"),
    ],
)
def test_a_variable_that_leads_nowhere_is_a_problem(variable, line):
    """Unknown settings, ways through what is no table, and empty names are told apart."""
    plain = {"WAITROOM_STORE": "memory://", "WAITROOM_ROOMS__SHOP__MESSAGE": "hello"}
    (found,) = problems(**GOOD, **plain, **{variable: "x"})
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("WAITROOM_STROE", "did you mean WAITROOM_STORE?"),
        ("WAITROOM_SECRET_KEY", "did you mean WAITROOM_SECRET_KEYS?"),
        ("WAITROOM_SECRET_KEY_FILE", "did you mean WAITROOM_SECRET_KEYS_FILE?"),
        ("WAITROOM_TOKEM", "did you mean WAITROOM_TOKEN?"),
        ("WAITROOM_ROOM__SHOP__MESSAGE", "did you mean WAITROOM_ROOMS__SHOP__MESSAGE?"),
        ("WAITROOM_ROOMS__SHOP__MESAGE", "did you mean WAITROOM_ROOMS__SHOP__MESSAGE?"),
        ("WAITROOM_LEASES__SEAT__TERN", "did you mean WAITROOM_LEASES__SEAT__TERM?"),
        ("WAITROOM_ROOMS_SHOP_MESSAGE", "two underscores go a level down: WAITROOM_ROOMS__SHOP__"),
    ],
)
def test_a_variable_that_was_mistyped_is_named_in_full(variable, meant):
    """With the one that was meant; nothing is read from a file that it names."""
    (found,) = problems(**GOOD, **{variable: "/nowhere"})
    assert found.startswith(f"{variable}: unknown setting; {meant}")


def test_a_setting_that_was_mistyped_has_a_suggestion(write):
    """At every depth, and none where nothing is like it."""
    path = write(
        'stroe = "memory://"\nqueue = 1\n[rooms.shop]\ntotal_active_user = 5\n'
        'total_active_users = 5\nevents = [{ name = "x", opens_at = 1, closes = 2 }]\n'
        "[limits.pay]\nalgoritm = 1\nalgorithm = 'concurrency'\nlimit = 1\n"
    )
    found = {line.partition(":")[0]: line for line in problems(path, WAITROOM_SECRET_KEYS=SECRET)}
    none = "unknown setting"
    assert found == {
        "stroe": f"stroe: {none}; did you mean store?",
        "queue": f"queue: {none}",
        "rooms.shop.total_active_user":
            f"rooms.shop.total_active_user: {none}; did you mean total_active_users?",
        "rooms.shop.events.0.closes":
            f"rooms.shop.events.0.closes: {none}; did you mean closes_at?",
        "limits.pay.algoritm": f"limits.pay.algoritm: {none}; did you mean algorithm?",
    }  # fmt: skip
    assert room_problems(mesage="x") == [f"mesage: {none}; did you mean message?"]


def test_a_room_that_is_no_table_is_a_problem(write):
    """A room, or all of them, written as a value is named, and the variable that goes in too."""
    assert problems(write("rooms = 3"), **GOOD) == [
        "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS: rooms is not a table",
        "rooms: must be a table (got 3)",
    ]
    (line,) = problems(write("[rooms]\nshop = 3"), WAITROOM_SECRET_KEYS=SECRET)
    assert line.startswith("rooms.shop: ")


def test_a_file_that_cannot_be_used_is_a_problem(folder, write):
    """A file that is missing, a folder, no TOML or no text is named; it is not passed over."""
    assert problems("gone.toml", **GOOD) == ["gone.toml: cannot be read: No such file or directory"]
    assert problems(str(folder), **GOOD)[0].endswith("cannot be read: Is a directory")
    assert "not valid TOML" in problems(write("store = "), **GOOD)[0]
    (folder / "latin.toml").write_bytes(b'[rooms.shop]\nmessage = "\xe9"')
    assert "not valid TOML" in problems("latin.toml", **GOOD)[0]


def test_a_secrets_file_that_cannot_be_read_is_a_problem(folder):
    """A missing or binary file of a variable is named by the variable."""
    (folder / "binary").write_bytes(b"\xff\xfe")
    for file in ("gone", "binary"):
        found = problems(**GOOD, WAITROOM_ADMIN_TOKEN_FILE=file)
        assert len(found) == 1
        assert found[0].startswith(f"WAITROOM_ADMIN_TOKEN_FILE: {file} cannot be read")


# Secrets.


def test_a_secret_is_needed(folder):
    """No key, an empty one, an empty file: refused."""
    (folder / "empty").write_text("\n")
    room = {"WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "5"}
    for environ in (
        {},
        {"WAITROOM_SECRET_KEYS": ""},
        {"WAITROOM_SECRET_KEYS": " , "},
        {"WAITROOM_SECRET_KEYS_FILE": "empty"},
        # The demo makes no exception: it brings its own.
        {"WAITROOM_DEMO": "1"},
    ):
        (line,) = problems(**room, **environ)
        assert line.startswith('secret_keys: at least one is needed; make one with "openssl rand ')


def test_the_demos_secret_is_refused_outside_the_demo():
    """The secret that everybody knows passes with demo = true alone, wherever it stands."""
    for keys in (DEMO_SECRET, f"{DEMO_SECRET},{SECRET}", f"{SECRET},{DEMO_SECRET}"):
        environ = {**GOOD, "WAITROOM_SECRET_KEYS": keys}
        assert problems(**environ) == ["secret_keys: the demo's secret is known to everybody"]
        assert DEMO_SECRET in load(None, {**environ, "WAITROOM_DEMO": "true"}).secret_keys


def test_short_secrets_are_refused():
    """Each key has at least 32 characters. A token has at least 16, or is empty."""
    assert problems(**{**GOOD, "WAITROOM_SECRET_KEYS": f"{SECRET},{'s' * 31}"}) == [
        "secret_keys: a key has fewer than 32 characters"
    ]
    for name in ("admin_token", "service_token"):
        variable = f"WAITROOM_{name.upper()}"
        assert problems(**GOOD, **{variable: "t" * 15}) == [f"{name}: fewer than 16 characters"]
        for token in ("", "t" * 16):
            assert getattr(load(None, {**GOOD, variable: token}), name) == token


def test_problems_tell_no_secret(write):
    """Keys, tokens and the store's password are never repeated in a problem."""
    path = write(
        'secret_keys = ["qqqq"]\nadmin_token = "qqqq"\nstore = "redis://:qqqq/qqqq@redis:6379/0"'
    )
    text = "\n".join(problems(path))
    assert all(f"{name}:" in text for name in ("secret_keys", "admin_token", "store"))
    assert "qqqq" not in text
    path = write('secret_keys = [7777]\nadmin_token = 7777\nstore = "7777"')
    assert "7777" not in "\n".join(problems(path))


# What is probably not meant.


def warnings_of(write, lines):
    path = write(f'secret_keys = ["{SECRET}"]\nstore = "redis://127.0.0.1/"\n{lines}\n')
    return load(path, {}).warnings


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("{biz}:{channel}", ["refund:wx", "a%2Fb:@+,.-_~"],
         ["refund", "refund:", "a/b:c", "a:b:c"]),
        ("pay.{biz}", ["pay.a"], ["pay_a", "a"]),
        ("{a}-{a}", ["x-x", "x-y-x-y"], ["x-y"]),
        ("all", ["all"], ["al"]),
        # Nginx gives the keys.
        ("", ["", "203.0.113.7", "a/b"], []),
    ],
)  # fmt: skip
def test_values_of_keys_that_no_fields_can_make(write, pattern, good, bad):
    """One warning for each, which says what such keys are."""
    values = ", ".join(f'"{key}" = 1' for key in [*good, *bad])
    said = warnings_of(
        write,
        f'[limits.pay]\nalgorithm = "concurrency"\nlimit = 1\nkey = "{pattern}"\n'
        f"values = {{ {values} }}",
    )
    begin = "limits.pay.values: no call that names its fields has the key"
    assert [line.partition(": such keys are ")[0] for line in said] == [
        f"{begin} {key!r}" for key in bad
    ]


@pytest.mark.parametrize(
    ("adaptive", "more", "words"),
    [
        ("p90 = 1.2", 'health_listen = "127.0.0.1:8403"', []),
        ('p90 = 0.02\nmin = 50\nmode = "off"', "", []),
        ("p90 = 1.2", "", [": health_listen is not set, so this has no effect"]),
        (
            "p90 = 0.02\nmin = 50",
            'health_listen = "127.0.0.1:8403"',
            [".min: 50 leaves nothing to find below total_active_users = 50", ".p90: few sites"],
        ),
    ],
)
def test_targets_of_an_adaptive_room_that_make_no_sense(write, adaptive, more, words):
    room = f"[rooms.shop]\ntotal_active_users = 50\n[rooms.shop.adaptive]\n{adaptive}"
    said = warnings_of(write, f"{more}\n{room}")
    assert [
        line.startswith(f"rooms.shop.adaptive{start}")
        for line, start in zip(said, words, strict=True)
    ] == [True] * len(words), said


def test_settings_that_need_reports_of_nginx_are_named(write):
    """Without an address for the reports, they have no effect."""
    used = 'release_by_header = true\nmax_extension = "10m"\npause_on_error_share = 0.2\n'
    room = f"[rooms.shop]\ntotal_active_users = 50\n{used}"
    found = [line.partition(":")[0].rpartition(".")[2] for line in warnings_of(write, room)]
    assert found == ["pause_on_error_share", "max_extension", "release_by_header"]
    assert warnings_of(write, f'health_listen = "127.0.0.1:8403"\n{room}') == []


def test_a_key_that_no_call_can_have_is_an_error(write):
    """It has a space, or is too long."""
    path = write(
        '[limits.pay]\nalgorithm = "concurrency"\nkey = "{biz}"\n'
        f'values = {{ "a b" = 1, "{"x" * 257}" = 1, "fine" = 1 }}'
    )
    first, second = problems(path, **GOOD)
    assert first.startswith("limits.pay.values: 'a b' is a key of no call: at most 256 characters")
    assert second.startswith("limits.pay.values: 'xxx")


@pytest.mark.parametrize(
    ("url", "is_private"),
    [
        ("http://127.0.0.1:8080/", True), ("http://localhost/", True), ("http://10.1.2.3/a", True),
        ("http://[::1]/", True), ("http://[fd00::1]:80/", True), ("http://studio.localhost/", True),
        ("http://169.254.169.254/", True), ("https://images.example/", False),
        ("http://8.8.8.8/", False),
    ],
)  # fmt: skip
def test_a_target_at_a_private_address_without_private(write, url, is_private):
    """Each call would be refused; what a name leads to is not looked up."""
    said = warnings_of(write, f'[targets.images]\nurl = "{url}"')
    assert len(said) == is_private
    if said:
        assert said[0].startswith("targets.images.url: ")
        assert "private = true" in said[0]
    for more in ("private = true", 'kinds = ["online"]'):
        assert warnings_of(write, f'[targets.images]\nurl = "{url}"\n{more}') == []


def test_offline_jobs_with_a_store_in_memory():
    """No worker can share it."""
    targets = {
        "WAITROOM_TARGETS__IMAGES__URL": "https://images.example/",
        "WAITROOM_TARGETS__DOOR__KINDS": "online",
    }
    _, said = load(None, {**GOOD, **targets}).warnings
    assert said.startswith("targets: no worker can make the offline calls of images: ")
    shared = {**GOOD, **targets, "WAITROOM_STORE": "redis://127.0.0.1/"}
    assert load(None, shared).warnings == []
