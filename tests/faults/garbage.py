"""Generates malformed HTTP requests, as a random mix of a fixed corpus and Hypothesis' examples.

The requests are always the same, but for the visitors and times in signed tokens.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sidecar.rooms.settings import RoomSettings
from tests.support.site import ADMIN_TOKEN
from tests.support.tokens import signed_pass, signed_ticket

#: The name of a room without visitors, whose settings the requests change.
TOYED_WITH = "other"
#: The servers to which requests are sent.
NGINX, EDGE, OPS = "nginx", "edge", "ops"

_METHODS = [b"GET"] * 12 + [b"POST"] * 6 + [
    b"HEAD", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT", b"PROPFIND", b"PRI",
    b"get", b"G\x00T", b"GET\t", b"", b"A" * 300, b"\xff\xfe", b"GET /",
]  # fmt: skip
_PATHS = [
    b"/", b"/page", b"/open", b"/%00", b"/\xff\xfe", b"/%ff%fe", b"//evil.example/", b"/%2e%2e/",
    b"/../../etc/passwd", b"*", b"http://evil.example/", b"/page?next=//evil.example", b"/ /",
    b"/" + b"a" * 7000, b"/" + b"%41" * 9000, b"/?" + b"x=1&" * 1500, b"/page#f", b"", b"\\",
    b"/_waitroom/", b"/_waitroom/shop/", b"/_waitroom/shop/status", b"/_waitroom/shop/join",
    b"/_waitroom/shop/leave", b"/_waitroom/shop/status?client=1", b"/_waitroom/shop/status?\xff",
    b"/_waitroom/shop/?next=/\\evil", b"/_waitroom/shop/?next=//evil", b"/_waitroom/nope/status",
    b"/_waitroom/shop/?next=%0d%0aSet-Cookie:x=1", b"/_waitroom/internal/check", b"/check",
    b"/_waitroom/shop/../internal/check", b"/_waitroom/static/../../../etc/passwd",
    b"/_waitroom/static/%2e%2e%2f%2e%2e", b"/_waitroom/static/", b"/_waitroom/SHOP/status",
    b"/admin/rooms", b"/metrics",
]  # fmt: skip
_OPS_PATHS = [
    b"/healthz", b"/readyz", b"/metrics", b"/admin/rooms", b"/admin/rooms/other",
    b"/admin/rooms/nope", b"/admin/rooms/%ff", b"/admin/rooms/other/waiting",
    b"/admin/rooms/other/waiting?after=-1", b"/admin/rooms/other/waiting?limit=99999999999999",
    b"/admin/rooms/other/sessions?limit=%C2%B2", b"/admin/rooms/other/sessions?after=1e9",
    b"/admin/rooms/other/visitors/x/release", b"/admin/rooms/other/visitors/%00/release",
    b"/admin/rooms/other/visitors/aaaaaaaaaaaaaaaaaaaaaa/release", b"/admin/rooms/other/reset",
    b"/admin/", b"/admin//rooms", b"/admin/rooms/other/../other", b"/check", b"/_waitroom/shop/",
]  # fmt: skip
_VISITOR = b"AAAAAAAAAAAAAAAAAAAAAA"
_COOKIES = [
    b"", b"=", b";", b";;;=;", b"waitroom_shop", b"waitroom_shop=", b'waitroom_shop=""',
    b"waitroom_shop=t", b"waitroom_shop=p~", b"waitroom_shop=" + b"x" * 600,
    b"waitroom_shop=" + b"~" * 100, b"waitroom_shop=\xff\xfe", b"waitroom_shop=\xc3\xa4~1",
    b"waitroom_shop=t~" + _VISITOR + b"~1~1~0.YWJj.YWJj", b"waitroom_shop=t~\xd9\xa1~1~1~0.a.b",
    b"waitroom_shop=p~" + _VISITOR + b"~" + b"9" * 400 + b".a.b", b"waitroom_shop=a; " * 40,
    b"waitroom_shop=..", b"waitroom_shop=t.-1.x", b"waitroom_shop=t~.99999999999999999999.x",
    b"waitroom_other=x; waitroom_shop=y", b"a=" + b"b" * 3000, b"\x00=\x00", b"$Version=1; a=b",
]  # fmt: skip
_HEADERS = [
    b"X-Forwarded-For: 127.0.0.1, \xff", b"X-Real-IP: not an address", b"X-Real-IP: ::1%eth0",
    b"X-Waitroom-Given: waitroom_shop=t~x; Max-Age=1", b"X-Waitroom-Room: shop",
    b"X-Waitroom-Room: \xff\xfe", b"X-Waitroom-Room: " + b"r" * 5000, b"X-Waitroom-Release: site",
    b"X-Original-Method: OPTIONS", b"Access-Control-Request-Method: PUT", b"Accept: \xff/\xff",
    b"Accept: application/json", b"Accept: " + b"text/html," * 300, b"Accept-Language: \xe4",
    b"Accept-Language: " + b"de;q=0.," * 500, b"Accept-Language: -;q=nan, *;q=1e999",
    b"User-Agent: \x01\x7f", b"User-Agent: Mozilla/5.0 \xf0\x9f\x92\xa9", b"Purpose: prefetch\xff",
    b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: \x0b", b"Expect: 100-continue", b"Expect: x",
    b"Range: bytes=0-1,5-2,-9999999999999999999", b"Upgrade: h2c", b"Upgrade: websocket",
    b'If-None-Match: "', b"If-Modified-Since: Thu, 99 Foo 99999", b"Content-Type: \xff; charset=x",
    b"Content-Type: application/json; charset=utf-7", b"Content-Type: multipart/form-data",
    b"Content-Type: multipart/form-data; boundary=\xff", b"Content-Encoding: gzip, br, \xff",
    b"Content-Type: application/x-www-form-urlencoded; charset=\xff", b"Authorization: Bearer",
    b"Authorization: Bearer \xff\xfe", b"Authorization: Basic !!!", b"Host: evil.example:99999",
    b"X-Forwarded-Proto: https\x0b", b"X-Accel-Redirect: /etc/passwd", b"X-Long: " + b"y" * 9000,
    b"no colon", b": no name", b"Bad Name: x", b"Bad\x00Name: x", b"X-Fold: a\r\n b",
    b"Te: trailers",
    b"\xff: x", b"Connection: close", b"Connection: keep-alive, Upgrade", b"Proxy: http://evil/",
    b"\r\n".join(b"X-%d: 1" % i for i in range(90)),
]  # fmt: skip
#: Headers that make it ambiguous where a request ends.
_UNCLEAR = [
    b"Content-Length: abc", b"Content-Length: -1", b"Content-Length: 5\r\nContent-Length: 7",
    b"Content-Length: 99999999999999999999999", b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: gzip", b"Content-Length: 900000",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Content-Length: +5",
]  # fmt: skip
_BODIES = [
    b"", b"\x00", b"null", b"[]", b"{", b"{}", b"{}}", b"[" * 50_000, b'{"a":' * 5_000,
    b"\xff\xfe{}",
    b'{"total_active_users": 1e400}', b'{"total_active_users": NaN}', b'{"message": "\\ud800"}',
    b'{"total_active_users": true}', b'{"total_active_users": 9' + b"9" * 5000 + b"}",
    b'{"message": "\\u0000\\u001b[31m"}', b'{"epoch": 5}', b'{"__class__": 1, "model_config": {}}',
    b'{"session_duration": "5\xd9\xa5s"}', b'{"session_duration": "1' + b"0" * 400 + b's"}',
    b'{"queueing_method": ["fifo"]}', b'{"message": null, "message": 5}', b"next=//evil", b"next=%",
    b"next=" + b"/" * 60_000, b"next=%ff%fe&next=/",
    b'--b\r\nContent-Disposition: form-data; name="next"',
]  # fmt: skip


#: The parts from which requests are built, by kind, without those of _generate_examples.
_FIXED = {
    "methods": _METHODS,
    "paths": _PATHS,
    "ops_paths": _OPS_PATHS,
    "cookies": _COOKIES,
    "headers": _HEADERS,
}
_Parts: TypeAlias = dict[str, list[bytes]]

#: HTTP versions, and their weights.
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"XTTP/1.1", b""), (94, 2, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class Garbled:
    """A malformed request for the server `to`."""

    to: str
    data: bytes
    #: Whether the method is HEAD, whose response has no body.
    is_head: bool
    #: Whether the end of the request is unambiguous, so that the server must respond.
    is_whole: bool


def _is_mild(part: bytes) -> bool:
    return all(32 <= byte < 127 for byte in part) and not part.startswith((b"Host", b"Expect"))


def mix_requests(count: int) -> Iterator[Garbled]:
    """Yield malformed requests. Every second one is accepted by HTTP parsers, in most cases."""
    wild = {**_FIXED, **_generate_examples()}
    mild = {kind: list(filter(_is_mild, parts)) for kind, parts in wild.items()}
    mild["methods"] = [b"GET"] * 4 + [b"POST"] * 3 + [b"HEAD", b"PATCH"]
    mild["headers"] = [header for header in mild["headers"] if b": " in header]
    random = Random(4)
    for number in range(count):
        yield _make_request(random, mild if number % 2 else wild)


def _make_request(random: Random, parts: _Parts) -> Garbled:
    to = random.choices((NGINX, EDGE, OPS), (5, 3, 2))[0]
    method, path = _choose_target(random, parts, to)
    lines = _make_lines(random, parts, to, path)
    body, is_whole = b"", True
    if method in {b"POST", b"PUT", b"PATCH", b"DELETE"}:
        body = random.choice(_BODIES + parts["json"])
        lines.append(b"Content-Length: %d" % len(body))
    if random.random() < 0.02:
        lines.append(random.choice(_UNCLEAR))
        is_whole = False
    random.shuffle(lines)
    first = b"%b %b %b" % (method, path, random.choices(*_VERSIONS)[0])
    if random.random() < 0.02:
        first, is_whole = random.choice(parts["bytes"]), False
    data = b"\r\n".join([first, *lines, b"", b""]) + body
    return Garbled(to, data, method == b"HEAD", is_whole)


def _choose_target(random: Random, parts: _Parts, to: str) -> tuple[bytes, bytes]:
    if to == OPS and random.random() < 0.4:
        return b"PATCH", f"/admin/rooms/{TOYED_WITH}".encode()
    method = random.choice(parts["methods"])
    if to == EDGE and random.random() < 0.5:
        return method, b"/check"
    path = random.choice(parts["ops_paths"] if to == OPS else parts["paths"])
    if random.random() < 0.1:
        path = b"/" + random.choice(parts["bytes"])
    elif random.random() < 0.2:
        path += b"?next=" + random.choice(parts["text"])
    return method, path


def _make_lines(random: Random, parts: _Parts, to: str, path: bytes) -> list[bytes]:
    lines = [b"Host: localhost"] if random.random() < 0.97 else []
    if to == EDGE and path == b"/check" and random.random() < 0.9:
        lines.append(b"X-Waitroom-Room: shop")
    if to == OPS and random.random() < 0.9:
        lines.append(b"Authorization: Bearer " + ADMIN_TOKEN.encode())
    if random.random() < 0.7:
        kind = random.choice(("cookie", "token", "text"))
        cookie = random.choice(parts["cookies"] + parts[kind])
        lines.append(b"Cookie: " + _add_cookie_name(random, cookie))
    if random.random() < 0.2:
        lines.append(b"X-Made-Up: " + random.choice(parts["bytes"]))
    return lines + random.choices(parts["headers"], k=random.randrange(4))


def _add_cookie_name(random: Random, text: bytes) -> bytes:
    return text if b"=" in text or random.random() < 0.3 else b"waitroom_shop=" + text


def _generate_examples() -> dict[str, list[bytes]]:
    """Return examples that Hypothesis generates, by kind. They contain no line breaks."""
    names = st.sampled_from(sorted(RoomSettings.model_fields)) | st.text(max_size=20)
    values: Any = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=12,
    )
    printable = st.from_regex(rb"[!-~]{1,90}", fullmatch=True)
    cookies = st.from_regex(r"[tp](~[\w-]{0,30}){0,9}(\.[\w-]*){0,3}", fullmatch=True)
    objects = st.dictionaries(names, values, max_size=4)
    texts = _examples(st.text(max_size=200))
    found = {
        "bytes": _examples(st.binary(min_size=1, max_size=200) | printable),
        "text": [text.encode("utf-8", "surrogatepass") for text in texts],
        "cookie": [text.encode() for text in _examples(cookies)],
        "json": [json.dumps(example).encode() for example in _examples(objects)],
    }
    found["token"] = _make_invalid_tokens()
    for kind in ("bytes", "text", "cookie"):
        found[kind] = [part.translate(None, b"\r\n") or b"x" for part in found[kind]]
    return found


def _make_invalid_tokens() -> list[bytes]:
    """Return signed tokens, and variants: of another room or key, too old, or changed."""
    random = Random(5)
    tokens = [signed_ticket("shop"), signed_pass("shop"), signed_pass("other"),
              signed_pass("shop", secret="x" * 40), signed_ticket("shop", age_s=90_000),
              signed_pass("shop", age_s=1000)]  # fmt: skip
    found = []
    for token in tokens:
        text = token.encode()
        found += [text, text[:-5], text + b"A", text.swapcase(), text[::-1]]
        for _ in range(60):
            at = random.randrange(len(text))
            found.append(text[:at] + bytes([random.randrange(33, 256)]) + text[at + 1 :])
    return found


def _examples(strategy: st.SearchStrategy[Any]) -> list[Any]:
    found: list[Any] = []

    @settings(
        max_examples=400, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found
