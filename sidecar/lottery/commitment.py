"""The draw of an event's pre-queue, by commitment and revelation.

Before the pre-queue begins its secret is fixed and the SHA-256 of it published. The place of a
visitor is the HMAC-SHA256 (RFC 2104) of its id with that secret. When the event has opened the
secret is published too, and anybody can compute every place again: `verify` does.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sidecar.rooms.openings import RoomEvent, draws_of, moments
from sidecar.visitors.model import LOT_BITS
from sidecar.visitors.tokens import is_visitor

#: After the opening, until the secret is published: nobody may know it while somebody, by a
#: clock that is late, could still take a place. ms.
REVEAL_AFTER_MS = 3000

Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
#: Text of a room that is printed: you may verify a draw because you do not trust the operator.
Plain = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,64}$")]
#: A visitor's id, and its place from 1 on.
Row = tuple[Plain, Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]]


# What is drawn -----------------------------------------------------------------------------------


def secret_of(key: str, room: str, event: RoomEvent) -> str:
    """64 hexadecimal digits. Who moves the opening keeps the secret; a pre-queue that begins at
    another time has another one, so that none is ever used again after it was published."""
    text = f"waitroom-draw:{room}:{event.name}:{event.begins_ms}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def commitment_to(secret: str) -> str:
    """SHA-256 of the secret's hexadecimal text, in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def lot(secret: str, visitor: str) -> int:
    """The visitor's lot, below 2**LOT_BITS; the smaller, the sooner. Of two that are the same,
    which is next to impossible, the id that sorts first goes first."""
    digest = hmac.digest(secret.encode(), visitor.encode(), "sha256")
    return int.from_bytes(digest[:8], "big") >> (64 - LOT_BITS)


def by_lot(secret: str, visitors: Iterable[str]) -> list[str]:
    """In the order of their lots."""
    return sorted(visitors, key=lambda visitor: (lot(secret, visitor), visitor))


def as_lines(visitors: Iterable[str], *, first: int = 1) -> bytes:
    """What the SHA-256 of a list is computed over: a line for each place, `place id`."""
    return "".join(f"{at} {visitor}\n" for at, visitor in enumerate(visitors, first)).encode()


# Which draw --------------------------------------------------------------------------------------


def is_revealed(event: RoomEvent, now_ms: int) -> bool:
    return now_ms >= event.opens_at + REVEAL_AFTER_MS


def shown_draw(events: Sequence[RoomEvent], now_ms: int) -> RoomEvent | None:
    """The event whose draw a visitor means who names none: the one in whose pre-queue or opening
    we are, else the coming one, else the last; None: there is no pre-queue."""
    current, drawn = moments(events, now_ms, is_open_between=False).event, draws_of(events)
    if current in drawn:
        return current
    yet = [event for event in drawn if event.begins_ms > now_ms]
    return yet[0] if yet else drawn[-1] if drawn else None


# What is published, and its check ----------------------------------------------------------------


class Published(BaseModel):
    """What a room says of its draw (GET /_waitroom/{room}/draw), as far as the check needs it."""

    model_config = ConfigDict(frozen=True)

    room: Plain
    event: Plain
    commitment: Hex
    revealed_at: Plain
    #: None until the event has opened.
    secret: Hex | None = None
    count: Annotated[int, Field(ge=0, le=2**53)] | None = None
    places_sha256: Hex | None = None
    places_url: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,500}$")] | None = None
    store_emptied_at: Plain | None = None


