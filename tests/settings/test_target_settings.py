"""The settings of targets: what a job may call, and where it may call back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from sidecar.jobs.settings import (
    HIDDEN,
    METHODS,
    RESERVED_HEADERS,
    TargetSettings,
    find_header_problems,
    read_target,
)
from sidecar.kit.errors import InputError
from sidecar.settings.load import load
from tests.settings.problems import GOOD, SECRET, problems

URL_ = 'url = "https://images.example/"\n'
ONLY_SECRET = {"WAITROOM_SECRET_KEYS": SECRET}
SIGNS = "callback-secret-nobody-sees"


def target(**values: object) -> TargetSettings:
    return read_target({"url": "https://images.example/v1/", **values})


def target_problems(**values: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        target(**values)
    return caught.value.problems


def calls_back(*urls: str) -> TargetSettings:
    return target(callback_urls=urls, callback_secret=SIGNS)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", 'kinds: a worker needs the target\'s url; without one, say kinds = ["online"]'),
        ('kinds = ["offline"]', "kinds: a worker needs the target's url"),
        (URL_ + "kinds = []", "kinds: write offline, online or both"),
        (URL_ + 'kinds = ["later"]', "kinds.0: must be 'offline' or 'online'"),
        (URL_ + "methods = []", "methods: write some of GET, HEAD, POST"),
        (URL_ + 'methods = ["TRACE"]', "methods: write some of GET, HEAD, POST"),
        (URL_ + 'algorithm = "concurrency"', "algorithm: "),
        (URL_ + "burst = 5", "burst: is for token_bucket; sliding_window has none"),
        (URL_ + "rate = 0", "rate: "),
        (URL_ + "rate = true", "rate: write a whole number"),
        (URL_ + "concurrency = 0", "concurrency: "),
        (URL_ + 'timeout = "1 week"', "timeout: write a number of seconds, or text"),
        (URL_ + "max_body = 131073", "max_body: "),
        (URL_ + "colour = 1", "colour: unknown setting"),
        (URL_ + 'headers = { "Host" = "a" }', "headers: Host is written by the worker"),
        (URL_ + 'headers = { "idempotency-key" = "a" }', "headers: idempotency-key is written"),
        (URL_ + 'headers = { "A B" = "a" }', "headers: 'A B' is no header's name"),
        (URL_ + 'headers = { "A" = "a\\r\\nB: c" }', "headers: the value of A has characters"),
        (URL_ + 'headers = { "A" = "1", "a" = "2" }', "headers: a name is there twice"),
        (URL_ + f'headers = {{ "A" = "{HIDDEN}" }}', f"headers: {HIDDEN} stands for a value that"),
        (URL_ + 'headers = "a"', "headers: write JSON, such as"),
        (URL_ + "retry_on = [200]", "retry_on: write statuses from 300 to 599, 3xx, 4xx, 5xx, or"),
        (URL_ + 'retry_on = ["timeout"]', "retry_on: write statuses from 300 to 599"),
        (URL_ + "fail_on = 5", "fail_on: "),
        (URL_ + 'fail_on = ["connection"]', "fail_on: write statuses from 300 to 599, 3xx, 4xx or"),
        (URL_ + 'classes = { vip = { line = "a" } }', "classes: vip.line: a target has one line"),
        (URL_ + "classes = { vip = { priority = 4 } }", "classes.vip.priority: "),
        (URL_ + 'callback_urls = ["https://shop.example/"]',
         "callback_secret: callbacks are signed: at least 16 characters"),
        (URL_ + 'callback_secret = "whsec_nobody-sees-0000"',
         "callback_secret: after whsec_ comes the base64 of 24 to 64 bytes"),
        (URL_ + f'callback_secret = "{SIGNS}"\nprevious_callback_secret = "nobody"',
         "previous_callback_secret: fewer than 16 characters"),
        (URL_ + f'previous_callback_secret = "{SIGNS}"',
         "previous_callback_secret: needs a callback_secret beside it"),
        (URL_ + f'callback_secret = "{SIGNS}"\ncallback_urls = ["https://shop.example"]',
         "callback_urls: write where callbacks may go with a path"),
        (URL_ + f'callback_secret = "{SIGNS}"\ncallback_urls = ["shop.example/hooks/"]',
         "callback_urls: write an address such as"),
    ],
)  # fmt: skip
def test_targets_that_are_not_allowed(write, lines, said):
    """One line says which setting it is, and what is allowed."""
    (line,) = problems(write(f"[targets.images]\n{lines}\n"), **ONLY_SECRET)
    assert line.startswith(f"targets.images.{said}")


@pytest.mark.parametrize(
    "url",
    ["", "images.example", "ftp://images.example/", "https://", "https:///v1/", "//images.example/",
     "file:///etc/passwd", "https://me@images.example/", "https://me:pw@images.example/",
     "https://images.example/?a=b", "https://images.example/#a", "https://images.example/a b",
     "https://images.example\\@evil.example/", "https://images.example:99999/", "https://[::1/", "https://[]@images.example/",
     "https://images.example:port/", "https://images.example/\r\nHost: evil", "https://ïmages.example/",
     "https://images.example//v1/", "https://images.example/v1/../", "https://images.example/./v1/",
     "https://images.example/v1/..", "https://images.example/%2e%2e/v1/",
     "https://images.example/%2E./v1/", "https://images.example/..%2fv1/"],
)  # fmt: skip
def test_addresses_that_two_would_read_in_two_ways(url):
    """Are refused, and so is what is no address of a server."""
    (problem,) = target_problems(url=url)
    assert problem.startswith("url: ")


@pytest.mark.parametrize(
    ("url", "has_paths"),
    [("https://images.example/v1/", True), ("http://10.0.0.1:8080/make", False),
     ("https://images.example", False), ("https://[2001:db8::1]/", True),
     ("https://images.example/a..b/.well-known/", True)],
)  # fmt: skip
def test_an_address_that_ends_with_a_slash_has_more_below_it(url, has_paths):
    """Any other is all that is ever called."""
    assert target(url=url).has_paths is has_paths


def test_a_target_without_an_address_is_called_by_others():
    """No job of it has a path."""
    settings = read_target({"kinds": ["online"]})
    assert (settings.url, settings.has_paths) == (None, False)


def test_what_is_tried_again_and_what_fails():
    """Answers that ask for another try, a balancer's, and connections that break, if nothing is
    said; every other answer that is no 2xx fails. In a variable commas separate them."""
    assert target().retry_on == (408, 425, 429, 502, 503, 504, "connection")
    assert target().fail_on == ("3xx", "4xx", "5xx")
    said = target(retry_on="429, 5XX connection 429", fail_on=["404", "4xx"])
    assert (said.retry_on, said.fail_on) == ((429, "5xx", "connection"), (404, "4xx"))
    asked = (429, 500, 404, 302)
    assert [said.retries_on(status) for status in asked] == [True, True, False, False]
    assert said.retries_on(None)
    assert [said.fails_on(status) for status in asked] == [True, True, True, False]


def test_a_target_comes_from_variables(folder):
    """Lists have commas between their parts, tables are JSON or a variable a member, and secrets
    may lie in files."""
    (folder / "key").write_text("Bearer abc\n")
    said = {
        "URL": "https://images.example/v1/", "METHODS": "get, post", "KINDS": "offline",
        "RATE": "50", "WINDOW": "500ms", "PRIVATE": "true", "PENDING_TTL": "1d",
        "HEADERS__AUTHORIZATION_FILE": str(folder / "key"),
        "CLASSES": '{"vip": {"head_start": "5m"}}',
        "CALLBACK_URLS": "https://shop.example/a/ https://shop.example/b/",
        "CALLBACK_SECRET": SIGNS,
    }  # fmt: skip
    environ = {f"WAITROOM_TARGETS__IMAGES__{name}": text for name, text in said.items()}
    images = load(None, {**GOOD, **environ}).targets["images"]
    assert (images.methods, images.kinds) == (("GET", "POST"), ("offline",))
    assert (images.rate, images.window, images.private) == (50, 0.5, True)
    assert images.headers == {"authorization": "Bearer abc"}
    assert images.classes["vip"].head_start == 300
    assert images.callback_urls == ("https://shop.example/a/", "https://shop.example/b/")
    environ["WAITROOM_TARGETS__IMAGES__HEADERS"] = '{"X-Key": "abc"}'
    del environ["WAITROOM_TARGETS__IMAGES__HEADERS__AUTHORIZATION_FILE"]
    assert load(None, {**GOOD, **environ}).targets["images"].headers == {"X-Key": "abc"}


@pytest.mark.parametrize(
    "values",
    [{"HEADERS__AUTHORIZATION": "nobody\nsees"}, {"HEADERS": "nobody-sees"},
     {"CALLBACK_SECRET": "nobody", "CALLBACK_URLS": "https://a.example/"},
     {"URL": "https://nobody:sees@images.example/"}],
)  # fmt: skip
def test_what_is_wrong_repeats_no_secret(values):
    """Neither at the start nor at run time."""
    values = {"URL": "https://images.example/", **values}
    environ = {f"WAITROOM_TARGETS__IMAGES__{name}": text for name, text in values.items()}
    (line,) = problems(**GOOD, **environ)
    assert "nobody" not in line
    for told in (target_problems(callback_urls="https://a.example/", callback_secret="nobody"),
                 target_problems(headers="nobody"), target_problems(headers={"A": ["nobody"]}),
                 target_problems(headers={"A": "nobody\n"})):  # fmt: skip
        assert "nobody" not in "".join(told)


def shown(settings):
    return settings.without_secrets().model_dump(mode="json")


def test_what_is_told_shows_no_secret():
    """Names of headers, and whether callbacks are signed; nor does the object's own text."""
    settings = target(
        headers={"X-Key": "nobody-sees"}, callback_secret=SIGNS, previous_callback_secret=SIGNS,
        classes={"vip": {}},
    )  # fmt: skip
    told = shown(settings)
    assert told["headers"] == {"X-Key": HIDDEN}
    assert told["callback_secret"] == told["previous_callback_secret"] == HIDDEN
    assert "nobody" not in json.dumps(told) + repr(settings)
    bare = shown(target())
    assert (bare["headers"], bare["callback_secret"]) == ({}, "")
    assert bare["previous_callback_secret"] == ""


