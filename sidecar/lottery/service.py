"""The secret of a room's draws, and the commitment on which all replicas agree."""

from collections.abc import Mapping, Sequence

import structlog

from sidecar.lottery import commitment as draw
from sidecar.lottery.commitment import is_revealed
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.openings import RoomEvent, draws_of
from sidecar.rooms.store.replies import Snapshot

log = structlog.get_logger()


class Draws:
    """Of one room. `secret_keys` are oldest to newest; the last signs.

    A secret is made of a key, and keys change; what was published must stay. So the secret is
    that of the key whose commitment was published, and where none was, of the key that signs:
    while keys are changed, replica by replica (docs/security.md), all replicas know that one.
    """

    def __init__(self, room: str, secret_keys: Sequence[str], store: DrawsStore) -> None:
        self.store = store
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
        """Whether the commitment is known to be the one that all replicas publish."""
        return event.draw_key in self._published

    def commitment(self, event: RoomEvent) -> str:
        """The one that was published, or would be."""
        published = self._published.get(event.draw_key)
        return draw.commitment_to(self.secret(event)) if published is None else published

    def secret(self, event: RoomEvent) -> str:
        """Secret until the draw is revealed."""
        name = event.draw_key
        secret = self._secrets.get(name)
        if secret is None:
            secret = self._secrets[name] = self._choose(event)
        return secret

    async def refresh(self, events: Sequence[RoomEvent], snapshot: Snapshot) -> None:
        """Publishes and learns what is new since the last time; once an event has opened, sees to
        it that its list's digest is kept. Cheap where nothing is new. Raises StoreError."""
        drawn = draws_of(events)
        if not drawn:
            return
        # Written again after the store was emptied.
        seen = (snapshot.born_ms, [event.draw_key for event in drawn])
        if seen != self._refreshed:
            published = await self.store.published()
            for event in drawn:
                if event.draw_key not in published:
                    kept = await self.store.publish(event.draw_key, self.commitment(event))
                    published[event.draw_key] = kept
            self.learn(published)
            self._refreshed = seen
        opened = [event for event in drawn if is_revealed(event, snapshot.now_ms)]
        if opened and snapshot.recovery_stage == 0:
            last = opened[-1]
            await self.store.list_digest(
                last.draw_key, begins_ms=last.begins_ms, born_ms=snapshot.born_ms
            )

    def _choose(self, event: RoomEvent) -> str:
        secrets = [draw.secret_of(key, self._room, event) for key in self._keys]
        published = self._published.get(event.draw_key)
        if published is None:
            return secrets[-1]
        for secret in secrets:
            if draw.commitment_to(secret) == published:
                return secret
        log.error(
            "draw_key_missing",
            room=self._room,
            draw_of=event.name,
            commitment=published,
            hint="the commitment was published with a key that is no longer in secret_keys: put "
            "that key back, before the others; until then places are drawn that nobody can check",
        )
        return secrets[-1]
