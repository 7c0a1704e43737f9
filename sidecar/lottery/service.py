"""Chooses the secrets of a room's draws, and publishes commitments on which all replicas agree."""

from collections.abc import Mapping, Sequence

import structlog

from sidecar.lottery import commitment as draw
from sidecar.lottery.publication import is_secret_public
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.openings import RoomEvent, list_drawn_events
from sidecar.rooms.store.replies import Snapshot

log = structlog.get_logger()


class Draws:
    """The draws of one room. `secret_keys` are ordered oldest to newest; the last one signs.

    A published commitment must stay valid when keys change, so a draw's secret comes from the key
    whose commitment was published. Without a published commitment, the secret comes from the key
    that signs, which all replicas know while the keys are being changed (docs/security.md)."""

    def __init__(self, room: str, secret_keys: Sequence[str], store: DrawsStore) -> None:
        self.store = store
        self._room = room
        self._keys = tuple(secret_keys)
        #: The published commitments and the chosen secrets, by draw key.
        self._commitments: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
        self._published_state: object = None

    def record_commitments(self, commitments: Mapping[str, str]) -> None:
        """Record commitments read from Redis, by draw key. They stay valid if Redis is emptied."""
        for draw_key, commitment in commitments.items():
            if self._commitments.get(draw_key) != commitment:
                self._commitments[draw_key] = commitment
                self._secrets.pop(draw_key, None)

    def compute_lot(self, event: RoomEvent, visitor: str) -> int:
        return draw.compute_lot(self.get_secret(event), visitor)

    def has_agreed_secret(self, event: RoomEvent) -> bool:
        return event.draw_key in self._commitments

    def get_commitment(self, event: RoomEvent) -> str:
        """Return the published commitment, or the commitment to publish."""
        published = self._commitments.get(event.draw_key)
        return draw.compute_commitment(self.get_secret(event)) if published is None else published

    def get_secret(self, event: RoomEvent) -> str:
        """Return the secret of a draw. Do not publish it before the draw is revealed."""
        if event.draw_key not in self._secrets:
            self._secrets[event.draw_key] = self._choose_secret(event)
        return self._secrets[event.draw_key]

    async def publish(self, events: Sequence[RoomEvent], snapshot: Snapshot) -> None:
        """Publish the commitments of new draws, and read those that replicas have published. After
        an event has opened, publish its list's digest. Raises StoreError."""
        draws = list_drawn_events(events)
        if not draws:
            return
        # With `born_ms`, the commitments are published again after Redis was emptied.
        state = (snapshot.born_ms, [event.draw_key for event in draws])
        if state != self._published_state:
            published = await self.store.read_published()
            for event in draws:
                if event.draw_key not in published:
                    value = await self.store.publish(event.draw_key, self.get_commitment(event))
                    published[event.draw_key] = value
            self.record_commitments(published)
            self._published_state = state
        revealed_events = [event for event in draws if is_secret_public(event, snapshot.now_ms)]
        if revealed_events and snapshot.recovery_stage == 0:
            last = revealed_events[-1]
            await self.store.find_digest(
                last.draw_key, begins_ms=last.begins_ms, born_ms=snapshot.born_ms
            )

    def _choose_secret(self, event: RoomEvent) -> str:
        secrets = [draw.derive_secret(key, self._room, event) for key in self._keys]
        published = self._commitments.get(event.draw_key)
        if published is None:
            return secrets[-1]
        for secret in secrets:
            if draw.compute_commitment(secret) == published:
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
