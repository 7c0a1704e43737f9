"""How long nginx caches a verdict and waits for one, and the times that depend on both."""

#: The longest time for which nginx may cache a verdict about a pass.
VERDICT_TTL_MS = 3_000
#: The longest time for which nginx may cache a status document, or a verdict that does not admit.
BRIEF_TTL_MS = 2_000
#: How long nginx waits for a replica's response (nginx/waitroom/proxy.conf).
RESPONSE_MS = 3_000
#: How often a replica polls the store for changed settings and revoked passes.
REFRESH_MS = 1_000
#: The longest pause between the polls of all replicas that is not an outage. After a longer pause,
#: Redis was unavailable or all replicas were down, so no heartbeat could arrive.
OUTAGE_MS = 5 * REFRESH_MS
#: How long a session outlives its pass, because nginx may still have a verdict in its cache, and
#: the clock of a replica may be late.
SESSION_GRACE_MS = VERDICT_TTL_MS + 1_000
#: How long after its release a pass is still accepted. In this time all replicas learn of the
#: release, and the page that released the pass loads its images.
RELEASE_GRACE_MS = 2 * REFRESH_MS
#: How long a released session keeps its slot, because a cached verdict still lets it pass.
RELEASE_HOLD_MS = RELEASE_GRACE_MS + VERDICT_TTL_MS
