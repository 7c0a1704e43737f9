"""What the history costs at ten million stays: look-ups, the recorder, reports (docs/history.md).

Read in the order `stays`, `load`, `servers`, `lookups`, `recording`, `command`, `report`.
"""
