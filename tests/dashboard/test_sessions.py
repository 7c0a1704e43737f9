"""Logging out of the dashboard holds at all replicas, and outlives what may fail in between."""

import secrets
import urllib.error
import urllib.parse
import urllib.request

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from sidecar.http.auth import ended_sessions as keys
from sidecar.http.auth.accounts import Account, Accounts
from sidecar.http.auth.ended_sessions import KEEP_EXPIRED_S, EndedSessions
from sidecar.http.auth.operators import COOKIE, LIFETIME_S, Operators
from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import close, connect
from tests.support.processes import wait_until
from tests.support.replica import KEYS
from tests.support.site import ADMIN_TOKEN, Site

NOW_S = 1_800_000_000


class Clock:
    def __init__(self) -> None:
        self.s = NOW_S

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def redis(redis_socket, monkeypatch):
    """With a key of this test's own."""
    monkeypatch.setattr(keys, "ENDED_SESSIONS", f"test:{secrets.token_hex(8)}")
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    yield redis
    await redis.delete(keys.ENDED_SESSIONS)
    await close(redis)


@pytest.fixture
def replica(redis, clock):
    """Makes one, which has heard from the store unless it is told otherwise."""

    async def make(*, has_heard: bool = True) -> Operators:
        ended = EndedSessions(redis, timeout_s=5, now_s=clock)
        operators = Operators(KEYS, ADMIN_TOKEN, ACCOUNTS, ended=ended, now_s=clock)
        if has_heard:
            await operators.share()
        return operators

    return make


ACCOUNTS = Accounts({"cleo": Account("viewer", "x"), "dora": Account("viewer", "x")})


class Away:
    """Redis is unavailable."""

    async def zrangebyscore(self, *_args, **_options):
        raise RedisConnectionError


async def test_a_log_out_is_known_to_all(replica):
    """To a replica that was there, and to one that starts later."""
    here, there = await replica(), await replica()
    cookie = here.log_in("Ann")
    other = here.log_in("Ben")
    assert there.read(cookie)
    here.log_out(here.read(cookie))
    await here.share()
    await there.share()
    later = await replica()
    for each in (here, there, later):
        assert each.read(cookie) is None
        assert each.read(other)


async def test_a_log_out_everywhere_is_known_to_all(replica, clock):
    """The later of two counts, in whatever order they reach the store; a log-in after it opens a
    session that all replicas know."""
    here, there = await replica(), await replica()
    cookies = [here.log_in_by_password("cleo"), there.log_in_by_password("cleo")]
    other = here.log_in_by_password("dora")
    here.log_out_everywhere("cleo")
    clock.s += 5
    cookies.append(there.log_in_by_password("cleo"))
    there.log_out_everywhere("cleo")
    await there.share()
    await here.share()
    await there.share()
    later = await replica()
    for each in (here, there, later):
        assert [each.read(cookie) for cookie in cookies] == [None] * 3
        assert each.read(other)
    again = here.log_in_by_password("cleo")
    assert all(each.read(again) for each in (here, there, later))


async def test_logging_out_everywhere_twice(replica):
    """Also ends what was opened in between, within the same second."""
    here, there = await replica(), await replica()
    here.log_out_everywhere("cleo")
    between = here.log_in_by_password("cleo")
    assert here.read(between)
    here.log_out_everywhere("cleo")
    await here.share()
    await there.share()
    assert here.read(between) is there.read(between) is None
    assert there.read(there.log_in_by_password("cleo"))


async def test_a_log_out_while_redis_is_unavailable(replica):
    """Holds here at once, and elsewhere when Redis answers again."""
    here, there = await replica(), await replica()
    cookie = here.log_in("Ann")
    store, here._ended_sessions._redis = here._ended_sessions._redis, Away()
    here.log_out(here.read(cookie))
    with pytest.raises(StoreError):
        await here.share()
    await there.share()
    assert here.read(cookie) is None
    assert there.read(cookie)
    here._ended_sessions._redis = store
    await here.share()
    await there.share()
    assert there.read(cookie) is None


async def test_a_replica_that_has_not_heard_believes_no_earlier_session(replica, clock):
    """It may have been logged out of. Who logs in now is let in."""
    here = await replica()
    cookie = here.log_in("Ann")
    clock.s += 10
    new = await replica(has_heard=False)
    new._ended_sessions._redis, store = Away(), new._ended_sessions._redis
    assert new.read(cookie) is None
    assert new.read(new.log_in("Ben"))
    new._ended_sessions._redis = store
    await new.share()
    assert new.read(cookie)


async def test_an_emptied_store_is_told_again(replica, redis):
    here, there = await replica(), await replica()
    cookie = here.log_in("Ann")
    here.log_out(here.read(cookie))
    await here.share()
    await redis.delete(keys.ENDED_SESSIONS)
    await here.share()
    await there.share()
    assert there.read(cookie) is None


async def test_what_is_over_is_forgotten(replica, redis, clock):
    """By the replicas and by the store, which keeps no key for it."""
    here = await replica()
    for _ in range(2):
        here.log_out(here.read(here.log_in("Ann")))
    await here.share()
    assert await redis.ttl(keys.ENDED_SESSIONS) > 0
    clock.s += LIFETIME_S + KEEP_EXPIRED_S + 1
    here.log_out(here.read(here.log_in("Ben")))
    await here.share()
    assert (len(here._ended_sessions._ends_s), await redis.zcard(keys.ENDED_SESSIONS)) == (1, 1)


def asked(url: str, cookie: str, csrf: str = "", **form: str) -> tuple[int, str, str]:
    """The status, the cookie that was set, and the body."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    data = urllib.parse.urlencode(form).encode() if form else None
    headers = {"Cookie": cookie, "X-Waitroom-CSRF": csrf}
    request = urllib.request.Request(url, data, headers)
    try:
        answer = urllib.request.build_opener(Stay).open(request, timeout=5)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        set_cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
        return answer.status, set_cookie, answer.read().decode()


def test_of_two_replicas():
    """Real ones: logged in at one, used at both, logged out of at one, over at both."""
    with Site(replicas=2) as site:
        one, two = site.ops
        _, cookie, _ = asked(f"{one}/dashboard/login", "", name="Ann", token=ADMIN_TOKEN)
        assert cookie.startswith(f"{COOKIE}=")
        status, _, body = asked(f"{two}/dashboard/session", cookie)
        assert status == 200
        csrf = body.partition('"csrf": "')[2].partition('"')[0]
        assert asked(f"{one}/dashboard/logout", cookie, csrf, bye="1")[0] == 303
        assert asked(f"{one}/dashboard/session", cookie)[0] == 401
        wait_until(lambda: asked(f"{two}/dashboard/session", cookie)[0] == 401, "the end there")
