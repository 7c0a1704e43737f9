"""For how long single scripts and commands held Redis, by its own slow log."""

from typing import Any

from redis.asyncio import Redis

from sidecar.storage.redis.lua_source import library

#: What is quicker is not noted: to note each command of a script takes longer than to run it.
NOTED_US = 100
#: More than are noted in one part of a measurement.
_KEPT = 1_000_000


async def watch(redis: Redis) -> None:
    """From now on is noted what takes longer than NOTED_US."""
    await redis.config_set("slowlog-log-slower-than", NOTED_US)
    await redis.config_set("slowlog-max-len", _KEPT)
    await redis.slowlog_reset()


async def take(redis: Redis) -> dict[str, list[float]]:
    """How long each took that was noted since the last time, ms; by the names of scripts and
    commands."""
    names = {function: f"{verb}.lua" for verb, function in library("rooms").functions.items()}
    found: dict[str, list[float]] = {}
    entries: list[dict[str, Any]] = await redis.slowlog_get(_KEPT)
    for entry in entries:
        verb, _, rest = entry["command"].decode(errors="replace").partition(" ")
        name = names.get(rest.partition(" ")[0], verb) if verb == "FCALL" else verb
        if verb not in ("SLOWLOG", "SCRIPT", "CONFIG"):
            found.setdefault(name, []).append(entry["duration"] / 1000)
    await redis.slowlog_reset()
    return found
