"""Defines how long nginx caches verdicts and waits for them, and durations that depend on that."""

#: The longest time for which nginx may cache a verdict about a pass.
VERDICT_TTL_MS = 3_000
#: The longest time for which nginx may cache a status document, or a verdict that does not admit.
BRIEF_TTL_MS = 2_000
#: How long nginx waits for a replica's response (nginx/waitroom/proxy.conf).
RESPONSE_MS = 3_000
#: How often a replica polls the store for changed settings and revoked passes.
REFRESH_MS = 1_000
#: If no replica has polled Redis for longer than this, there was an outage: Redis was unavailable
#: or all replicas were down, so heartbeats could not arrive.
OUTAGE_MS = 5 * REFRESH_MS
#: How long a session outlasts its pass. In this time, nginx may still use a cached verdict about
#: the pass, and a replica whose clock is behind may still accept the pass.
SESSION_GRACE_MS = VERDICT_TTL_MS + 1_000
#: How long a pass is still accepted after its release. In this time all replicas learn of the
#: release, and the page that released the pass can load its images.
RELEASE_GRACE_MS = 2 * REFRESH_MS
#: How long a released session keeps its slot, because a cached verdict may still admit its visitor.
RELEASE_HOLD_MS = RELEASE_GRACE_MS + VERDICT_TTL_MS
