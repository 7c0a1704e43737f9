"""Operators with a name and a role: how they log in, what ends their sessions, and a proxy that
signs them in."""

import asyncio
from ipaddress import ip_network

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.http.auth import accounts
from sidecar.http.auth.accounts import UNIX, Account, Accounts, ProxySignIn
from sidecar.http.auth.operators import PROXY_LIFETIME_S, Operators
from sidecar.http.auth.passwords import HASHER
from sidecar.http.auth.session import OPERATORS
from sidecar.http.auth.throttle import MAX_FAILURES
from tests.support.replica import ADMIN_TOKEN, KEYS, cookie_of, log_in

PASSWORDS = {"anna": "correct horse", "ben@example.org": "battery staple", "carl": ""}
HASHES = {name: HASHER.hash(password) for name, password in PASSWORDS.items() if password}
NAMED = {
    "anna": Account("operator", HASHES["anna"]),
    "ben@example.org": Account("viewer", HASHES["ben@example.org"]),
    "carl": Account("admin"),  # has no password
}
HERE = frozenset({ip_network("127.0.0.0/8")})
HEADER = "Remote-User"


@pytest.fixture
def site(site):
    site.ops.app[OPERATORS].accounts = Accounts(NAMED)
    return site


def behind_proxy(site, sources=HERE, role=None):
    site.ops.app[OPERATORS].accounts = Accounts(NAMED, ProxySignIn(HEADER, sources, role))


async def told(site, headers) -> dict:
    """What the page is told of the session; its status where there is none."""
    reply = await site.ops.get("/dashboard/session", headers=headers)
    return await reply.json() if reply.status == 200 else {"status": reply.status}


async def session(site, name="anna") -> dict[str, str]:
    cookie = cookie_of(await log_in(site, name, PASSWORDS[name]))
    return await whole(site, {"Cookie": cookie})


async def whole(site, headers) -> dict[str, str]:
    return {**headers, "X-Waitroom-CSRF": (await told(site, headers))["csrf"]}


def at(site, more=""):
    return f"/admin/rooms/{site.room.name}{more}"


async def statuses(site, headers) -> list[int]:
    """Of what a viewer, an operator and an admin may."""
    return [
        (await site.ops.request(method, at(site, more), headers=headers)).status
        for method, more in (("GET", ""), ("POST", "/pause"), ("POST", "/reset"))
    ]


async def test_each_may_what_the_role_says(site):
    assert await statuses(site, await session(site, "ben@example.org")) == [200, 403, 403]
    assert await statuses(site, await session(site)) == [200, 200, 403]
    log = (await (await site.ops.get(at(site, "/log"), headers=await session(site))).json())["log"]
    assert [act["by"] for act in log] == ["anna"]


async def test_a_password_opens_one_name(site):
    """Its own, in its own letters; what is wrong does not say whether the name is there."""
    here = await told(site, await session(site))
    assert (here["operator"], here["role"], here["by"]) == ("anna", "operator", "password")
    wrong = [("anna", "battery staple"), ("Anna", "correct horse"), ("nobody", "correct horse"),
             ("carl", ""), ("carl", "x"), ("", "correct horse"), ("anna", "x" * 5000)]  # fmt: skip
    for name, password in wrong:
        reply = await log_in(site, name, password)
        assert (reply.status, "Set-Cookie" in reply.headers) == (401, False), name
        assert "The name or the password is wrong." in await reply.text()


async def test_the_admin_token_goes_on_working(site):
    """Under a name that is no operator's, in whatever letters."""
    reply = await log_in(site, "Night shift")
    here = await told(site, {"Cookie": cookie_of(reply)})
    assert (here["role"], here["by"]) == ("admin", "token")
    for name in ("anna", "ANNA", "ａｎｎａ", "anna\N{ZERO WIDTH SPACE}"):
        reply = await log_in(site, name)
        assert (reply.status, "Set-Cookie" in reply.headers) == (422, False)
        assert "is the name of an operator" in await reply.text()


async def test_a_session_of_the_token_never_has_an_operators_name(site):
    """It may be from before there was the account, or from a replica that does not know it."""
    operators = site.ops.app[OPERATORS]
    operators.accounts = Accounts()
    before = {"Cookie": cookie_of(await log_in(site, "Anna"))}
    assert (await told(site, before))["operator"] == "Anna"
    operators.accounts = Accounts(NAMED)
    assert await told(site, before) == {"status": 401}


async def test_nobody_passes_for_an_operator_by_a_header(site):
    """Whoever has the token can say any other name."""
    for name, by in (("Anna", "Anna (admin_token)"), ("script", "script")):
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "X-Waitroom-Operator": name}
        assert (await site.ops.post(at(site, "/pause"), headers=headers)).status == 200
        assert (await site.ops.post(at(site, "/resume"), headers=headers)).status == 200
        log = (await (await site.ops.get(at(site, "/log"), headers=headers)).json())["log"]
        assert log[0]["by"] == by


