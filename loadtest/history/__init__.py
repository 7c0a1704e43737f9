"""`make bench-history`: what the history costs at ten million stays (docs/history.md)."""