class Kept(BaseModel):
    """A draw with its places, as a file keeps it."""

    draw: Published
    places: list[Row]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `says`: what it proves, or where it is wrong first."""

    holds: bool
    what: str
    says: str


def verify(
    draw: Published,
    places: Sequence[tuple[str, int]],
    *,
    commitment: str | None = None,
    digest: str | None = None,
    visitor: str | None = None,
) -> list[Check]:
    """Computes the draw again. `commitment` and `digest` are those that somebody noted before;
    `visitor`: whose place to check. Without a secret only what was noted is checked."""
    noted = [] if commitment is None else [_noted("commitment", draw.commitment, commitment)]
    if draw.secret is None:
        return noted
    rows = sorted(places, key=lambda row: row[1])
    ids = [row[0] for row in rows]
    found = hashlib.sha256("".join(f"{at} {one}\n" for one, at in rows).encode()).hexdigest()
    checks = [
        _secret(draw.secret, draw.commitment),
        *noted,
        _ids(rows),
        _places(rows),
        _lots(draw.secret, ids),
        _count(draw.count, len(ids)),
        _list(draw.places_sha256, found),
    ]
    if digest is not None:
        checks.append(_noted("list", found, digest))
    if visitor is not None:
        checks.append(_visitor(draw.secret, dict(rows), visitor))
    return checks


def _check(what: str, proof: str, fault: str = "") -> Check:
    return Check(not fault, what, fault or proof)


def _secret(secret: str, commitment: str) -> Check:
    found = commitment_to(secret)
    proof = (
        f"its SHA-256 is the commitment {commitment}: nobody has changed the secret since that was "
        "published"
    )
    fault = (
        f"its SHA-256 is {found}, and the commitment is {commitment}: it is not the secret that "
        "was committed to"
    )
    return _check("secret", proof, "" if found == commitment else fault)


def _noted(what: str, found: str, noted: str) -> Check:
    fault = f"is {found}, and you noted {noted}: it was changed since then"
    proof = "is the one that you noted: it was not changed since then"
    return _check(what, proof, "" if found == noted.strip().lower() else fault)


def _ids(rows: Sequence[tuple[str, int]]) -> Check:
    seen: dict[str, int] = {}
    fault = ""
    for visitor, place in rows:
        if not is_visitor(visitor):
            fault = f"place {place}: {visitor[:40]!r} is no visitor's id"
        elif visitor in seen:
            fault = f"place {place}: {visitor} has place {seen[visitor]} already"
        if fault:
            break
        seen[visitor] = place
    return _check("ids", "none is listed twice: each has one place", fault)


def _places(rows: Sequence[tuple[str, int]]) -> Check:
    for right, (visitor, place) in enumerate(rows, start=1):
        if place != right:
            if place < 1:
                fault = "is below 1, and the first place is 1"
            else:
                fault = "is there twice" if place < right else f"comes where {right} should"
            return Check(False, "places", f"place {place} ({visitor}) {fault}")
    return Check(True, "places", f"they are 1 to {len(rows)}: none is missing, none is there twice")


def _lots(secret: str, ids: Sequence[str]) -> Check:
    pairs = enumerate(zip(ids, by_lot(secret, ids), strict=True), start=1)
    faults = (
        f"place {place} is listed as {found}'s; by the lots it is {right}'s"
        for place, (found, right) in pairs
        if found != right
    )
    proof = (
        f"all {len(ids)} were drawn again: each id has the place that its lot gives it, and nobody "
        "was moved"
    )
    return _check("lots", proof, next(faults, ""))


def _count(published: int | None, found: int) -> Check:
    proof = f"{found} places, as published: none was added or taken away"
    fault = f"{found} places are listed, and {published} were published"
    if published is None:
        fault = f"{found} places are listed; the number drawn is not published"
    return _check("count", proof, "" if published == found else fault)


def _list(published: str | None, found: str) -> Check:
    proof = f"its SHA-256 is {found}, as published: it is the list of the opening"
    fault = f"its SHA-256 is {found}, and {published} was published: it was changed since then"
    if published is None:
        fault = f"its SHA-256 is {found}, and none was published"
    return _check("list", proof, "" if published == found else fault)


def _visitor(secret: str, places: dict[str, int], visitor: str) -> Check:
    fault = "" if visitor in places else f"{visitor[:40]} is not in the list"
    proof = (
        f"{visitor} has place {places.get(visitor)} of {len(places)} (lot {lot(secret, visitor)})"
    )
    return _check("visitor", proof, fault)
