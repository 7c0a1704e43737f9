"""What a job may ask of its target, and where that goes."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from sidecar.http.models import read
from sidecar.jobs.model import NewJob
from sidecar.jobs.request import (
    MAX_HEADERS,
    MAX_PATH_LENGTH,
    MAX_QUERY_LENGTH,
    check_request,
    encode_query,
    make_url,
)
from sidecar.jobs.schemas import SubmitJob
from sidecar.jobs.settings import TargetSettings, read_target
from sidecar.kit.addresses import is_public
from sidecar.kit.errors import InputError

IMAGES = read_target({"url": "https://images.example/v1/", "methods": ["GET", "HEAD", "POST"]})
REPORT = read_target({"url": "https://images.example:8443/report"})


def ask(settings: TargetSettings = IMAGES, *, query: object = "", **said: object) -> URL:
    """The address of a request, whose query is as it comes in a submission."""
    submitted = read(SubmitJob, {"target": "images", "query": query})
    new = NewJob("images", query=encode_query(submitted.query), **said)  # type: ignore[arg-type]
    return check_request(settings, new)


def problems(settings: TargetSettings = IMAGES, **said: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        ask(settings, **said)
    return caught.value.problems


# Paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["", "images", "images/42", "a.b/c", "images/", ".well-known/x", "a%20b", "caf%C3%A9",
     "models/m:make", "a..b", "%E2%9C%93/42", "x(1)'!$&*+,=~_-", "%61", "%40me", "a%2Cb", "v1./x",
     "%F0%9F%91%A9%E2%80%8D%F0%9F%94%AC"],
)  # fmt: skip
def test_ordinary_paths(path):
    """Go to the target below its own path, as they were written."""
    url = ask(path=path)
    assert (url.raw_path, url.host) == (f"/v1/{path}", "images.example")


@pytest.mark.parametrize(
    "path",
    ["/images", "//evil.example/", "http://evil.example/", "https:/evil.example", "x:/y", "a//b",
     "a/../b", "..", ".", "./a", "a/.", "a/..", "...", "a/%20/b", "%2e%2e/a", "%2E", "a%2eb",
     ".%2e/a", "%2e/", "a%2fb", "a%2Fb", "..%2fa", "a%5cb", "a%5Cb", "..%5c", "a\\b", "..\\", "%00",
     "a%00.png", "%0d%0aHost:%20evil", "%1f", "%7f", "%C2%85", "%E2%80%A8", "a\r\nHost: evil",
     "a\nb", "a\0", "a b", "a\tb", "é", "a?b=c", "a%3fb", "a#b", "a%23b", "me@evil.example",
     "@evil.example/", "a;b", "a;jsessionid=1", "a%3Bb", "%252e%252e/", "%25", "a%252fb", "%", "%2",
     "%zz", "%u002e", "%C0%AE%C0%AE/", "%ff", "%EF%BC%8E%EF%BC%8E/a", "%E2%80%A5", "e%CC%81", "a|b",
     "a<b>", "a{b}", "a^b", "a`b", 'a"b', "[a]", "\ud800", "a" * (MAX_PATH_LENGTH + 1)],
)  # fmt: skip
def test_paths_that_two_would_read_in_two_ways(path):
    """Are refused: what leaves the target's path, or its host, for anybody who reads them."""
    (problem,) = problems(path=path)
    assert problem.startswith("path: ")


@given(st.text(alphabet="./\\%2eEfF5cC:@;?#0 a" + "\r\n\0", max_size=24) | st.text(max_size=12))
def test_no_path_leaves_the_target(path):
    """Whoever decodes it, once or twice, and takes \\ for / or not."""
    try:
        url = ask(path=path)
    except InputError:
        return
    assert (url.scheme, url.raw_authority) == ("https", "images.example")
    seen = url.raw_path
    for _ in range(3):
        assert seen.startswith("/v1/")
        assert {".", ".."}.isdisjoint(seen.replace("\\", "/").split("/"))
        assert "//" not in seen
        seen = URL.build(path=seen, encoded=True).path


def test_one_address_has_no_paths():
    """Of a target whose url does not end with / nothing else is called; a query may be added."""
    assert str(ask(REPORT, query="a=b")) == "https://images.example:8443/report?a=b"
    for path in ("x", "/", "/x", ".", "?"):
        assert problems(REPORT, path=path) == [
            "path: this target has one address alone; leave it out"
        ]
    bare = read_target({"url": "https://images.example"})
    assert str(ask(bare, query="a=b")) == "https://images.example/?a=b"


def test_what_nobody_can_call():
    """A target without an url is called by its callers themselves."""
    (problem,) = problems(read_target({"kinds": ["online"]}))
    assert problem.startswith("target: has no url")


@pytest.mark.parametrize(
    ("path", "query"),
    [("@evil.example/", ""), (".evil.example/", ""), (":81/", ""), ("", "a#b"), ("\\x", "")],
)
def test_an_address_is_looked_at_when_it_is_whole(path, query):
    """Even what was never checked does not go to another host, port or path."""
    for settings in (IMAGES, REPORT, read_target({"url": "https://images.example"})):
        try:
            url = make_url(settings.url, path, query)
        except InputError:
            continue
        assert url.raw_authority == URL(settings.url).raw_authority
        assert url.raw_path.startswith(URL(settings.url).raw_path)


def test_a_target_that_has_changed():
    """What was allowed when it was submitted is looked at once more."""
    new = NewJob("images", method="POST", path="images/42", body=b"x" * 100)
    assert check_request(IMAGES, new) == URL("https://images.example/v1/images/42")
    for change in ({"methods": ["GET"]}, {"url": "https://images.example/v1"}, {"max_body": 10}):
        with pytest.raises(InputError):
            check_request(IMAGES.with_changes(change), new)


