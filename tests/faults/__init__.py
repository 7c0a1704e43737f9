"""Things that break."""
