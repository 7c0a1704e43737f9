"""How long nginx keeps a verdict and waits for one, and what has to outlast that."""

#: How long nginx may keep a verdict about a pass, at most.
VERDICT_TTL_MS = 3_000
#: How long it may keep what changes sooner, at most: a visitor's numbers, a raised shield.
BRIEF_TTL_MS = 2_000
#: How long nginx waits for a replica's response (nginx/waitroom/proxy.conf).
RESPONSE_MS = 3_000
#: How often a replica asks the store for changed settings and revoked passes.
REFRESH_MS = 1_000
#: Each replica asks every second. Where nobody did for longer than this, Redis was unavailable or
#: all replicas were down, and no visitor could be heard.
OUTAGE_MS = 5 * REFRESH_MS
#: A session outlives its pass by this much: the last request that the pass let in may
#: still be served from a kept verdict, or by a replica whose clock is a little late.
SESSION_GRACE_MS = VERDICT_TTL_MS + 1_000
#: Every replica refuses a released pass from this long after the release: by then all
#: have heard of it, and the page that released has loaded its pictures.
RELEASE_GRACE_MS = 2 * REFRESH_MS
#: A released session keeps its slot for this long: until then its pass is honoured, at
#: last by a kept verdict.
RELEASE_HOLD_MS = RELEASE_GRACE_MS + VERDICT_TTL_MS