def test_what_is_told_can_be_said_again():
    """Whoever sends back what they were shown changes nothing, and leaves the secrets as they
    are; what stands for a secret that there is not is none."""
    settings = target(
        headers={"X-Key": "abc", "X-Old": "def"}, callback_secret=SIGNS, rate=5,
        previous_callback_secret="o" * 16,
        classes={"vip": {"priority": 1}}, callback_urls=["https://shop.example/hooks/"],
    )  # fmt: skip
    assert settings.with_changes(shown(settings)) == settings
    changed = settings.with_changes({"headers": {"X-Key": HIDDEN, "X-New": "1"}, "rate": None})
    assert changed.headers == {"X-Key": "abc", "X-New": "1"}
    assert (changed.rate, changed.callback_secret) == (None, SIGNS)
    assert changed.previous_callback_secret == "o" * 16
    with pytest.raises(InputError, match="X-Other has none"):
        settings.with_changes({"headers": {"X-Other": HIDDEN}})


def test_a_change_is_checked_with_what_stays():
    """A rule between two settings holds, whichever of them was changed."""
    settings = target(algorithm="token_bucket", burst=5)
    with pytest.raises(InputError, match="burst: is for token_bucket"):
        settings.with_changes({"algorithm": "fixed_window"})
    with pytest.raises(InputError, match="kinds: a worker needs"):
        settings.with_changes({"url": None})
    with pytest.raises(InputError, match="colour: unknown setting"):
        settings.with_changes({"colour": 1})
    assert settings.with_changes({"burst": None, "algorithm": "fixed_window"}).burst is None


