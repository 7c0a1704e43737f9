"""The loader of the Lua scripts, and the rules that every script keeps."""

import re
from itertools import pairwise

import pytest

from sidecar.jobs.redis_keys import TARGET_KEYS
from sidecar.rooms.redis_keys import ROOM_KEYS
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.lua_source import LUA_ROOT, IncludeError, source
from tests.storage.products import open_room

ALL = sorted(LUA_ROOT.rglob("*.lua"))
ROOM_SCRIPTS = sorted((LUA_ROOT / "rooms" / "lua").glob("*.lua"))
LIMIT_SCRIPTS = sorted((LUA_ROOT / "limits" / "lua").glob("*.lua"))
JOB_SCRIPTS = sorted((LUA_ROOT / "jobs" / "lua").glob("*.lua"))
#: Redis commands that scripts may call. All are in Redis 6.2.
COMMANDS = {
    "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HSET",
    "HSETNX", "LINDEX", "LPUSH", "LRANGE", "LREM", "LTRIM", "PEXPIRE", "PTTL", "SET", "TIME",
    "UNLINK", "XADD", "XLEN", "XRANGE", "ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZPOPMIN", "ZRANGE",
    "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANK", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE",
    "ZSCORE",
}  # fmt: skip
#: Further commands of 6.2 that only scripts of jobs call.
MORE_COMMANDS = {"PUBLISH", "SADD", "SMISMEMBER", "SREM"}


def named(path):
    return path.relative_to(LUA_ROOT).as_posix()


@pytest.fixture
def lua(tmp_path):
    """Writes scripts by name and loads one."""

    def load(name, **files):
        for file, text in files.items():
            (tmp_path / f"{file}.lua").write_text(text, encoding="utf-8")
        return source(name, tmp_path)

    return load


# The loader -----------------------------------------------------------------------------------


def test_an_include_is_replaced_by_the_fragment(lua):
    """In its place, with the fragment's own includes."""
    text = lua(
        "main",
        main='first\n-- @include "one"\nlast\n',
        one='-- @include "two"\nlocal one\n',
        two="local two\n",
    )
    assert text == "first\nlocal two\nlocal one\nlast\n"


def test_a_fragment_is_taken_in_once(lua):
    """Where it is first asked for, however many ask."""
    text = lua(
        "main",
        main='-- @include "one"\n-- @include "two"\n-- @include "base"\n',
        one='-- @include "base"\nlocal one\n',
        two='-- @include "base"\nlocal two\n',
        base="local base\n",
    )
    assert text == "local base\nlocal one\nlocal two\n"


ONE, TWO = 'local one\n\n-- @include "two"\n', '-- @include "one"\n'


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"main": TWO, "one": ONE, "two": TWO}, r"two\.lua:1:14: one includes itself"),
        ({"main": 'local main\n-- @include "main"\n'}, r"main\.lua:2:14: main includes itself"),
        ({"main": TWO, "one": f"\n{ONE}"}, r"one\.lua:4:14: there is no two\.lua"),
    ],
    ids=["circle", "itself", "missing"],
)
def test_an_include_that_leads_nowhere_is_an_error_that_says_where(lua, files, error):
    """File, line and column of the include."""
    with pytest.raises(IncludeError, match=f"^{error}$"):
        lua("main", **files)


@pytest.mark.parametrize(
    "line", ["--@include one", "-- @include 'one'", '  -- @include "one"', '-- @include "One"']
)
def test_a_misspelt_include_is_an_error(lua, line):
    """Lua would take it for a comment, and miss the fragment only when it is called."""
    with pytest.raises(IncludeError, match=r"^main\.lua:2:\d+: write -- @include"):
        lua("main", main=f"local main\n{line}\n", one="local one\n")


