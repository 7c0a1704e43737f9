"""The draw of an event's pre-queue, by commitment and revelation.

Before the pre-queue begins, the SHA-256 of a secret is published. A visitor's lot is the
HMAC-SHA256 (RFC 2104) of the visitor's id with that secret. After the opening the secret is
published too, and anybody can compute every place again: `verify` does.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sidecar.rooms.openings import RoomEvent, draws_of, moments
from sidecar.visitors.model import LOT_BITS
from sidecar.visitors.tokens import is_visitor_id

#: How long after the opening the secret is published, ms: nobody may know it while a replica with a
#: late clock may still give out places.
REVEAL_AFTER_MS = 3000

Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
#: Text of a room that is safe to print: whoever verifies a draw may not trust the operator.
Plain = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,64}$")]
#: A visitor's id and place, from 1 on.
Row = tuple[Plain, Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]]


# What is drawn -----------------------------------------------------------------------------------


def secret_of(key: str, room: str, event: RoomEvent) -> str:
    """Return an event's secret, 64 hexadecimal digits. Moving the opening keeps the secret; moving
    the beginning of the pre-queue changes it, so that no published secret is used again."""
    text = f"waitroom-draw:{room}:{event.name}:{event.begins_ms}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def commitment_to(secret: str) -> str:
    """Return the SHA-256 of the secret's hexadecimal text, in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def lot(secret: str, visitor: str) -> int:
    """Return a visitor's lot, below 2**LOT_BITS. Smaller ones go first; of equal ones, the id that
    sorts first."""
    digest = hmac.digest(secret.encode(), visitor.encode(), "sha256")
    return int.from_bytes(digest[:8], "big") >> (64 - LOT_BITS)


def by_lot(secret: str, visitors: Iterable[str]) -> list[str]:
    """Sort visitors by their lots."""
    return sorted(visitors, key=lambda visitor: (lot(secret, visitor), visitor))


def as_lines(visitors: Iterable[str], *, first: int = 1) -> bytes:
    """Return the bytes whose SHA-256 is published: a line `place id` for each place."""
    return "".join(f"{at} {visitor}\n" for at, visitor in enumerate(visitors, first)).encode()


# Which draw --------------------------------------------------------------------------------------


def is_revealed(event: RoomEvent, now_ms: int) -> bool:
    return now_ms >= event.opens_at + REVEAL_AFTER_MS


def shown_draw(events: Sequence[RoomEvent], now_ms: int) -> RoomEvent | None:
    """Return the event whose draw is shown by default: the current one, else the next one, else
    the last one; None without a pre-queue."""
    current, drawn = moments(events, now_ms, is_open_between=False).event, draws_of(events)
    if current in drawn:
        return current
    coming = (event for event in drawn if event.begins_ms > now_ms)
    return next(coming, drawn[-1] if drawn else None)


# What is published, and its check ----------------------------------------------------------------


class Published(BaseModel):
    """The members of GET /_waitroom/{room}/draw that the check needs."""

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
    """A draw with its places, as saved in a file."""

    draw: Published
    places: list[Row]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a draw. `says`: the proof, or the first fault."""

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
    """Compute a draw again and compare. Without its secret only `commitment` is compared.

    `commitment` and `digest` are values that somebody noted before; `visitor`: whose place to look
    for."""
    noted = [] if commitment is None else [_noted("commitment", draw.commitment, commitment)]
    if draw.secret is None:
        return noted
    rows = sorted(places, key=lambda row: row[1])
    ids = [row[0] for row in rows]
    sha256 = hashlib.sha256("".join(f"{at} {one}\n" for one, at in rows).encode()).hexdigest()
    checks = [
        _secret(draw.secret, draw.commitment),
        *noted,
        _ids(rows),
        _places(rows),
        _lots(draw.secret, ids),
        _count(draw.count, len(ids)),
        _list(draw.places_sha256, sha256),
    ]
    if digest is not None:
        checks.append(_noted("list", sha256, digest))
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
        if not is_visitor_id(visitor):
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