BACK = calls_back("https://shop.example/hooks/", "http://10.0.0.1:8080/")


@pytest.mark.parametrize(
    "url",
    ["https://shop.example/hooks/", "https://shop.example/hooks/a?b=c", "HTTPS://SHOP.example/hooks/a",
     "https://shop.example:443/hooks/a", "https://shop.example/hooks/%61", "http://10.0.0.1:8080/a/b"],
)  # fmt: skip
def test_where_callbacks_may_go(url):
    """Wherever an allowed address leads, read as the client reads it."""
    assert BACK.may_call_back(url)
    assert not target().may_call_back(url)


@pytest.mark.parametrize(
    "url",
    ["", "hooks", "/hooks/", "//shop.example/hooks/", "mailto:me@shop.example", "https:///hooks/",
     "http://shop.example/hooks/", "https://shop.example:444/hooks/", "https://shop.example/hook",
     "https://shop.example.evil.example/hooks/", "https://shop.example@evil.example/hooks/",
     "https://me@shop.example/hooks/", "https://me:pw@shop.example/hooks/",
     "https://shop.example/hooks/#a", "https://shop.example/hooks/../a",
     "https://shop.example/hooks/%2e%2e/a", "https://shop.example/hooks/..%2fa",
     "https://shop.example\\@evil.example/hooks/", "https://shop.example/hooks/\r\nHost: a",
     "https://shop.example:99999/hooks/", "https://[::1/hooks/", "http://10.0.0.1/a",
     "https://evil.example/https://shop.example/hooks/", "https://shop.example/hooks/ä"],
)  # fmt: skip
def test_where_callbacks_may_not_go(url):
    """And no such address is an error of ours."""
    assert not BACK.may_call_back(url)