# Queries, headers, bodies, methods ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "written"),
    [("", ""), ("a=b&c=d", "a=b&c=d"), ("a=%2e%2e/x?y", "a=%2e%2e/x?y"), ("a[]=1;b=@", "a[]=1;b=@"),
     ("text=a%0Ab", "text=a%0Ab"), ({}, ""), ({"a": "b c", "é": "&="}, "a=b%20c&%C3%A9=%26%3D"),
     ({"a": ["1", 2, 0.5], "b": []}, "a=1&a=2&a=0.5"), ({"a": "\r\n#"}, "a=%0D%0A%23")],
)  # fmt: skip
def test_queries(query, written):
    """A text is sent as it is, an object is encoded."""
    assert ask(query=query).raw_query_string == written


@pytest.mark.parametrize(
    "query",
    ["a b", "a\r\nHost: evil", "a\0", "a#b", "é", "a=%", "a=%2", "a=%zz", "a=%00", "?a=b", 'a="',
     "a=<", "a\\b", "a" * (MAX_QUERY_LENGTH + 1), 7, ["a"], {"a": None}, {"a": True}, {"a": {}},
     {"a": [["b"]]}, {1: "a"}, {"a": float("nan")}, {"a": 10**5000}, {"a": "\ud800"}, {"a": "\0"},
     {"a": "b" * MAX_QUERY_LENGTH}],
)  # fmt: skip
def test_queries_that_are_not_allowed(query):
    """One problem says what is wrong."""
    (problem,) = problems(query=query)
    assert problem.startswith("query: ")


@pytest.mark.parametrize(
    "headers",
    [{"A": "b\r\nHost: evil"}, {"A": "b\nc"}, {"A": "b\rc"}, {"A": "b\0"}, {"A": " b"}, {"A": "é"},
     {"A\r\nB": "c"}, {"A:": "b"}, {"A B": "c"}, {"": "a"}, {"é": "a"}, {"A": "1", "a": "2"},
     {"X-A": "1", "x_a": "2"}, {"Host": "evil"}, {"host": "evil"}, {"Content-Length": "0"},
     {"content_length": "0"}, {"Transfer-Encoding": "chunked"}, {"Connection": "close"},
     {"Upgrade": "h2c"}, {"Expect": "100-continue"}, {"Idempotency-Key": "a"},
     {"idempotency_key": "a"}, {"X-Waitroom-Attempt": "1"}, {"x_waitroom_visitor": "a"},
     {"Accept-Encoding": "gzip"}, {"A": "b" * 8193},
     {f"X-{number}": "" for number in range(MAX_HEADERS + 1)},
     {f"X-{n}": "a" * 4000 for n in range(5)}],
)  # fmt: skip
def test_headers_that_are_not_allowed(headers):
    """Those that break a line, that are the worker's own, or that are too many."""
    (problem,) = problems(headers=headers)
    assert problem.startswith("headers: ")


def test_bodies_and_methods():
    """Bodies are bounded, and not of a GET; only what the target allows is called."""
    ask(method="post", body=b"x" * 131_072)
    assert problems(method="POST", body=b"x" * 131_073)[0].startswith("body: at most 131,072")
    assert problems(body=b"x") == ["body: a GET has none"]
    assert problems(method="head", body=b"x") == ["body: a HEAD has none"]
    for method in ("PUT", "TRACE", "CONNECT", "GET / HTTP/1.1\r\n", ""):
        assert problems(method=method) == ["method: GET or HEAD or POST for this target"]


def test_all_that_is_wrong_is_said_at_once():
    """A problem each."""
    said = problems(method="PUT", path="..", query="a b", headers={"A": "\n"}, body=b"x" * 200_000)
    assert [line.partition(":")[0] for line in said] == [
        "method", "path", "query", "headers", "body",
    ]  # fmt: skip


# Addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f.1", "0x7f000001", "0X7F.0.0.1", "0177.0.0.1", "127.1", "127.0.1", "0",
     "127.0.0.1.", "1.2.3.4.5", "127.0.0.01", "256.0.0.1", "127%2e0.0.1", "127.0.0.%31",
     "ex%61mple.com", "[v1.x]", "[fe80::1%25eth0]", "[::1", "::1"],
)  # fmt: skip
def test_odd_hosts_are_no_targets(host):
    """A host that some take for another cannot be configured."""
    with pytest.raises(InputError, match="url: "):
        read_target({"url": f"http://{host}/"})


@pytest.mark.parametrize(
    "host",
    ["8.8.8.8", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "a-1.example", "x2", "1.a", "localhost",
     "a_b"],
)  # fmt: skip
def test_plain_hosts_are(host):
    """Names and addresses as they are written everywhere; what they lead to is looked at later."""
    assert read_target({"url": f"http://{host}:8080/"}).has_paths


PRIVATE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1",
    "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.254", "192.0.0.1",
    "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1",
    "::7f00:1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:0:4136:e378::", "2001:10::1", "2001:20::1",
    "2001:db8::1", "2002:7f00:1::", "2002:a00:1::", "2002:808:808::", "3fff::1", "5f00::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1",
    "ff02::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.167.255.255", "223.255.255.255",
    "2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public(address):
    """Of this machine, its network, tests, many at once, or such wrapped in others."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_that_are_public(address):
    """All others, up to the edges of what is not."""
    assert is_public(address)


@given(st.text(alphabet=string.hexdigits + ".:%x", max_size=20))
def test_what_is_no_address_is_not_public(text):
    """And is no error of ours."""
    if is_public(text):
        assert "%" not in text
        assert "x" not in text
