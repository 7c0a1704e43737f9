"""The workloads, in the order of the report."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    #: What is counted per second.
    unit: str
    what: str
    #: A rush is over before anything is warm, and is about how many get in.
    is_rush: bool = False


WORKLOADS = (
    Workload(
        "admitted", "visitors inside", "requests",
        "64 admitted visitors at a time, 2,000 in all, ask for a page of the site and then for its "
        "20 pictures, one after the other, and keep the cookies that they are given, as browsers "
        "do. Passes are minutes from renewal.",
    ),
    Workload(
        "kept", "visitors inside, kept verdicts", "requests",
        "2,000 admitted visitors in turn, each with a cookie of their own, ask for a page of the "
        "site and keep no cookie: no stamp serves them, only verdicts that nginx keeps.",
    ),
    Workload(
        "newcomers", "newcomers, room free", "arrivals",
        "Browsers without a cookie find a free slot and see the site.",
    ),
    Workload(
        "full", "newcomers, room full", "arrivals",
        "Browsers without a cookie get a place and see the waiting page. In the Lua design "
        "that is a redirect and a second request; both together count as one arrival.",
    ),
    Workload(
        "flood", "flood, room full", "requests",
        "The same, from somebody who never follows a redirect or keeps a cookie. Waitroom's "
        "shield is up.",
    ),
    Workload(
        "polls", "polls, 40,000 waiting", "polls",
        "40,000 waiting visitors in turn ask how things stand.",
    ),
    Workload(
        "mix", "a mix, room full", "requests",
        "70 % requests of visitors inside, for pages and their pictures, with the cookies they "
        "keep; 25 % polls of 16,000 waiting; 5 % newcomers (in the Lua design without their second "
        "request).",
    ),
    Workload(
        "deep", "polls, 100,000 waiting", "polls",
        "40,000 visitors, evenly from a line of 100,000, ask how things stand.",
    ),
    Workload(
        "rush", "rush", "arrivals",
        "An empty room for 500, and at once some thousand newcomers on 256 connections.",
        is_rush=True,
    ),
)  # fmt: skip
