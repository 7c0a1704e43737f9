"""How long nginx keeps a verdict and waits for one, and times that depend on that."""

#: How long nginx may keep a verdict about a pass, at most.
VERDICT_TTL_MS = 3_000
#: How long nginx may keep what changes sooner, at most: a visitor's numbers, a raised shield.
BRIEF_TTL_MS = 2_000
#: How long nginx waits for a replica's response (nginx/waitroom/proxy.conf).
RESPONSE_MS = 3_000
#: How often a replica asks the store for changed settings and revoked passes.
REFRESH_MS = 1_000
#: If no replica asked for longer than this, Redis was unavailable or all replicas were down, and
#: no heartbeat could arrive.
OUTAGE_MS = 5 * REFRESH_MS
#: A session outlives its pass by this much: nginx may still keep a verdict, and a replica's clock
#: may be late.
SESSION_GRACE_MS = VERDICT_TTL_MS + 1_000
#: Replicas refuse a pass this long after its release: all have heard of it by then, and the page
#: that released it has loaded its pictures.
RELEASE_GRACE_MS = 2 * REFRESH_MS
#: A released session keeps its slot for this long, because a kept verdict still lets it pass.
RELEASE_HOLD_MS = RELEASE_GRACE_MS + VERDICT_TTL_MS
