"""Jobs of three classes over three workers, to a target that is slow, answers 429, 500 and 503,
closes connections and sends too much: with each kind of database. In the end the database is
stopped for a while.

JOBS_FULL=1 in the environment runs 2,000 of them at 50 a second, and stops the database for half a
minute: that takes two minutes with each; otherwise all of it takes seconds.
"""

import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, pairwise
from typing import Any

import pytest

from sidecar.jobs.model import Job
from tests.support.databases import Mariadb, Postgresql, Sqlite
from tests.support.processes import wait_until
from tests.support.target import PART
from tests.support.works import (
    Claim,
    Hold,
    JobSystem,
    Response,
    SubmittedJob,
    count_most_open,
    count_most_within,
    count_overtaken,
    read_arrivals,
    read_claims,
    read_holds,
    run_in_threads,
    sign_grant,
)

IS_FULL = os.environ.get("JOBS_FULL") == "1"
#: Those that take longest first.
KINDS = [Mariadb, Postgresql, Sqlite]
#: By kind of database: how many jobs, and how many calls a second.
SIZES = (2000, 50) if IS_FULL else None
USUAL = {"sqlite": (300, 75), "mariadb": (100, 40), "postgresql": (100, 40)}
CONCURRENCY = 10
WINDOW_US = 1_000_000
RETRIES = 3
LARGE, MOST = 400_000, 600_000
AWAY_S = 30 if IS_FULL else 3
AWAY = {"concurrency": 4, "retries": 0, "classes": {"gold": {"priority": 1}}}
#: First come, first served, within each; those before go before.
CLASSES = ("gold", "silver", "bronze")

#: What the target does to each hundred of jobs; flaky: only the first time.
PATHS = {
    "ok": (62, "ok/{n}?seconds={seconds}"),
    "slow": (15, "slow?seconds=0.2&n={n}"),
    "error": (8, "status/500?n={n}"),
    "busy": (3, "flaky?times=1&how=429&n={n}"),
    "unavailable": (3, "flaky?times=1&how=503&n={n}"),
    "broken": (4, "flaky?times=1&how=close&n={n}"),
    "large": (3, f"huge?bytes={LARGE}&n={{n}}"),
    "too-large": (1, f"huge?bytes={MOST + 1}&length=1&n={{n}}"),
    "dead": (1, "close?n={n}"),
}
FAILS_FIRST = {"busy", "unavailable", "broken"}

pytestmark = pytest.mark.timeout(900)


@dataclass
class Story:
    """All that was told and done. `kinds`, `classes`: of each job, by its id."""

    size: int
    rate: int
    sent: list[SubmittedJob]
    kinds: dict[str, str]
    classes: dict[str, str]
    rows: dict[str, Job]
    documents: dict[str, dict[str, Any]]
    bodies: dict[str, bytes]
    claims: list[Claim]
    holds: list[Hold]
    notes: list[dict[str, Any]]
    arrived: dict[tuple[str, int], int]

    def calls(self) -> dict[str, list[dict[str, Any]]]:
        """The target's notes, by job, as they came."""
        found = defaultdict(list)
        for note in sorted(self.notes, key=lambda note: note["began_ns"]):
            found[note["job"]].append(note)
        return found

    def attempts(self) -> dict[tuple[str, int], Claim]:
        """Each claim, by job and attempt."""
        found: dict[tuple[str, int], Claim] = {}
        counts = defaultdict[str, int](int)
        for claim in self.claims:
            counts[claim.job] += 1
            found[claim.job, counts[claim.job]] = claim
        return found


def kinds_of(count: int) -> list[str]:
    """Mixed, the same each time."""
    hundred = [kind for kind, (share, _) in PATHS.items() for _ in range(share)]
    mixed = [hundred[37 * place % 100] for place in range(100)]
    return list(islice(cycle(mixed), count))