def read_header(path):
    """Return the comment at the beginning of a script."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = next((i for i, line in enumerate(lines) if not line.startswith("-- ")), len(lines))
    return "\n".join(line for line in lines[:code] if "@include" not in line)


def find_calls(path):
    """Return pairs of the command and the first argument of each call of Redis in a script."""
    text = source(f"{path.parents[1].name}/{path.stem}")
    calls = re.findall(r"redis(?:_call|\.call)\(([^,)]+)(?:, ([^,)]+))?", text)
    found = [(command.strip("'"), key) for command, key in calls]
    return [(command, key) for command, key in found if command != "command"]  # a parameter


# Every script ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=named)
def test_a_script_says_what_it_is_for(path):
    """A comment comes before the first line of code."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 100
    comment = [line for line in lines if line.startswith("-- ") and "@include" not in line]
    assert comment
    assert all(line.startswith("-- ") for line in lines[: lines.index(comment[0])])


@pytest.mark.parametrize("path", ROOM_SCRIPTS, ids=named)
def test_a_rooms_script_documents_its_contract(path):
    """Its head says what it returns, what it takes beyond the common, and what it tells."""
    head, code = read_header(path), path.read_text(encoding="utf-8")
    assert "RETURNS" in head
    assert ("ARGV" in head) == ("ARGV[" in code or "#ARGV" in code)
    told = set(re.findall(r"\bevent\('(\w+)'", code))
    for fragment, events in (("call_next", {"called", "expired"}), ("expire", {"expired"})):
        if f'@include "rooms/parts/{fragment}"' in code:
            told |= events
    documented = re.search(r"EVENTS  ([\w, ]+)", head)
    assert told <= set(documented[1].split(", ") if documented else [])


@pytest.mark.parametrize(
    ("head", "keys"),
    [("rooms/lua/parts/room.lua", ROOM_KEYS), ("jobs/lua/parts/head.lua", TARGET_KEYS)],
)
def test_the_keys_are_those_that_the_scripts_expect(head, keys):
    """redis_keys.py and the head of the common fragment name them in the same order."""
    text = (LUA_ROOT / head).read_text(encoding="utf-8")
    listed = text[text.index("KEYS ") : text.index("ARGV")]
    assert tuple(re.findall(r"\d ([a-z]+)", listed)) == keys


@pytest.mark.parametrize("path", [*ROOM_SCRIPTS, *JOB_SCRIPTS], ids=named)
def test_a_script_touches_nothing_but_its_keys(path):
    """So that it runs in a cluster, where other keys may live elsewhere; and on Redis 6.2."""
    is_job = path in JOB_SCRIPTS
    calls = find_calls(path)
    assert {command for command, _ in calls} <= COMMANDS | (MORE_COMMANDS if is_job else set())
    # `key` and `state` are parameters that are given one of them.
    keys = {name.upper() for name in (TARGET_KEYS if is_job else ROOM_KEYS)} | {"key"}
    keys |= {"state"} if is_job else set()
    for command, key in calls:
        assert key in keys or key.startswith("KEYS[") or command in {"TIME", "PUBLISH"}


@pytest.mark.parametrize("path", [*LIMIT_SCRIPTS, *JOB_SCRIPTS], ids=named)
def test_a_script_documents_its_contract(path):
    """Its head says what it is given and returns, or which part of it does."""
    assert re.search(r"KEYS.*ARGV.*RETURNS", read_header(path), re.DOTALL)


@pytest.mark.parametrize("path", LIMIT_SCRIPTS, ids=named)
def test_a_limits_script_touches_nothing_but_its_keys(path):
    """Names for them, each made of KEYS; and commands of Redis 6.2."""
    text, calls = source(f"limits/{path.stem}"), find_calls(path)
    assert {command for command, _ in calls} <= COMMANDS
    keys = {key for command, key in calls if command != "TIME"} - {"key"}  # a parameter
    given = set()
    for names, values in re.findall(r"(?:local )?(\w+(?:, \w+)*) = (.*KEYS.*)", text):
        if values.count("KEYS[") == names.count(",") + 1:
            given.update(names.split(", "))
    assert keys <= given
    assert keys


async def test_time_is_the_stores(redis_socket):
    """A replica's clock counts for nothing: the script asks the store, and grows with it."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    store, before = open_room(redis), await redis.time()
    times = [(await store.enter("somebody")).now_ms for _ in range(3)]
    first, last = (s * 1000 + us // 1000 for s, us in (before, await redis.time()))
    assert all(earlier <= later for earlier, later in pairwise([first, *times, last]))
    await close(redis)