async def test_guesses_side_by_side_are_counted(site, monkeypatch):
    """All are sent before the first was found wrong; the right one too late. What is refused costs
    no hash: others need not wait for it."""
    looked_at, is_hash_of = [], accounts.is_hash_of

    def noting(known, given):
        looked_at.append(given)
        return is_hash_of(known, given)

    monkeypatch.setattr(accounts, "is_hash_of", noting)
    guesses = [log_in(site, "anna", f"guess {n}") for n in range(3 * MAX_FAILURES)]
    replies = await asyncio.gather(*guesses, log_in(site, "anna", PASSWORDS["anna"]))
    found = [reply.status for reply in replies]
    assert found.count(401) == len(looked_at) == MAX_FAILURES
    assert set(found) == {401, 429}


async def test_a_name_that_is_not_there_costs_the_same(site, monkeypatch):
    """A hash of somebody's is looked at, also for a name without a password; it opens nothing."""
    looked_at = []
    monkeypatch.setattr(accounts, "is_hash_of", lambda known, _: looked_at.append(known) or True)
    for name in ("anna", "nobody", "carl"):
        status = (await log_in(site, name, "battery staple")).status
        assert status == (303 if name == "anna" else 401), name
    assert looked_at == [HASHES["anna"]] * 3


def test_no_hash_is_shown():
    assert HASHES["anna"] not in repr(Accounts(NAMED))


@pytest.mark.parametrize(
    "target",
    ["/admin/{}/pause", "//admin/{}/pause", "/%61dmin/{}/pause", "/admin%2F{}/pause",
     "/x/../admin/{}/pause", "/admin//{}/pause", "/admin/{}/%70ause", "/admin/{}/pause/",
     "/admin/{}%2Fpause", "/admin/{}/pause?x", "/admin/{}/forecast/../pause",
     "/dashboard/%2e%2e/admin/{}/pause", "http://x/admin/{}/pause"],
)  # fmt: skip
async def test_a_viewer_changes_nothing_in_any_spelling(site, target):
    """Byte by byte, as no client would send it, by any method."""
    viewer = await session(site, "ben@example.org")
    address = target.replace("{}", f"rooms/{site.room.name}")
    more = {**viewer, "Host": "x", "X-HTTP-Method-Override": "POST"}
    headers = "".join(f"{name}: {value}\r\n" for name, value in more.items())
    server = site.ops.server
    for method in ("POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "post"):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(f"{method} {address} HTTP/1.0\r\n{headers}\r\n".encode())
        status = (await reader.read()).split()[1]
        assert status in {b"400", b"401", b"403", b"404", b"405"}, method
        writer.close()


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"anna": Account("viewer", HASHES["anna"])},
        {"anna": Account("operator", HASHES["ben@example.org"])},
        {"anna": Account("operator")},
    ],
)
async def test_a_change_of_the_account_ends_its_sessions(site, changed):
    """And its links to walls: it is gone, or has another role or password."""
    here = await session(site)
    operators = site.ops.app[OPERATORS]
    wall = operators.sign_wall(site.room.name, operators.read(here["Cookie"].partition("=")[2]))
    assert operators.read_wall(wall) == site.room.name
    operators.accounts = Accounts(changed)
    assert (await told(site, here), operators.read_wall(wall)) == ({"status": 401}, None)


async def test_a_viewer_makes_no_link_to_a_wall(site):
    """The link outlives the session, and opens the display to anybody."""
    link = f"/dashboard/wall?room={site.room.name}"
    for name, status in (("ben@example.org", 403), ("anna", 303)):
        headers = await session(site, name)
        reply = await site.ops.get(link, headers=headers, allow_redirects=False)
        assert reply.status == status


async def test_logging_out_everywhere(site):
    """Ends the sessions in other browsers, and nobody else's; the next log-in opens again at once,
    also within the same second."""
    here, there, others = (
        await session(site),
        await session(site),
        await session(site, "ben@example.org"),
    )
    await site.ops.post("/dashboard/logout?everywhere", headers=here, allow_redirects=False)
    assert await told(site, here) == await told(site, there) == {"status": 401}
    assert (await told(site, others))["operator"] == "ben@example.org"
    assert (await told(site, await session(site)))["operator"] == "anna"


