"""`make bench-limits`: what a decision about a rate limit costs, beside the `limits` library."""
