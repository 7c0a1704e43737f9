"""`make bench`: Waitroom beside plain nginx and a Lua design, in paired, alternating runs."""