async def test_an_admin_ends_all_sessions_of_an_operator(site):
    here, admin = await session(site), {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    for _ in range(2):
        reply = await site.ops.delete("/admin/operators/anna/sessions", headers=admin)
        assert (reply.status, await reply.json()) == (200, {"name": "anna"})
    assert await told(site, here) == {"status": 401}
    reply = await site.ops.delete("/admin/operators/eve/sessions", headers=admin)
    assert (reply.status, (await reply.json())["code"]) == (404, "unknown_operator")
    found = (await (await site.ops.get("/admin/operators", headers=admin)).json())["operators"]
    assert [(each["name"], each["role"], each["has_password"]) for each in found] == [
        ("anna", "operator", True),
        ("ben@example.org", "viewer", True),
        ("carl", "admin", False),
    ]


async def test_without_an_admin_token_operators_log_in(site):
    """And a session of the empty token is none."""
    operators = site.ops.app[OPERATORS]
    forged = Operators(KEYS, "").log_in("eve")
    operators._token = ""
    assert operators.read(forged) is None
    assert await statuses(site, await session(site)) == [200, 200, 403]
    assert (await log_in(site, "eve", "")).status == 401


# A proxy in front.


async def test_a_proxy_signs_operators_in(site):
    """Without a cookie; a change needs the page's token as ever."""
    behind_proxy(site)
    headers = {HEADER: "anna"}
    here = await told(site, headers)
    assert (here["operator"], here["role"], here["by"]) == ("anna", "operator", "proxy")
    assert "dashboard.js" in await (await site.ops.get("/dashboard", headers=headers)).text()
    assert (await site.ops.post(at(site, "/pause"), headers=headers)).status == 403
    mine = await whole(site, headers)
    assert await statuses(site, mine) == [200, 200, 403]
    others = {**mine, HEADER: "carl"}
    assert (await site.ops.post(at(site, "/pause"), headers=others)).status == 403
    elsewhere = {**mine, "Sec-Fetch-Site": "cross-site"}
    assert (await site.ops.get(at(site), headers=elsewhere)).status == 403


@pytest.mark.parametrize(
    "sources", [{ip_network("10.0.0.0/8")}, {UNIX}, {ip_network("::1/128")}, set()]
)
async def test_the_header_counts_from_listed_addresses_alone(site, sources):
    behind_proxy(site, frozenset(sources))
    assert await told(site, {HEADER: "anna"}) == {"status": 401}


@pytest.mark.parametrize(
    ("sources", "peer", "counts"),
    [
        ({UNIX}, None, True), ({UNIX}, "", True), ({UNIX}, "127.0.0.1", False), (HERE, None, False),
        (HERE, "::ffff:127.0.0.1", True), (HERE, "128.0.0.1", False), (HERE, "unix", False),
        ({ip_network("fd00::/8")}, "fd00::1", True),
        ({ip_network("fd00::/8")}, "fd00::1%eth0", True),
    ],
)  # fmt: skip
def test_where_a_header_comes_from(sources, peer, counts):
    headers = CIMultiDictProxy(CIMultiDict({HEADER: "anna"}))
    found = ProxySignIn(HEADER, frozenset(sources)).find_name(headers, peer)
    assert found == ("anna" if counts else None)


async def test_an_odd_header_is_nobody(site):
    """One that is there twice, is empty, or has what no name has; spaces of other scripts are not
    cut off."""
    behind_proxy(site, role="viewer")
    twice = CIMultiDict([(HEADER, "anna"), (HEADER, "carl")])
    once = [{HEADER: name} for name in ("", " ", "x" * 65, "anna\xa0", "\u3000anna")]
    for headers in (twice, {"Remote_User": "anna"}, *once):
        assert await told(site, headers) == {"status": 401}, headers


async def test_a_name_without_an_account(site):
    """Is said, and refused; or has the role that the settings give to all such."""
    behind_proxy(site)
    page = await site.ops.get("/dashboard", headers={HEADER: "eve<b>"})
    assert (page.status, "eve&lt;b&gt;" in await page.text()) == (403, True)
    assert await told(site, {HEADER: "eve"}) == {"status": 401}
    behind_proxy(site, role="viewer")
    assert (await told(site, {HEADER: "eve"}))["role"] == "viewer"
    assert (await told(site, {HEADER: "anna"}))["role"] == "operator"


@pytest.mark.parametrize("name", ["Ben@Example.org", "ＢＥＮ@example.org"])
async def test_other_letters_give_no_other_role(site, name):
    """Many proxies take them for the same person, who would no longer be a viewer."""
    behind_proxy(site, role="admin")
    assert await told(site, {HEADER: name}) == {"status": 401}
    assert (await told(site, {HEADER: "ben@example.org"}))["role"] == "viewer"


async def test_a_token_goes_before_the_header(site):
    """A wrong one is not made right by it."""
    behind_proxy(site)
    headers = {HEADER: "carl", "Authorization": "Bearer wrong"}
    assert (await site.ops.get(at(site), headers=headers)).status == 401


async def test_the_stream_asks_the_proxy_again(site):
    """An open page notices that the proxy no longer knows its operator."""
    behind_proxy(site)
    operators = site.ops.app[OPERATORS]
    now_s = operators._now_s
    async with site.ops.get("/dashboard/events", headers={HEADER: "anna"}) as stream:
        operators._now_s = lambda: now_s() + PROXY_LIFETIME_S + 1
        text = (await asyncio.wait_for(stream.content.read(), 10)).decode()
    assert text.endswith("event: again\ndata: {}\n\n")
