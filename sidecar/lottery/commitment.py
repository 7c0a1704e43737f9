"""The lottery draw of an event's pre-queue, which anybody can verify afterwards.

Before the pre-queue begins, the SHA-256 of a secret is published as a commitment. A visitor's lot,
the number that decides the place, is the HMAC-SHA256 (RFC 2104) of the visitor's id with that
secret. After the opening the secret is published, so that anybody can compute all places again."""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sidecar.rooms.openings import RoomEvent
from sidecar.visitors.model import LOT_BITS
from sidecar.visitors.tokens import is_visitor_id

HexDigits = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
#: A string without control characters. A verifier prints it, and may not trust the publisher.
PrintableText = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,64}$")]
#: A visitor's id and place. The first place is 1.
PlaceRow = tuple[PrintableText, Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]]


# The draw ----------------------------------------------------------------------------------------


def derive_secret(key: str, room: str, event: RoomEvent) -> str:
    """Return an event's secret, 64 hexadecimal digits. The secret depends on the beginning of the
    pre-queue but not on the opening, so that no published secret is used again."""
    text = f"waitroom-draw:{room}:{event.name}:{event.begins_ms}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def compute_commitment(secret: str) -> str:
    """Return the SHA-256 of the secret as 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def compute_lot(secret: str, visitor: str) -> int:
    """Return a visitor's lot, a number below 2**LOT_BITS. The smallest lot gets the first place.
    Of two visitors with equal lots, the one whose id sorts first is ahead."""
    digest = hmac.digest(secret.encode(), visitor.encode(), "sha256")
    return int.from_bytes(digest[:8], "big") >> (64 - LOT_BITS)


def sort_by_lot(secret: str, visitors: Iterable[str]) -> list[str]:
    return sorted(visitors, key=lambda visitor: (compute_lot(secret, visitor), visitor))


def format_list(visitors: Iterable[str], *, first: int = 1) -> bytes:
    """Return the bytes whose SHA-256 is published: a line `place id` for each visitor. `first` is
    the place of the first visitor."""
    return _format_rows((visitor, place) for place, visitor in enumerate(visitors, first))


def _format_rows(rows: Iterable[tuple[str, int]]) -> bytes:
    return "".join(f"{place} {visitor}\n" for visitor, place in rows).encode()


# The published data, and its verification --------------------------------------------------------


class PublishedDraw(BaseModel):
    """The members of the response to GET /_waitroom/{room}/draw that a verification needs."""

    model_config = ConfigDict(frozen=True)

    room: PrintableText
    event: PrintableText
    commitment: HexDigits
    revealed_at: PrintableText
    #: The secret. None until REVEAL_AFTER_MS after the opening.
    secret: HexDigits | None = None
    count: Annotated[int, Field(ge=0, le=2**53)] | None = None
    places_sha256: HexDigits | None = None
    places_url: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,500}$")] | None = None
    store_emptied_at: PrintableText | None = None


class SavedDraw(BaseModel):
    """A draw with its places, as saved in a file."""

    draw: PublishedDraw
    places: list[PlaceRow]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of a draw, with the proof that it passed or the fault."""

    is_passed: bool
    subject: str
    explanation: str


def verify(
    draw: PublishedDraw,
    places: Sequence[tuple[str, int]],
    *,
    commitment: str | None = None,
    digest: str | None = None,
    visitor: str | None = None,
) -> list[Check]:
    """Compute a draw again, compare it with what was published, and return the checks. Before the
    secret is published, only the commitment is compared.

    `commitment` and `digest` are values that the verifier saved before fetching the draw. `visitor`
    is the id of a visitor who should be in the list."""
    checks = [] if commitment is None else [_check_copy("commitment", draw.commitment, commitment)]
    if draw.secret is None:
        return checks
    rows = sorted(places, key=lambda row: row[1])
    count, sha256 = len(rows), hashlib.sha256(_format_rows(rows)).hexdigest()
    checks = [_check_secret(draw.secret, draw.commitment), *checks]
    checks += [
        _make_check("ids", _find_id_fault(rows), "none is listed twice: each has one place"),
        _make_check(
            "places",
            _find_place_fault(rows),
            f"they are 1 to {count}: none is missing, none is there twice",
        ),
        _make_check(
            "lots",
            _find_lot_fault(draw.secret, [id_ for id_, _ in rows]),
            f"all {count} were drawn again: each id has the place that its lot gives it, and "
            "nobody was moved",
        ),
        _check_count(draw.count, count),
        _check_digest(draw.places_sha256, sha256),
    ]
    if digest is not None:
        checks.append(_check_copy("list", sha256, digest))
    if visitor is not None:
        place = dict(rows).get(visitor)
        proof = f"{visitor} has place {place} of {count} (lot {compute_lot(draw.secret, visitor)})"
        fault = f"{visitor[:40]} is not in the list" if place is None else ""
        checks.append(_make_check("visitor", fault, proof))
    return checks


def _make_check(subject: str, fault: str, proof: str) -> Check:
    return Check(not fault, subject, fault or proof)


def _check_secret(secret: str, commitment: str) -> Check:
    computed = compute_commitment(secret)
    fault = (
        f"its SHA-256 is {computed}, and the commitment is {commitment}: it is not the secret that "
        "was committed to"
    )
    proof = (
        f"its SHA-256 is the commitment {commitment}: nobody has changed the secret since that was "
        "published"
    )
    return _make_check("secret", "" if computed == commitment else fault, proof)


def _check_copy(subject: str, published: str, copy: str) -> Check:
    fault = f"is {published}, and you noted {copy}: it was changed since then"
    proof = "is the one that you noted: it was not changed since then"
    return _make_check(subject, "" if published == copy.strip().lower() else fault, proof)


def _check_count(published: int | None, listed: int) -> Check:
    fault = (
        f"{listed} places are listed; the number drawn is not published"
        if published is None
        else f"{listed} places are listed, and {published} were published"
    )
    proof = f"{listed} places, as published: none was added or taken away"
    return _make_check("count", "" if published == listed else fault, proof)


def _check_digest(published: str | None, computed: str) -> Check:
    difference = f"{published} was published: it was changed since then"
    fault = f"its SHA-256 is {computed}, and {difference if published else 'none was published'}"
    proof = f"its SHA-256 is {computed}, as published: it is the list of the opening"
    return _make_check("list", "" if published == computed else fault, proof)


def _find_id_fault(rows: Sequence[tuple[str, int]]) -> str:
    places: dict[str, int] = {}
    for visitor, place in rows:
        if not is_visitor_id(visitor):
            return f"place {place}: {visitor[:40]!r} is no visitor's id"
        if visitor in places:
            return f"place {place}: {visitor} has place {places[visitor]} already"
        places[visitor] = place
    return ""


def _find_place_fault(rows: Sequence[tuple[str, int]]) -> str:
    for expected, (visitor, place) in enumerate(rows, start=1):
        if place < 1:
            return f"place {place} ({visitor}) is below 1, and the first place is 1"
        if place < expected:
            return f"place {place} ({visitor}) is there twice"
        if place > expected:
            return f"place {place} ({visitor}) comes where {expected} should"
    return ""


def _find_lot_fault(secret: str, ids: Sequence[str]) -> str:
    for place, (listed, drawn) in enumerate(
        zip(ids, sort_by_lot(secret, ids), strict=True), start=1
    ):
        if listed != drawn:
            return f"place {place} is listed as {listed}'s; by the lots it is {drawn}'s"
    return ""
