"""Which secret a room's draws are made with, and that all replicas say the same of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from sidecar.lottery import commitment as draw
from sidecar.lottery.commitment import draws_of, is_revealed, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.lottery.store import DrawsStore
    from sidecar.rooms.openings import RoomEvent
    from sidecar.rooms.store.replies import Snapshot

log = structlog.get_logger()


def problems_of_change(
    before: Sequence[RoomEvent], after: Sequence[RoomEvent], now_ms: int
) -> list[str]:
    """Why a room's events must not be changed so: places that were taken would be drawn with
    another secret, or new ones with a secret that is known. To take an event out, which cancels
    it, is right at any time."""
    named = {event.name: event for event in after}
    new = set(map(key_of, after)) - set(map(key_of, before))
    found = []
    for event in draws_of(before):
        same = named.get(event.name)
        if event.begins_ms <= now_ms < event.opens_at:
            instead = [
                one.name
                for one in draws_of(after)
                if key_of(one) in new and one.begins_ms <= now_ms and one.opens_at > event.begins_ms
            ]
            if same is not None and same.prequeue_from != event.prequeue_from:
                found.append(
                    f"events: {event.name}: its pre-queue is on: leave prequeue_from alone, or "
                    "take the event out to cancel it"
                )
            elif same is None and instead:
                found.append(
                    f"events: {instead[0]}: the pre-queue of {event.name} is on: leave its name "
                    "alone, or take the event out to cancel it"
                )
        elif event.opens_at <= now_ms and _opens_later(event, same):
            found.append(
                f"events: {event.name}: its secret is published; give the next event a name of "
                "its own"
            )
    return found


def _opens_later(event: RoomEvent, after: RoomEvent | None) -> bool:
    """Whether the same draw, of the same secret, opens later than it did."""
    if after is None or after.prequeue_from is None or key_of(after) != key_of(event):
        return False
    return after.opens_at > event.opens_at


class Draws:
    """Of one room. `secret_keys` are oldest to newest; the last signs.

    A secret is made of a key, and keys change; what was published must stay. So the secret is
    that of the key whose commitment was published, and where none was, of the key that signs:
    while keys are changed, replica by replica (docs/security.md), all replicas know that one.
    """

    def __init__(self, room: str, secret_keys: Sequence[str]) -> None:
        self._room = room
        self._keys = tuple(secret_keys)
        #: Commitments by draw, as they were published.
        self._published: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
        self._refreshed: object = None

    def learn(self, published: Mapping[str, str]) -> None:
        """What the store has of commitments, by draw. An emptied store takes none back."""
        for name, commitment in published.items():
            if self._published.get(name) != commitment:
                self._published[name] = commitment
                self._secrets.pop(name, None)

    def lot(self, event: RoomEvent, visitor: str) -> int:
        return draw.lot(self.secret(event), visitor)

    def is_agreed(self, event: RoomEvent) -> bool:
        """Whether the commitment is known to be the one that all replicas tell."""
        return key_of(event) in self._published

    def commitment(self, event: RoomEvent) -> str:
        """The one that was published, or would be."""
        said = self._published.get(key_of(event))
        return draw.commitment_to(self.secret(event)) if said is None else said

    def secret(self, event: RoomEvent) -> str:
        """Secret until the draw is revealed."""
        name = key_of(event)
        secret = self._secrets.get(name)
        if secret is None:
            secret = self._secrets[name] = self._choose(event)
        return secret

    async def refresh(
        self, store: DrawsStore, events: Sequence[RoomEvent], snapshot: Snapshot
    ) -> None:
        """Publishes and learns what is new since the last time; once an event has opened, sees to
        it that its list's digest is kept. Cheap where nothing is new. Raises StoreError."""
        drawn = draws_of(events)
        if not drawn:
            return
        # Written again after the store was emptied.
        seen = (snapshot.born_ms, [key_of(event) for event in drawn])
        if seen != self._refreshed:
            published = await store.published()
            for event in drawn:
                if key_of(event) not in published:
                    said = await store.publish(key_of(event), self.commitment(event))
                    published[key_of(event)] = said
            self.learn(published)
            self._refreshed = seen
        opened = [event for event in drawn if is_revealed(event, snapshot.now_ms)]
        if opened and snapshot.recovery_stage == 0:
            last = opened[-1]
            await store.list_digest(
                key_of(last), begins_ms=last.begins_ms, born_ms=snapshot.born_ms
            )

    def _choose(self, event: RoomEvent) -> str:
        secrets = [draw.secret_of(key, self._room, event) for key in self._keys]
        said = self._published.get(key_of(event))
        if said is None:
            return secrets[-1]
        for secret in secrets:
            if draw.commitment_to(secret) == said:
                return secret
        log.error(
            "draw_key_missing",
            room=self._room,
            draw_of=event.name,
            commitment=said,
            hint="the commitment was published with a key that is no longer in secret_keys: put "
            "that key back, before the others; until then places are drawn that nobody can check",
        )
        return secrets[-1]