@dataclass
class Away:
    """What was told and done while the database was away."""

    sent: list[SubmittedJob]
    rows: dict[str, Job]
    notes: list[dict[str, Any]]
    #: What those heard who submitted and looked meanwhile, and who submitted after it.
    refused: list[Response]
    looked: list[Response]
    after: Response
    #: Jobs whose calls ended while it was away.
    meanwhile: set[str]


def tell(kind: type, servers: Any) -> tuple[Story, Away | None]:
    size, rate = SIZES or USUAL[kind.kind]
    settings = {
        "concurrency": CONCURRENCY, "rate": rate, "window": "1s", "paused": True,
        "retries": RETRIES, "retry_delay": "100ms", "max_result": MOST, "break_after": 1000,
        "classes": {name: {"priority": 2 - place} for place, name in enumerate(CLASSES)},
    }  # fmt: skip
    kinds = kinds_of(size)
    classes = [CLASSES[place * 7 % 3] for place in range(size)]
    # The last class is held up by how many calls there are at a time, the others by the rate.
    seconds = dict(zip(CLASSES, (0, 0, 1.5 * CONCURRENCY / rate), strict=True))
    orders = [
        order(PATHS[kind][1].format(n=n, seconds=seconds[name]), name)
        for n, (kind, name) in enumerate(zip(kinds, classes, strict=True))
    ]
    server = None if kind is Sqlite else servers(kind)
    many = IS_FULL or kind is Sqlite
    with (
        JobSystem(
            {"story": settings, "away": AWAY},
            database=server.url if server else "", replicas=1 + IS_FULL, runners=2 + many,
        ) as works,
        works.monitor_redis() as monitor,
    ):  # fmt: skip
        # Most wait together; the rest come while these are called.
        first = 2 * size // 3
        sent = works.submit_all(orders[:first])
        changed = works.caller("operator").call("PATCH", "/targets/story", {"paused": False})
        assert changed.status == 200, changed
        _, more = run_in_threads(partial(be_busy, works, first // 4),
                           lambda: works.submit_all(orders[first:]))  # fmt: skip
        sent += more or []
        ids = [one.id for one in sent]
        rows = works.wait_for(ids, timeout_s=240)
        caller = works.caller()
        documents = {id_: caller.job(id_) for id_ in ids}
        bodies = {
            id_: caller.call("GET", f"/jobs/{id_}/body").body
            for id_, kind in zip(ids, kinds, strict=True) if kind == "large"
        }  # fmt: skip
        story = Story(
            size, rate, sent, dict(zip(ids, kinds, strict=True)),
            dict(zip(ids, classes, strict=True)), rows, documents, bodies,
            read_claims(monitor, "story"), read_holds(monitor, "story"),
            works.target.calls(), read_arrivals(works.target),
        )  # fmt: skip
        return story, server and stop(server, works)


def order(path: str, class_name: str) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {"target": "story", "path": path, "query": query, "class": class_name,
            "grant": sign_grant("story", class_name)}  # fmt: skip


def be_busy(works: JobSystem, after: int) -> None:
    """In the midst of it the target asks to be left alone for a second."""
    wait_until(lambda: len(works.target.calls()) >= after, "calls", 60)
    works.target.set_mood("429", retry_after="1")
    wait_until(lambda: any(map(is_busy, works.target.calls())), "a 429", 60)
    works.target.set_mood("ok")


def is_busy(note: dict[str, Any]) -> bool:
    """Whether the target's mood is to blame, for sure."""
    return note["status"] == 429 and "how=429" not in note["path"]


def stop(server: Any, works: JobSystem) -> Away:
    """The database, while calls are under way and others wait."""
    caller, before = works.caller(), works.count_ended_calls()
    orders = [{"target": "away", "path": "slow", "query": f"seconds=3&n={n}"} for n in range(4)]
    orders += [{"target": "away", "path": f"ok/{n}"} for n in range(30)]
    sent = works.submit_all(orders)
    another = {
        "target": "away",
        "path": "ok/another",
        "grant": sign_grant("away", "gold", id_="one"),
    }
    wait_until(lambda: works.target.open() == 4, "four slow calls")
    server.stop()
    try:
        end, refused, looked = time.monotonic() + AWAY_S, [], []
        while time.monotonic() < end:
            refused.append(caller.call("POST", "/jobs", another))
            looked.append(caller.call("GET", f"/jobs/{sent[0].id}"))
            time.sleep(0.25)
        meanwhile = {note["job"] for note in works.target.calls()[before:]}
    finally:
        server.start()
    wait_until(lambda: caller.call("GET", f"/jobs/{sent[0].id}").status == 200, "the database")
    after = caller.call("POST", "/jobs", another)
    rows = works.wait_for([*(one.id for one in sent), after.json["id"]])
    return Away(sent, rows, works.target.calls()[before:], refused, looked, after, meanwhile)


@pytest.fixture(scope="module")
def told(request, servers):
    asked = " ".join(item.name for item in request.session.items)
    kinds = [kind for kind in KINDS if f"[{kind.kind}]" in asked]
    for kind in kinds:
        if kind is not Sqlite:
            servers(kind)
    works = [partial(tell, kind, servers) for kind in kinds]
    found = [work() for work in works] if IS_FULL else run_in_threads(*works)
    return {kind.kind: pair for kind, pair in zip(kinds, found, strict=True)}


@pytest.fixture(params=[kind.kind for kind in KINDS])
def story(request, told):
    return told[request.param][0]


@pytest.fixture(params=["mariadb", "postgresql"])
def away(request, told):
    return told[request.param][1]


def test_every_job_ends_as_its_target_answers(story):
    """None is lost. Any 2xx is a result; whose answer is a 500 or too large fails, and so does
    who is never answered."""
    assert len(set(story.kinds)) == story.size
    expected = {"error": {("failed", 500)}, "too-large": {("failed", 200)},
                "dead": {("failed", None), ("failed", 429)}}  # fmt: skip
    odd = {}
    for id_, kind in story.kinds.items():
        ended = (story.rows[id_].state.value, story.rows[id_].status)
        if ended not in expected.get(kind, {("completed", 200)}):
            odd[id_] = (kind, ended)
    assert odd == {}


def test_results_are_those_of_the_job_and_no_others(story):
    """The target says back what it was asked; large bodies come whole."""
    paths = {one.id: f"/{one.order['path']}?{one.order['query']}" for one in story.sent}
    for id_, kind in story.kinds.items():
        result = story.documents[id_]["result"]
        if kind in {"ok", "slow", *FAILS_FIRST}:
            assert json_of(result)["path"] == paths[id_]
            assert result["headers"]["x-target"] == "bad"
        elif kind == "error":
            assert result["body"] == "the target's own 500"
        elif kind == "large":
            assert (result["size"], result.get("body")) == (LARGE, None)
            assert story.bodies[id_] == (PART * (LARGE // len(PART) + 1))[:LARGE]
        else:
            assert result is None
            assert story.documents[id_]["error"]


def test_each_call_is_made_once_unless_it_failed(story):
    """Whatever was answered is not asked again, and attempts are counted as they reached the
    target."""
    calls, wrong = story.calls(), {}
    for id_, kind in story.kinds.items():
        notes = calls[id_]
        busy = sum(note["status"] == 429 for note in notes) - (kind == "busy")
        expected = RETRIES + 1 if kind == "dead" else 1 + (kind in FAILS_FIRST) + busy
        numbers = [int(note["attempt"]) for note in notes]
        if numbers != list(range(1, expected + 1)) or story.rows[id_].attempts != expected:
            wrong[id_] = (kind, busy, numbers, story.rows[id_].attempts)
    assert wrong == {}
    assert calls.keys() == story.kinds.keys()


def test_calls_are_never_more_at_a_time_than_the_target_bears(story):
    """By its own count, over three workers."""
    assert max(note["open"] for note in story.notes) <= CONCURRENCY
    assert count_most_open(story.notes) <= CONCURRENCY


def test_calls_are_never_more_in_a_second_than_the_rate(story):
    """Wherever the second begins: by the moments that Redis gave, retries too."""
    moments = sorted(claim.at_us for claim in story.claims)
    assert len(moments) == sum(job.attempts for job in story.rows.values()) >= story.size
    later = zip(moments, moments[story.rate :], strict=False)
    assert min((b - a for a, b in later), default=WINDOW_US) >= WINDOW_US


def test_the_target_sees_no_more_than_the_rate(story):
    """In any stretch that is so much shorter than a second as calls took, at most, from their
    moment until they arrived."""
    delays = [story.arrived[key] - claim.at_us for key, claim in story.attempts().items()]
    assert min(delays) > 0
    most = count_most_within(story.arrived.values(), max(0, WINDOW_US - max(delays)))
    assert most <= story.rate


def test_a_higher_class_goes_first(story):
    """Whoever has a lower one is not called while somebody waits who has a higher one."""
    first, at_us = first_calls(story)
    wrong = {}
    for higher, lower in ((0, 1), (0, 2), (1, 2)):
        waits = [(one.ended_us, first[one.id]) for one in story.sent
                 if story.classes[one.id] == CLASSES[higher]]  # fmt: skip
        called = [(at_us[one.id], first[one.id]) for one in story.sent
                  if story.classes[one.id] == CLASSES[lower]]  # fmt: skip
        assert waits
        assert called
        wrong[CLASSES[higher], CLASSES[lower]] = count_overtaken(waits, called)
    assert set(wrong.values()) == {0}, wrong


def test_within_a_class_those_who_came_first_are_called_first(story):
    first, _ = first_calls(story)
    for name in CLASSES:
        mine = [one for one in story.sent if story.classes[one.id] == name]
        before = [(one.ended_us, first[one.id]) for one in mine]
        after = [(one.began_us, first[one.id]) for one in mine]
        assert count_overtaken(before, after) == 0


def test_a_target_that_asks_for_a_pause_has_it(story):
    """From its 429 with Retry-After on nobody is called until the second is over."""
    assert story.holds
    moments = [claim.at_us for claim in story.claims]
    assert [at for at in moments for hold in story.holds if hold.from_us < at < hold.until_us] == []
    assert all(b.until_us > a.until_us for a, b in pairwise(story.holds))


def test_nobody_submits_while_the_database_is_away(away):
    """They are told so, and when to ask again; and so are those who ask for theirs. A grant for
    one job is not spent by that."""
    assert away.refused
    for answer in (*away.refused, *away.looked):
        assert answer.status == 503, answer
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.json["title"] == "The database does not answer"
    assert (away.after.status, away.after.json["class"]) == (202, "gold")


def test_nothing_is_lost_or_done_twice_when_the_database_is_away(away):
    """Calls that ended meanwhile are written when it is back."""
    assert len(away.meanwhile) >= 4
    assert away.rows.keys() >= away.meanwhile
    assert {(row.state, row.status) for row in away.rows.values()} == {("completed", 200)}
    assert Counter(note["job"] for note in away.notes) == dict.fromkeys(away.rows, 1)


def first_calls(story: Story) -> tuple[dict[str, int], dict[str, int]]:
    """Of each job, the number of its first claim, which grows from claim to claim, and when that
    was."""
    found = {id_: claim for (id_, attempt), claim in story.attempts().items() if attempt == 1}
    return ({id_: claim.fence for id_, claim in found.items()},
            {id_: claim.at_us for id_, claim in found.items()})  # fmt: skip


def json_of(result: dict[str, Any]) -> dict[str, Any]:
    import json

    return json.loads(result["body"])