@given(st.text(alphabet="htps:/.@\\?#%2e[]0a", max_size=30) | st.text(max_size=30))
def test_no_address_goes_elsewhere(tail):
    """Whatever follows, or stands for, the host."""
    for url in ("https://shop.example/hooks/" + tail, "https://shop.example" + tail, tail):
        if BACK.may_call_back(url):
            assert URL(url).host in {"shop.example", "10.0.0.1"}


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3))
def test_headers_split_no_request(headers):
    """What is let through is one line each, and none that the runner writes."""
    if not find_header_problems(headers):
        assert RESERVED_HEADERS.isdisjoint(name.lower() for name in headers)
        assert not any(set("\r\n\0:") & set(name) for name in headers)
        assert not any(set("\r\n\0") & set(value) for value in headers.values())


def test_methods_are_upper_case_and_once():
    """In the order in which they were written."""
    assert target(methods="post,get,POST").methods == ("POST", "GET")
    assert target(methods=[*METHODS]).methods == METHODS


# Tokens and the database --------------------------------------------------------------------------


def test_tokens_have_names(folder):
    """A variable each, or a file."""
    (folder / "b").write_text("b" * 16 + "\n")
    named = {"WAITROOM_TOKENS__SHOP": "a" * 16, "WAITROOM_TOKENS__BATCH_FILE": str(folder / "b")}
    assert load(None, {**GOOD, **named}).tokens == {"shop": "a" * 16, "batch": "b" * 16}
    assert load(None, GOOD).tokens == {}


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({"shop": "nobody-sees"}, "tokens: shop: fewer than 16 characters"),
        ({"shop": ""}, "tokens: shop: fewer than 16 characters"),
        ({"service": "nobody-sees-0000"}, "tokens: service: the name is taken"),
        ({"operator": "nobody-sees-0000"}, "tokens: operator: the name is taken"),
        ({"shop": "nobody-sees-it-16"}, "tokens: shop: the same token is there twice"),
        ({"a b": "nobody-sees-0000"}, "tokens.a b: a name has lower-case letters"),
    ],
)
def test_tokens_that_are_not_allowed(write, tokens, said):
    """None is repeated, and no two names have the same."""
    lines = "".join(f'"{name}" = "{token}"\n' for name, token in tokens.items())
    environ = {**GOOD, "WAITROOM_ADMIN_TOKEN": "nobody-sees-it-16"}
    (line,) = problems(write(f"[tokens]\n{lines}"), **environ)
    assert line.startswith(said)
    assert "nobody" not in line


def test_where_jobs_are_kept(write):
    """Named, or a file where there are targets; else nowhere. A site may have targets alone."""
    path = write(f"[targets.images]\n{URL_}")
    assert load(path, ONLY_SECRET).jobs_database == "sqlite:///waitroom-jobs.db"
    named = {**ONLY_SECRET, "WAITROOM_JOBS": "postgresql://db/jobs"}
    assert load(path, named).jobs_database == "postgresql://db/jobs"
    assert load(write(""), named).jobs_database == "postgresql://db/jobs"
    assert load(None, GOOD).jobs_database == ""
    (line,) = problems(path, **ONLY_SECRET, WAITROOM_JOBS="mongodb://nobody:sees@db/")
    assert line.startswith("jobs: write sqlite:///path, mysql://")
    assert "nobody" not in line


def test_scopes_of_tokens(folder):
    """By the token's name, as a list or in a variable with commas; the service token's too."""
    named = {"WAITROOM_TOKENS__SHOP": "a" * 16, "WAITROOM_SCOPES__SHOP": "jobs,read"}
    said = load(None, {**GOOD, **named, "WAITROOM_SCOPES__SERVICE": "limits"}).scopes
    assert said == {"shop": {"jobs", "read"}, "service": {"limits"}}
    assert load(None, GOOD).scopes == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('shop = ["jobs"]', "scopes: shop: no token has this name; there are service, press"),
        ('operator = ["jobs"]', "scopes: operator: no token has this name"),
        ("press = []", "scopes: press: at least one of classes, jobs, leases, limits, read"),
        ('press = ["job"]', "scopes.press"),
    ],
)
def test_scopes_that_are_not_allowed(write, line, said):
    """Each is named, with what there is."""
    text = f'[tokens]\npress = "{"p" * 16}"\n[scopes]\n{line}\n'
    (found,) = problems(write(text), **GOOD)
    assert said in found
